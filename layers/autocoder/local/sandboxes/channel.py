"""The server's end of the socket to a sandbox's agent.

The agent shares its user with whatever runs in the sandbox, so nothing that it says is trusted:
a malformed message ends the sandbox, and descriptors are checked by whoever uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

_LONGEST_MESSAGE = 64 * 1024 * 1024
_MOST_DESCRIPTORS = 16


class SandboxGoneError(Exception):
    """The sandbox ended before it answered."""


class AgentError(Exception):
    """The agent could not do what it was asked; `errno` is the symbolic name, as in "ENOENT"."""

    def __init__(self, errno: str, message: str) -> None:
        super().__init__(message)
        self.errno = errno


class Channel:
    """Requests to the agent, and its events. `on_close` is called once, when the agent is gone."""

    def __init__(
        self,
        sock: socket.socket,
        on_event: Callable[[dict[str, Any], list[int]], None],
        on_close: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_event = on_event
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[tuple[Any, list[int]]]] = {}
        self._next_id = 0
        self._data = bytearray()
        self._fds: list[int] = []
        self.closed = False
        self._loop.add_reader(sock, self._receive)

    async def request(self, op: str, fds: Sequence[int] = (), **args: Any) -> tuple[Any, list[int]]:
        """Ask the agent for one operation; the caller owns the descriptors that come back."""
        self._next_id += 1
        number = self._next_id
        body = json.dumps({"id": number, "op": op, "args": args, "fds": len(fds)}).encode()
        answer: asyncio.Future[tuple[Any, list[int]]] = self._loop.create_future()
        async with self._sending:
            if self.closed:
                raise SandboxGoneError(op)
            self._waiting[number] = answer
            try:
                await self._send(struct.pack("!I", len(body)) + body, fds)
            except OSError as error:
                self._waiting.pop(number, None)
                self.close()
                raise SandboxGoneError(op) from error
            finally:
                if self.closed:
                    self._sock.close()
        return await answer

    async def _send(self, data: bytes, fds: Sequence[int]) -> None:
        sent = 0
        while fds and not sent:
            try:
                sent = socket.send_fds(self._sock, [data], fds)
            except BlockingIOError:
                await wait_writable(self._sock.fileno())
        await self._loop.sock_sendall(self._sock, data[sent:])

    def _receive(self) -> None:
        try:
            chunk, fds, _, _ = socket.recv_fds(
                self._sock, 1 << 18, _MOST_DESCRIPTORS, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._data += chunk
        self._fds += fds
        try:
            while (message := self._take()) is not None:
                self._dispatch(message)
        except (ValueError, KeyError, TypeError):
            self.close()  # not our agent speaking
            return
        if not chunk:
            self.close()

    def _take(self) -> dict[str, Any] | None:
        if len(self._data) < 4:
            return None
        (length,) = struct.unpack("!I", self._data[:4])
        if length > _LONGEST_MESSAGE:
            raise ValueError("message too long")
        if len(self._data) < 4 + length:
            return None
        message = json.loads(self._data[4 : 4 + length])
        del self._data[: 4 + length]
        if not isinstance(message, dict):
            raise TypeError("a message is an object")
        return message

    def _dispatch(self, message: dict[str, Any]) -> None:
        count = int(message["fds"])
        fds, self._fds = self._fds[:count], self._fds[count:]
        if "event" in message:
            self._on_event(message, fds)
            return
        answer = self._waiting.pop(message["id"])
        if answer.done():  # whoever asked was cancelled
            close_all(fds)
        elif "error" in message:
            close_all(fds)
            error = message["error"]
            answer.set_exception(AgentError(str(error["errno"]), str(error["message"])))
        else:
            answer.set_result((message["result"], fds))

    def close(self) -> None:
        """Hang up; who waits for an answer hears that there will be none."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        with contextlib.suppress(OSError):  # the other end is gone
            self._sock.shutdown(socket.SHUT_RDWR)
        if not self._sending.locked():  # else whoever sends closes it: the loop may watch it
            self._sock.close()
        close_all(self._fds)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SandboxGoneError("the sandbox ended"))
        self._waiting.clear()
        self._on_close()


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


async def wait_writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)
