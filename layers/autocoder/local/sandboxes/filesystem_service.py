"""E2B's filesystem service: everything about files but their content."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from e2b.envd.filesystem import filesystem_connect
from e2b.envd.filesystem import filesystem_pb as pb
from protobuf import Oneof
from protobuf.wkt.google.protobuf.timestamp_pb import Timestamp

from autocoder.local.sandboxes.channel import AgentError
from autocoder.local.sandboxes.errors import as_connect_errors, unimplemented
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.routing import check_user, keepalive_seconds, sandbox_of
from autocoder.local.sandboxes.sandbox import Sandbox
from autocoder.local.sandboxes.watching import Change, Watch

Context = RequestContext[Any, Any]

_TYPES = {"file": pb.FileType.FILE, "dir": pb.FileType.DIRECTORY}
_KINDS = {
    "create": pb.EventType.CREATE,
    "write": pb.EventType.WRITE,
    "remove": pb.EventType.REMOVE,
    "rename": pb.EventType.RENAME,
    "chmod": pb.EventType.CHMOD,
}


class FilesystemService(filesystem_connect.Filesystem):
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def _ask(self, ctx: Context, op: str, **args: Any) -> Any:
        sandbox = sandbox_of(self._fleet, ctx)
        check_user(ctx)
        with as_connect_errors():
            return await sandbox.ask(op, **args)

    async def stat(self, request: pb.StatRequest, ctx: Context, /) -> pb.StatResponse:
        return pb.StatResponse(entry=_entry(await self._ask(ctx, "stat", path=request.path)))

    async def make_dir(self, request: pb.MakeDirRequest, ctx: Context, /) -> pb.MakeDirResponse:
        entry = await self._ask(ctx, "make_dir", path=request.path)
        return pb.MakeDirResponse(entry=_entry(entry))

    async def move(self, request: pb.MoveRequest, ctx: Context, /) -> pb.MoveResponse:
        entry = await self._ask(ctx, "move", source=request.source, destination=request.destination)
        return pb.MoveResponse(entry=_entry(entry))

    async def list_dir(self, request: pb.ListDirRequest, ctx: Context, /) -> pb.ListDirResponse:
        entries = await self._ask(ctx, "list_dir", path=request.path, depth=request.depth)
        return pb.ListDirResponse(entries=[_entry(entry) for entry in entries])

    async def remove(self, request: pb.RemoveRequest, ctx: Context, /) -> pb.RemoveResponse:
        await self._ask(ctx, "remove", path=request.path)
        return pb.RemoveResponse()

    async def watch_dir(
        self, request: pb.WatchDirRequest, ctx: Context, /
    ) -> AsyncIterator[pb.WatchDirResponse]:
        sandbox, watch = await self._watch(request, ctx)
        try:
            yield _start_event()
            while True:
                try:
                    with as_connect_errors():
                        async with asyncio.timeout(keepalive_seconds(ctx)):
                            changes = await watch.wait_for_changes()
                except TimeoutError:
                    yield _keepalive_event()
                    continue
                for event in await _described(sandbox, watch, changes):
                    yield _change_event(event)
        finally:
            await watch.stop()

    async def create_watcher(
        self, request: pb.CreateWatcherRequest, ctx: Context, /
    ) -> pb.CreateWatcherResponse:
        sandbox, watch = await self._watch(request, ctx)
        number = secrets.token_hex(8)
        sandbox.watches[number] = watch
        return pb.CreateWatcherResponse(watcher_id=number)

    async def get_watcher_events(
        self, request: pb.GetWatcherEventsRequest, ctx: Context, /
    ) -> pb.GetWatcherEventsResponse:
        sandbox = sandbox_of(self._fleet, ctx)
        watch = _known(sandbox.watches.get(request.watcher_id), request.watcher_id)
        with as_connect_errors():
            events = await _described(sandbox, watch, watch.changes())
        return pb.GetWatcherEventsResponse(events=events)

    async def remove_watcher(
        self, request: pb.RemoveWatcherRequest, ctx: Context, /
    ) -> pb.RemoveWatcherResponse:
        sandbox = sandbox_of(self._fleet, ctx)
        watch = _known(sandbox.watches.pop(request.watcher_id, None), request.watcher_id)
        await watch.stop()
        return pb.RemoveWatcherResponse()

    async def _watch(
        self, request: pb.WatchDirRequest | pb.CreateWatcherRequest, ctx: Context
    ) -> tuple[Sandbox, Watch]:
        if sys.platform != "linux":
            raise unimplemented("watching a folder on this system")
        sandbox = sandbox_of(self._fleet, ctx)
        check_user(ctx)
        with as_connect_errors():
            watch = await sandbox.watch(
                request.path, recursive=request.recursive, with_entries=request.include_entry
            )
        return sandbox, watch


def _known(watch: Watch | None, number: str) -> Watch:
    if watch is None:
        raise ConnectError(Code.NOT_FOUND, f"watcher {number!r} not found")
    return watch


async def _described(
    sandbox: Sandbox, watch: Watch, changes: list[Change]
) -> list[pb.FilesystemEvent]:
    events = []
    for change in changes:
        event = pb.FilesystemEvent(name=change.name, type=_KINDS.get(change.kind))
        if watch.with_entries:
            with contextlib.suppress(AgentError):  # it is no longer there
                path = f"{watch.folder}/{change.name}"
                event.entry = _entry(await sandbox.ask("stat", path=path))
        events.append(event)
    return events


def _start_event() -> pb.WatchDirResponse:
    start: Oneof[Literal["start"], pb.WatchDirResponse.StartEvent]
    start = Oneof("start", pb.WatchDirResponse.StartEvent())
    return pb.WatchDirResponse(event=start)


def _keepalive_event() -> pb.WatchDirResponse:
    keepalive: Oneof[Literal["keepalive"], pb.WatchDirResponse.KeepAlive]
    keepalive = Oneof("keepalive", pb.WatchDirResponse.KeepAlive())
    return pb.WatchDirResponse(event=keepalive)


def _change_event(event: pb.FilesystemEvent) -> pb.WatchDirResponse:
    change: Oneof[Literal["filesystem"], pb.FilesystemEvent] = Oneof("filesystem", event)
    return pb.WatchDirResponse(event=change)


def _entry(entry: dict[str, Any]) -> pb.EntryInfo:
    seconds, nanos = divmod(entry["mtime_ns"], 1_000_000_000)
    info = pb.EntryInfo(
        name=entry["name"],
        path=entry["path"],
        type=_TYPES.get(entry["type"], pb.FileType.UNSPECIFIED),
        is_symlink=entry["is_symlink"],
        size=entry["size"],
        mode=entry["mode"],
        permissions=entry["permissions"],
        owner=entry["owner"],
        group=entry["group"],
        modified_time=Timestamp(seconds=seconds, nanos=nanos),
    )
    if entry["symlink_target"] is not None:
        info.symlink_target = entry["symlink_target"]
    return info
