"""The content of files: downloads and uploads, in chunks, whatever their size."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import zlib
from collections.abc import AsyncIterator
from io import FileIO
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from autocoder.local.sandboxes.channel import AgentError, SandboxGoneError
from autocoder.local.sandboxes.errors import (
    SANDBOX_NOT_FOUND,
    error_response,
    http_error,
    unavailable,
)
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.routing import USER, problem_with, read_to_its_end, sandbox_named
from autocoder.local.sandboxes.sandbox import Sandbox

_CHUNK = 1 << 18


class Files:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def endpoint(self, request: Request) -> Response:
        """GET reads one file, POST writes one or more."""
        sandbox = sandbox_named(self._fleet, request.headers)
        if sandbox is None:
            return error_response(502, SANDBOX_NOT_FOUND)
        if problem := _problem(request):
            await read_to_its_end(request.receive)
            return problem
        try:
            if request.method == "GET":
                return await _download(sandbox, request)
            return await _upload(sandbox, request)
        except AgentError as error:
            return http_error(error)
        except OSError as error:
            return http_error(AgentError(errno.errorcode.get(error.errno or 0, "EIO"), str(error)))
        except SandboxGoneError:
            return error_response(502, SANDBOX_NOT_FOUND)


def _problem(request: Request) -> Response | None:
    if problem := problem_with(request.query_params.get("username", USER)):
        return error_response(problem[0], problem[2])
    if any(name.startswith("x-metadata-") for name in request.headers):
        return error_response(501, unavailable("metadata of files"))
    return None


async def _download(sandbox: Sandbox, request: Request) -> Response:
    _, fd = await _open(sandbox, "open_read", request.query_params.get("path", ""))
    # Without a length: the file may grow while it is read.
    file = os.fdopen(fd, "rb", buffering=0)
    return StreamingResponse(_read(file), media_type="application/octet-stream")


async def _read(file: FileIO) -> AsyncIterator[bytes]:
    with file:
        while data := await asyncio.to_thread(file.read, _CHUNK):
            yield data


async def _upload(sandbox: Sandbox, request: Request) -> Response:
    path = request.query_params.get("path")
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return JSONResponse(await _upload_form(sandbox, request, path))
    if path is None:
        return error_response(400, "the path of the file is missing")
    return JSONResponse([await _write(sandbox, path, _body(request))])


async def _upload_form(
    sandbox: Sandbox, request: Request, path: str | None
) -> list[dict[str, Any]]:
    """Each part is a file; its name is the path, unless the request names the path."""
    written = []
    async with request.form(max_files=10_000) as form:
        for part in form.getlist("file"):
            if isinstance(part, UploadFile):
                # The only escape that HTTP clients use in a part's name.
                target = path or (part.filename or "").replace("%22", '"')
                written.append(await _write(sandbox, target, _part(part)))
    return written


async def _part(part: UploadFile) -> AsyncIterator[bytes]:
    while data := await part.read(_CHUNK):
        yield data


async def _body(request: Request) -> AsyncIterator[bytes]:
    if request.headers.get("content-encoding") != "gzip":
        async for data in request.stream():
            yield data
        return
    unzip = zlib.decompressobj(wbits=31)
    async for data in request.stream():
        while data:  # a bounded piece at a time: a small upload may hold a huge file
            yield unzip.decompress(data, _CHUNK)
            data = unzip.unconsumed_tail
    yield unzip.flush()


async def _write(sandbox: Sandbox, path: str, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
    written, fd = await _open(sandbox, "open_write", path)
    try:
        async for chunk in chunks:
            if chunk:
                await asyncio.to_thread(_write_all, fd, chunk)
    finally:
        os.close(fd)
    return written


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def _open(sandbox: Sandbox, op: str, path: str) -> tuple[dict[str, Any], int]:
    """A regular file. The agent checked that too, but nothing in a sandbox is to be trusted."""
    result, fd = await sandbox.open(op, path)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise AgentError("EINVAL", f"not a regular file: {path}")
    return result, fd
