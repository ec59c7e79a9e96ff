"""A command in a sandbox: its pipes, and who is listening to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

_CHUNK = 65536
_QUEUE = 64
_CLOSED = "the command's standard input is closed"


@dataclass(frozen=True)
class Output:
    stream: Literal["stdout", "stderr"]
    data: bytes


@dataclass(frozen=True)
class Exit:
    code: int
    """As `subprocess` has it: minus the signal's number where one ended the command."""


@dataclass(frozen=True)
class Lost:
    """The sandbox ended, or was paused, before the command did."""


Event = Output | Exit | Lost


@dataclass(frozen=True)
class Pipes:
    """The server's ends of a command's pipes; stdin is None where the command has none."""

    stdin: asyncio.StreamWriter | None
    stdout: int
    stderr: int


@dataclass
class Command:
    """A running or just ended command. Output that nobody listens to is dropped, as in E2B."""

    pid: int
    argv: list[str]
    envs: dict[str, str]
    cwd: str | None
    tag: str | None
    pipes: Pipes
    exit_code: asyncio.Future[int | None]
    """None where the sandbox ended first."""
    send_signal: Callable[[int], Awaitable[None]]
    ended: Exit | Lost | None = None
    _listeners: set[asyncio.Queue[Event]] = field(default_factory=set)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def listen(self) -> asyncio.Queue[Event]:
        """A queue of events from now on. A full queue stops the command from writing more."""
        queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUE)
        if self.ended is not None:
            queue.put_nowait(self.ended)
        self._listeners.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[Event]) -> None:
        self._listeners.discard(queue)
        while not queue.empty():  # wakes whoever waits to put
            queue.get_nowait()

    def hang_up(self) -> None:
        """Tell whoever listens that they hear no more, though the command may go on."""
        for queue in list(self._listeners):
            self.leave(queue)
            queue.put_nowait(Lost())

    async def run(self) -> None:
        """Pass output on until both pipes end: a child that kept them open counts as running."""
        await asyncio.gather(
            self._pump("stdout", self.pipes.stdout), self._pump("stderr", self.pipes.stderr)
        )
        code = await self.exit_code
        self.ended = Lost() if code is None else Exit(code)
        self._abandon_stdin()
        await self._tell(self.ended)

    async def _pump(self, stream: Literal["stdout", "stderr"], fd: int) -> None:
        async for data in _read_pipe(fd):
            await self._tell(Output(stream, data))

    async def _tell(self, event: Event) -> None:
        for queue in list(self._listeners):
            await queue.put(event)

    async def write_stdin(self, data: bytes) -> None:
        """Write all of it, waiting while the command does not read."""
        stdin = self.pipes.stdin
        async with self._writing:
            if stdin is None or stdin.is_closing():
                raise BrokenPipeError(_CLOSED)
            stdin.write(data)
            try:
                await stdin.drain()
            except ConnectionError:
                raise BrokenPipeError(_CLOSED) from None
            if self.ended is not None:  # which also ends the waiting
                raise BrokenPipeError(_CLOSED)

    def _abandon_stdin(self) -> None:
        """Close it at once: something that the command left may hold the other end, unread."""
        stdin = self.pipes.stdin
        if stdin and (not stdin.is_closing() or stdin.transport.get_write_buffer_size()):
            stdin.transport.abort()

    def close_stdin(self) -> None:
        """The command reads what was written, and then the end."""
        if self.pipes.stdin is not None:
            self.pipes.stdin.close()


async def open_stdin(fd: int) -> asyncio.StreamWriter:
    """The writing end of a pipe; its `drain` returns when everything is in the pipe."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", buffering=0))
    transport.set_write_buffer_limits(high=0)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _read_pipe(fd: int) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=_CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        while data := await reader.read(_CHUNK):
            yield data
    finally:
        transport.close()
