"""Holds each sandbox to its share of this machine's memory.

The kernel limits what one process may have and how large a scratch folder gets; only a cgroup,
which an ordinary user can't make everywhere, limits a sandbox's processes together. So they are
looked at twice a second, or less often where a look takes long:

- processes that have more than the limit together are killed, the largest first, as the kernel
  does in a virtual machine that is full;
- a sandbox with too many files is ended: each takes memory of the kernel, and no limit counts it;
- while this machine itself runs out of memory, the largest sandbox is ended.

What a sandbox takes between two looks, and shared memory that no process has touched, is seen
by the last rule only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIB = 1024 * 1024
MOST_FILES = 1_000_000
"""In a scratch folder; a large node_modules has 100,000."""

_EVERY_SECONDS = 0.5
_LOOKING = 0.1
"""The share of its time that the watchdog looks, at most."""
_LOW = 0.05
"""The share of this machine's memory that is left when sandboxes are ended for it."""

_PROC = Path("/proc")
_log = logging.getLogger(__name__)

Children = Callable[[int], list[int]]
"""The processes that a process started."""


class Watched(Protocol):
    """A sandbox, as far as it is looked at from outside."""

    id: str

    @property
    def root_pid(self) -> int:
        """The process whose descendants all are."""

    @property
    def scratch(self) -> list[int]:
        """Descriptors of its folders in memory."""


class Fleet(Protocol):
    def all(self) -> Iterable[Watched]: ...

    async def end(self, sandbox_id: str, reason: str) -> None: ...


@dataclass(frozen=True)
class Process:
    pid: int
    started: str
    """With the number, what tells a process from a later one of the same number."""
    memory: int


@dataclass(frozen=True)
class Use:
    """What a sandbox takes."""

    processes: list[Process]
    scratch: int
    files: int

    @property
    def memory(self) -> int:
        return sum(process.memory for process in self.processes)

    def too_much(self, limit: int) -> list[Process]:
        """The largest processes, without which the others are within the limit."""
        total, found = self.memory, []
        for process in sorted(self.processes, key=lambda x: x.memory, reverse=True):
            if total <= limit:
                break
            total -= process.memory
            found.append(process)
        return found


async def watch(fleet: Fleet, limit: int) -> None:
    """Look at every sandbox until cancelled."""
    looked = 0.0
    while True:
        await asyncio.sleep(max(_EVERY_SECONDS, looked / _LOOKING))
        began = time.monotonic()
        sandboxes = list(fleet.all())
        if not sandboxes:
            continue
        uses = await asyncio.to_thread(_look, sandboxes, limit)
        looked = time.monotonic() - began
        for sandbox_id, use in uses.items():
            if use.files > MOST_FILES:
                await fleet.end(sandbox_id, f"it has {use.files} files")
            for process in use.too_much(limit):
                _log.warning("sandbox %s is out of memory: killing %s", sandbox_id, process)
                _kill(process)
        if _is_low():
            largest = max(uses, key=lambda x: uses[x].memory + uses[x].scratch)
            await fleet.end(largest, "this machine is out of memory")


def _look(sandboxes: list[Watched], limit: int) -> dict[str, Use]:
    children = _children if (_PROC / "thread-self" / "children").exists() else _scan()
    return {sandbox.id: _use(sandbox, children, limit) for sandbox in sandboxes}


def _use(sandbox: Watched, children: Children, limit: int) -> Use:
    processes, waiting = [], [sandbox.root_pid]
    while waiting:
        for pid in children(waiting.pop()):
            waiting.append(pid)
            with contextlib.suppress(OSError):  # it ended while we looked
                started = _fields(pid)[19]
                processes.append(Process(pid, started, _memory(pid, exact=False)))
    scratch, files = _scratch(sandbox.scratch)
    use = Use(processes, scratch, files)
    if use.memory <= limit:
        return use
    # Pages that forks share were counted for each of them: look closer, which takes longer.
    exact = [Process(x.pid, x.started, _memory(x.pid, exact=True)) for x in processes]
    return Use(exact, scratch, files)


def _scratch(folders: list[int]) -> tuple[int, int]:
    taken = files = 0
    for folder in folders:
        with contextlib.suppress(OSError):  # the sandbox ended since
            size = os.fstatvfs(folder)
            taken += (size.f_blocks - size.f_bfree) * size.f_frsize
            files += size.f_files - size.f_ffree
    return taken, files


def _children(pid: int) -> list[int]:
    """Those that any of its threads started."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for thread in os.listdir(_PROC / str(pid) / "task"):  # noqa: PTH208 - as in `_scan`
            children = _PROC / str(pid) / "task" / thread / "children"
            found += map(int, children.read_text().split())
    return found


def _scan() -> Children:
    """The same for a kernel that does not say: every process of this machine names its parent."""
    found: dict[int, list[int]] = {}
    for name in os.listdir(_PROC):  # noqa: PTH208 - a path object each would cost as much again
        if name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                found.setdefault(int(_fields(int(name))[1]), []).append(int(name))
    return lambda pid: found.get(pid, [])


def _fields(pid: int) -> list[str]:
    """Those of /proc/PID/stat after the name, which may hold anything."""
    return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _memory(pid: int, *, exact: bool) -> int:
    """What a process takes of its own, in bytes; what is read from files can be read again."""
    with contextlib.suppress(OSError):  # it ended, or this kernel shows it to nobody else
        if exact:
            return _sum(_PROC / str(pid) / "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
    with contextlib.suppress(OSError):
        return _sum(_PROC / str(pid) / "status", ("RssAnon:", "RssShmem:"))
    return 0


def _sum(path: Path, names: tuple[str, ...]) -> int:
    lines = path.read_text(errors="replace").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(names)) * 1024


def _kill(process: Process) -> None:
    """Kill a process, and not another one that got its number meanwhile."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if _fields(process.pid)[19] == process.started:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return
    finally:
        os.close(fd)


def _is_low() -> bool:
    """Nearly nothing is left of this machine's memory."""
    lines = (line.split() for line in (_PROC / "meminfo").read_text().splitlines())
    sizes = {name: int(size) for name, size, *_ in lines}
    return sizes["MemAvailable:"] < _LOW * sizes["MemTotal:"]
