"""E2B's process service: start, follow, feed and signal commands."""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import AsyncIterator
from typing import Any, Literal

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.process import process_connect
from e2b.envd.process import process_pb as pb
from protobuf import Oneof

from autocoder.local.sandboxes.command import Command, Event, Exit, Lost, Output
from autocoder.local.sandboxes.errors import as_connect_errors, unimplemented
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.routing import check_user, keepalive_seconds, sandbox_of

Context = RequestContext[Any, Any]


class ProcessService(process_connect.Process):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def list(self, request: pb.ListRequest, ctx: Context, /) -> pb.ListResponse:
        commands = sandbox_of(self._fleet, ctx).commands.values()
        return pb.ListResponse(processes=[_info(x) for x in commands if x.ended is None])

    async def start(
        self, request: pb.StartRequest, ctx: Context, /
    ) -> AsyncIterator[pb.StartResponse]:
        sandbox = sandbox_of(self._fleet, ctx)
        check_user(ctx)
        if request.has_field("pty"):
            raise unimplemented("terminals (PTY)")
        config = request.process or pb.ProcessConfig()
        with as_connect_errors():
            command = await sandbox.spawn(
                [config.cmd, *config.args],
                envs=config.envs,
                cwd=config.cwd if config.has_field("cwd") else None,
                tag=request.tag if request.has_field("tag") else None,
                stdin=request.stdin if request.has_field("stdin") else True,
            )
        queue = command.listen()
        sandbox.follow(command, None if ctx.timeout_ms is None else ctx.timeout_ms / 1000)
        async for event in _events(command, queue, ctx):
            yield pb.StartResponse(event=event)

    async def connect(
        self, request: pb.ConnectRequest, ctx: Context, /
    ) -> AsyncIterator[pb.ConnectResponse]:
        command = self._find(request.process, ctx)
        async for event in _events(command, command.listen(), ctx):
            yield pb.ConnectResponse(event=event)

    async def send_input(
        self, request: pb.SendInputRequest, ctx: Context, /
    ) -> pb.SendInputResponse:
        await _feed(self._find(request.process, ctx), request.input)
        return pb.SendInputResponse()

    async def stream_input(
        self, request: AsyncIterator[pb.StreamInputRequest], ctx: Context, /
    ) -> pb.StreamInputResponse:
        command: Command | None = None
        async for message in request:
            match message.event:
                case Oneof(value=pb.StreamInputRequest.StartEvent() as start):
                    command = self._find(start.process, ctx)
                case Oneof(value=pb.StreamInputRequest.DataEvent() as data):
                    if command is None:
                        raise ConnectError(Code.INVALID_ARGUMENT, "input before its start event")
                    await _feed(command, data.input)
        return pb.StreamInputResponse()

    async def close_stdin(
        self, request: pb.CloseStdinRequest, ctx: Context, /
    ) -> pb.CloseStdinResponse:
        self._find(request.process, ctx).close_stdin()
        return pb.CloseStdinResponse()

    async def send_signal(
        self, request: pb.SendSignalRequest, ctx: Context, /
    ) -> pb.SendSignalResponse:
        command = self._find(request.process, ctx)
        if request.signal not in (pb.Signal.SIGTERM, pb.Signal.SIGKILL):
            raise ConnectError(Code.INVALID_ARGUMENT, f"not a signal: {request.signal}")
        with as_connect_errors():
            await command.send_signal(int(request.signal))
        return pb.SendSignalResponse()

    async def update(self, request: pb.UpdateRequest, ctx: Context, /) -> pb.UpdateResponse:
        raise unimplemented("terminals (PTY)")

    def _find(self, selector: pb.ProcessSelector | None, ctx: Context) -> Command:
        commands = sandbox_of(self._fleet, ctx).commands
        found: Command | None = None
        match selector.selector if selector else None:
            case Oneof(value=int(pid)):
                found = commands.get(pid)
            case Oneof(value=str(tag)):
                found = next((x for x in commands.values() if x.tag == tag), None)
        if found is None:
            raise ConnectError(Code.NOT_FOUND, "process not found")
        return found


async def _feed(command: Command, given: pb.ProcessInput | None) -> None:
    match given.input if given else None:
        case Oneof(field="stdin", value=data):
            try:
                await command.write_stdin(data)
            except BrokenPipeError as error:
                raise ConnectError(Code.FAILED_PRECONDITION, str(error)) from error
        case _:
            raise unimplemented("terminals (PTY)")


async def _events(
    command: Command, queue: asyncio.Queue[Event], ctx: Context
) -> AsyncIterator[pb.ProcessEvent]:
    """The command's life as E2B streams it, with signs of life for the proxies in between."""
    pause = keepalive_seconds(ctx)
    try:
        yield _start_event(command.pid)
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), pause)
            except TimeoutError:
                yield _keepalive_event()
                continue
            match event:
                case Output():
                    yield _data_event(event)
                case Exit(code):
                    yield _end_event(code)
                    return
                case Lost():
                    raise ConnectError(Code.UNAVAILABLE, "the sandbox ended before the command")
    finally:
        command.leave(queue)


# The annotations name each member of the union: a bare `Oneof` is of no particular one.


def _start_event(pid: int) -> pb.ProcessEvent:
    start: Oneof[Literal["start"], pb.ProcessEvent.StartEvent]
    start = Oneof("start", pb.ProcessEvent.StartEvent(pid=pid))
    return pb.ProcessEvent(event=start)


def _keepalive_event() -> pb.ProcessEvent:
    keepalive: Oneof[Literal["keepalive"], pb.ProcessEvent.KeepAlive]
    keepalive = Oneof("keepalive", pb.ProcessEvent.KeepAlive())
    return pb.ProcessEvent(event=keepalive)


def _data_event(event: Output) -> pb.ProcessEvent:
    out: Oneof[Literal["stdout"], bytes] = Oneof("stdout", event.data)
    err: Oneof[Literal["stderr"], bytes] = Oneof("stderr", event.data)
    message = pb.ProcessEvent.DataEvent(output=out if event.stream == "stdout" else err)
    data: Oneof[Literal["data"], pb.ProcessEvent.DataEvent] = Oneof("data", message)
    return pb.ProcessEvent(event=data)


def _end_event(code: int) -> pb.ProcessEvent:
    """An end as E2B words it: its daemon is a Go program."""
    if code < 0:
        description = (signals.strsignal(-code) or f"signal {-code}").lower()
        status, exit_code = f"signal: {description}", -1
    else:
        status, exit_code = f"exit status {code}", code
    message = pb.ProcessEvent.EndEvent(exit_code=exit_code, exited=code >= 0, status=status)
    if code != 0:
        message.error = status
    end: Oneof[Literal["end"], pb.ProcessEvent.EndEvent] = Oneof("end", message)
    return pb.ProcessEvent(event=end)


def _info(command: Command) -> pb.ProcessInfo:
    config = pb.ProcessConfig(cmd=command.argv[0], args=command.argv[1:], envs=command.envs)
    if command.cwd is not None:
        config.cwd = command.cwd
    info = pb.ProcessInfo(pid=command.pid, config=config)
    if command.tag is not None:
        info.tag = command.tag
    return info
