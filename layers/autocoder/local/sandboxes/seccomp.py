"""System calls that no sandbox may make, as a filter that bubblewrap loads.

Namespaces and missing capabilities hold a sandbox; this closes what they leave open: the kernel's
keyrings, which a child inherits from the user's session whatever namespaces it has, and interfaces
to the kernel that a build or test never needs and in which flaws were found time and again. The
rest of the kernel is as open to a sandbox as to any program.
"""

from __future__ import annotations

import platform
import struct

# The kernel's AUDIT_ARCH of a machine, and where its own numbers differ from those of newer calls.
_MACHINES = {
    "x86_64": (
        0xC000003E,
        {
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "perf_event_open": 241,
            "bpf": 280,
            "userfaultfd": 282,
        },
    ),
}
_EVERYWHERE = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
_X32 = 0x40000000
"""From here on, x86_64 has a second set of numbers for the same calls."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCH_AT = 0, 4
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001


def denied(machine: str) -> dict[str, int]:
    """The calls that are refused on a machine, by name."""
    return {**_MACHINES[machine][1], **_EVERYWHERE} if machine in _MACHINES else {}


def program(machine: str = platform.machine()) -> bytes | None:
    """The filter, as the kernel's BPF; None for a machine whose numbers are not known here."""
    if machine not in _MACHINES:
        return None
    arch, numbers = _MACHINES[machine][0], sorted(denied(machine).values())
    tests = [(_AT_LEAST, _X32), *((_EQUAL, number) for number in numbers)]
    code = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),  # a program for another machine's kernel, with other numbers
        (_LOAD, 0, 0, _NUMBER_AT),
        # Each test that holds jumps over the rest of them, and over the permission.
        *((test, len(tests) - at, 0, value) for at, (test, value) in enumerate(tests)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
