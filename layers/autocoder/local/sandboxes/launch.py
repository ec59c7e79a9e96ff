"""Starts a sandbox's agent, and ends it with everything that it started."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from autocoder.local.sandboxes import bubblewrap
from autocoder.local.sandboxes.channel import close_all

_HERE = Path(__file__).parent
_AGENT, _WATCHER = "agent.py", "watcher.py"
_SECONDS_TO_END = 10.0
_SECONDS_TO_START = 30.0
_WORDS, _LAST_WORDS = 65536, 4000
_log = logging.getLogger(__name__)

# None of the server's own: what runs in a sandbox can open its agent's through /proc.
_STREAMS: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}


class LaunchError(Exception):
    """The agent could not be started."""


class Held(Protocol):
    """A running agent."""

    sock: socket.socket

    process: asyncio.subprocess.Process

    @property
    def home(self) -> str: ...

    @property
    def watcher(self) -> list[str]:
        """The command, without its arguments, that watches folders."""

    def stop(self) -> None:
        """Begin to end it."""

    async def wait_gone(self) -> None:
        """After `stop`: return when no process and no folder of the sandbox is left."""


@dataclass
class Bubblewrapped:
    sock: socket.socket
    process: asyncio.subprocess.Process
    words: int
    init: int
    """A descriptor of the namespace's first process: unlike its number, never another's."""

    @property
    def home(self) -> str:
        return bubblewrap.HOME

    @property
    def watcher(self) -> list[str]:
        return bubblewrap.script(_WATCHER)

    def stop(self) -> None:
        """End the namespace's first process: the kernel ends the rest before it lets that go."""
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            signal.pidfd_send_signal(self.init, signal.SIGKILL)

    async def wait_gone(self) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self.init, ended.set)
        await ended.wait()
        loop.remove_reader(self.init)
        os.close(self.init)
        await self.process.wait()
        _log_last_words(self.words)


@dataclass
class Plain:
    sock: socket.socket
    process: asyncio.subprocess.Process
    words: int
    folder: Path
    python: str

    @property
    def home(self) -> str:
        return str(self.folder)

    @property
    def watcher(self) -> list[str]:
        return _script(self.python, _WATCHER)

    def stop(self) -> None:
        """The agent ends its descendants, and then itself, when the socket closes."""
        with contextlib.suppress(OSError):  # it ended by itself
            self.sock.shutdown(socket.SHUT_RDWR)

    async def wait_gone(self) -> None:
        try:
            await asyncio.wait_for(self.process.wait(), _SECONDS_TO_END)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        _log_last_words(self.words)
        await asyncio.to_thread(_remove_tree, self.folder)


async def start_bubblewrapped(
    toolchain: Path, read_only: list[Path], ports: list[int], disk_mb: int
) -> Bubblewrapped:
    ours, theirs = socket.socketpair()
    info_read, info_write = os.pipe()
    words = _open_words()
    sizes = bubblewrap.scratch(disk_mb)
    settings = _settings(
        bubblewrap.HOME,
        ports=ports,
        limits=bubblewrap.LIMITS,
        scratch=list(sizes),
        shares_pids=False,
    )
    inner = [*bubblewrap.script(_AGENT), str(theirs.fileno()), settings]
    scripts = [_HERE / _AGENT, _HERE / _WATCHER]
    argv, fds = bubblewrap.command(toolchain, scripts, read_only, sizes, info_write, inner)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, words)
        undo.callback(ours.close)
        info = undo.enter_context(os.fdopen(info_read, "rb", buffering=0))
        try:
            # From the main thread: the parent whose death ends bubblewrap is a thread.
            process = await asyncio.create_subprocess_exec(
                *argv,
                env={},
                cwd="/",
                pass_fds=[*fds, info_write, theirs.fileno()],
                stderr=words,
                **{**_STREAMS, **bubblewrap.identity()},
            )
        finally:
            theirs.close()
            close_all([*fds, info_write])
        try:
            init = os.pidfd_open(await _read_child_pid(info))
        except (EOFError, TimeoutError, OSError) as error:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                process.kill()
            await process.wait()
            raise LaunchError(f"bwrap ended: {_last_words(words) or repr(error)}") from error
        undo.pop_all()
    return Bubblewrapped(ours, process, words, init)


async def _read_child_pid(info: BinaryIO) -> int:
    """What bwrap says on its --info-fd, in more than one write; it closes it where it fails."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), info
    )
    try:
        async with asyncio.timeout(_SECONDS_TO_START):
            return int(json.loads(await reader.readuntil(b"}"))["child-pid"])
    finally:
        transport.close()


def _open_words() -> int:
    """A file for what an agent says of its end, which the sandbox can neither grow nor block."""
    if not hasattr(os, "memfd_create"):  # not Linux, so a plain process, whom nothing limits
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    words = os.memfd_create("words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(words, _WORDS)
    seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(words, fcntl.F_ADD_SEALS, seals)
    return words


def _last_words(words: int) -> str:
    said = os.pread(words, _WORDS, 0).strip(b"\0")
    return said[-_LAST_WORDS:].decode(errors="replace").strip()


def _log_last_words(words: int) -> None:
    """After the agent's end."""
    if said := _last_words(words):
        _log.warning("a sandbox's agent said: %r", said)
    os.close(words)


async def start_plain(toolchain: Path, folder: Path) -> Plain:
    ours, theirs = socket.socketpair()
    words = _open_words()
    folder.mkdir(parents=True, mode=0o700)
    # A login shell reads the host's /etc/profile, which resets PATH; this file is read after it.
    path = f'export PATH="{toolchain / "bin"}:$HOME/.local/bin:$PATH"\n'
    (folder / ".bash_profile").write_text(path)
    settings = _settings(
        str(folder), ports=[], limits={"RLIMIT_CORE": 0}, scratch=[], shares_pids=True
    )
    python = str(toolchain / "bin" / "python3")
    try:
        process = await asyncio.create_subprocess_exec(
            *[*_script(python, _AGENT), str(theirs.fileno()), settings],
            env={},
            cwd=folder,
            **_STREAMS,
            stderr=words,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(words)
        raise
    finally:
        theirs.close()
    return Plain(ours, process, words, folder, python)


def _script(python: str, name: str) -> list[str]:
    return [python, "-I", "-S", str(_HERE / name)]


def _settings(home: str, **others: Any) -> str:
    return json.dumps({"home": home, "home_alias": bubblewrap.HOME, **others})


def _remove_tree(folder: Path) -> None:
    """Remove a folder, also one with folders in it that forbid writing."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)
