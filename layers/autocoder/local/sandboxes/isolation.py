"""How sandboxes are held: in bubblewrap where that works, else as plain processes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from autocoder.local.sandboxes import bubblewrap

VARIABLE = "AUTOCODER_SANDBOX_ISOLATION"

WARNING = """\
*******************************************************************************
WARNING: NO ISOLATION. Sandboxes are plain processes of your own user. Nothing
protects, from the code that the agent writes:
- your files and keys: it can read and change everything that you can
- your other programs, and the other sandboxes
- your network, and what listens on this machine
- your disk, which it can fill, and the number of your processes
Stop here unless this machine is one that you can lose.
Reason: {reason}
On Linux, install bubblewrap (apt install bubblewrap, dnf install bubblewrap,
pacman -S bubblewrap) and start again. It does not exist for macOS or Windows:
use a Linux virtual machine there.
*******************************************************************************
"""


class Isolation(StrEnum):
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


class IsolationError(Exception):
    """The isolation that was asked for is not to be had here."""


def choose(wanted: str, toolchain: Path) -> tuple[Isolation, str]:
    """The isolation for `wanted` (auto, bubblewrap or none) and, where it is none, the reason."""
    if wanted == Isolation.NONE:
        return Isolation.NONE, f"{VARIABLE}=none"
    if wanted not in ("auto", Isolation.BUBBLEWRAP):
        raise IsolationError(f"{VARIABLE} is {wanted!r}; it may be auto, bubblewrap or none")
    problem = bubblewrap.find_problem(toolchain)
    if problem is None:
        return Isolation.BUBBLEWRAP, ""
    if wanted == Isolation.BUBBLEWRAP:
        raise IsolationError(f"{VARIABLE}=bubblewrap, but {problem}")
    return Isolation.NONE, problem
