"""The filter of system calls, run by a small interpreter: also for machines that we don't have."""

import struct

import pytest

from autocoder.local.sandboxes.seccomp import denied, program

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050001
HARMLESS = {"x86_64": [0, 1, 59, 257, 435], "aarch64": [56, 63, 64, 221, 435]}


def run(machine: str, arch: int, number: int) -> int:
    """What the kernel would do with a call."""
    code = program(machine)
    assert code
    at = loaded = 0
    while True:
        kind, jump, no_jump, value = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        match kind:
            case 0x20:
                loaded = {0: number, 4: arch}[value]
            case 0x15:
                at += jump if loaded == value else no_jump
            case 0x35:
                at += jump if loaded >= value else no_jump
            case 0x06:
                return int(value)
            case _:
                pytest.fail(f"unknown instruction {kind:#x}")


@pytest.mark.parametrize("machine", ARCHES)
def test_the_named_calls_are_refused_and_others_are_not(machine: str) -> None:
    arch = ARCHES[machine]
    assert {run(machine, arch, x) for x in denied(machine).values()} == {EPERM}
    assert {run(machine, arch, x) for x in HARMLESS[machine]} == {ALLOW}
    assert run(machine, arch, 0x40000000 + 250) == EPERM
    assert run(machine, 0x40000003, 250) == KILL


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    assert program("riscv64") is None
    assert denied("riscv64") == {}
