"""Connections from a sandbox's own loopback to chosen ports of the host."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

HEAD_LIMIT = 1 << 16
"""The longest head of a request that the proxy reads."""

_CHUNK = 1 << 16
MOST_CONNECTIONS = 128  # of a sandbox to one of its ports

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve_inside(listener_fd: int, handler: Handler) -> asyncio.Server:
    """Answer on a listening socket that the agent opened in the sandbox's network namespace.

    Only so many connections at a time: each costs this server descriptors that all sandboxes share.
    """
    listener = socket.socket(fileno=listener_fd)
    listener.setblocking(False)
    open_now = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        if open_now >= MOST_CONNECTIONS:
            writer.close()
            return
        open_now += 1
        try:
            await handler(reader, writer)
        finally:
            open_now -= 1

    return await asyncio.start_server(counted, sock=listener, limit=HEAD_LIMIT)


def forward_to(host: str, port: int) -> Handler:
    """A handler that passes every connection on to one address, and nowhere else."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()  # the client sees a reset, as from a port that nobody serves
            return
        await splice((reader, writer), upstream)

    return forward


def guarded(allowed: Callable[[], bool], handler: Handler) -> Handler:
    """A handler that is there only while it is allowed: else the client sees a closed port."""

    async def guard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not allowed():
            writer.close()
            return
        await handler(reader, writer)

    return guard


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def splice(one: Stream, other: Stream) -> None:
    """Copy both ways until both sides are done, or either breaks."""
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
    except OSError:
        pass  # a side hung up; closing both tells the other
    finally:
        for _, writer in (one, other):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
