"""Writing to a command or an agent that does not read, and ends."""

import asyncio
import os
import socket
from unittest.mock import AsyncMock

import pytest

from autocoder.local.sandboxes.channel import Channel, SandboxGoneError
from autocoder.local.sandboxes.command import Command, Exit, Pipes, open_stdin

MORE_THAN_FITS = 1_000_000


def test_who_writes_to_a_command_that_never_reads_hears_of_its_end() -> None:
    """Though something that the command left behind holds the other end of the pipe."""

    async def scene() -> int:
        held, stdin = os.pipe()
        (stdout, other_out), (stderr, other_err) = os.pipe(), os.pipe()
        exit_code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        pipes = Pipes(await open_stdin(stdin), stdout, stderr)
        command = Command(1, ["x"], {}, None, None, pipes, exit_code, AsyncMock())
        writing = asyncio.create_task(command.write_stdin(b"x" * MORE_THAN_FITS))
        running = asyncio.create_task(command.run())
        await asyncio.sleep(0)
        os.close(other_out)
        os.close(other_err)
        exit_code.set_result(0)
        await running
        assert command.ended == Exit(0)
        with pytest.raises(BrokenPipeError, match="is closed"):
            await writing
        with pytest.raises(BrokenPipeError, match="is closed"):
            await command.write_stdin(b"x")
        await asyncio.sleep(0)
        read = len(os.read(held, MORE_THAN_FITS))
        assert os.read(held, 1) == b""  # nobody holds the writing end
        os.close(held)
        return read

    assert 0 < asyncio.run(asyncio.wait_for(scene(), 20)) < MORE_THAN_FITS


def test_what_was_written_is_read_before_the_end_of_it() -> None:
    async def scene() -> bytes:
        held, stdin = os.pipe()
        exit_code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        pipes = Pipes(await open_stdin(stdin), -1, -1)
        command = Command(1, ["x"], {}, None, None, pipes, exit_code, AsyncMock())
        writing = asyncio.create_task(command.write_stdin(b"x" * MORE_THAN_FITS))
        await asyncio.sleep(0)
        command.close_stdin()
        with os.fdopen(held, "rb") as reader:
            read = await asyncio.to_thread(reader.read)
        await asyncio.wait([writing])
        return read

    assert len(asyncio.run(asyncio.wait_for(scene(), 20))) == MORE_THAN_FITS


def test_a_request_that_does_not_fit_ends_with_the_channel() -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        closed: list[bool] = []
        channel = Channel(ours, lambda message, fds: None, lambda: closed.append(True))
        asking = asyncio.create_task(channel.request("write", data="x" * MORE_THAN_FITS))
        waiting = asyncio.create_task(channel.request("stat"))
        await asyncio.sleep(0.01)
        channel.close()
        for request in (asking, waiting):
            with pytest.raises(SandboxGoneError):
                await request
        assert ours.fileno() == -1
        assert closed == [True]
        theirs.close()

    asyncio.run(asyncio.wait_for(scene(), 20))
