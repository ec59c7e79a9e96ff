"""E2B's filesystem service: everything about files but their content."""

from __future__ import annotations

from typing import Any

from connectrpc.request import RequestContext
from e2b.envd.filesystem import filesystem_connect
from e2b.envd.filesystem import filesystem_pb as pb
from protobuf.wkt.google.protobuf.timestamp_pb import Timestamp

from autocoder.local.sandboxes.errors import as_connect_errors, unimplemented
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.routing import check_user, sandbox_of

Context = RequestContext[Any, Any]

_TYPES = {"file": pb.FileType.FILE, "dir": pb.FileType.DIRECTORY}
_WATCHING = "watching a folder"


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

    def watch_dir(self, request: pb.WatchDirRequest, ctx: Context, /) -> Any:
        raise unimplemented(_WATCHING)

    async def create_watcher(
        self, request: pb.CreateWatcherRequest, ctx: Context, /
    ) -> pb.CreateWatcherResponse:
        raise unimplemented(_WATCHING)


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
