"""The HTTP server: the control plane, and every sandbox's own API, on one port."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from e2b.envd.filesystem.filesystem_connect import FilesystemASGIApplication
from e2b.envd.process.process_connect import ProcessASGIApplication
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from autocoder.local.sandboxes.account import Account
from autocoder.local.sandboxes.api import Api, BadRequestError, NotFoundError
from autocoder.local.sandboxes.channel import SandboxGoneError
from autocoder.local.sandboxes.errors import error_response, unavailable
from autocoder.local.sandboxes.files import Files
from autocoder.local.sandboxes.filesystem_service import FilesystemService
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.process_service import ProcessService
from autocoder.local.sandboxes.routing import ForLiveSandbox

_log = logging.getLogger(__name__)
_SHUTDOWN_SECONDS = 3


def create_app(fleet: Fleet) -> Starlette:
    """The application that the unmodified SDK talks to."""
    processes = ProcessASGIApplication(ProcessService(fleet))
    filesystem = FilesystemASGIApplication(FilesystemService(fleet))
    live = [Middleware(ForLiveSandbox, fleet=fleet)]
    in_sandbox: list[BaseRoute] = [
        Mount(processes.path, processes, middleware=live),
        Mount(filesystem.path, filesystem, middleware=live),
        Route("/files", Files(fleet).endpoint, methods=["GET", "POST"], middleware=live),
        Route("/health", _healthy, methods=["GET"], middleware=live),
    ]
    return Starlette(
        routes=[*in_sandbox, *Api(fleet).routes(), *Account().routes()],
        exception_handlers={
            HTTPException: _no_such_call,
            BadRequestError: _bad_request,
            NotFoundError: _not_found,
            SandboxGoneError: _gone,
            Exception: _failed,
        },
    )


async def _healthy(request: Request) -> Response:
    return Response(status_code=204)


async def _no_such_call(request: Request, error: Exception) -> Response:
    return error_response(501, unavailable(f"{request.method} {request.url.path}"))


async def _bad_request(request: Request, error: Exception) -> Response:
    return error_response(400, str(error))


async def _not_found(request: Request, error: Exception) -> Response:
    return error_response(404, str(error))


async def _gone(request: Request, error: Exception) -> Response:
    return error_response(404, "the sandbox ended meanwhile")


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, f"{type(error).__name__}: {error}")


class Server(uvicorn.Server):
    """A uvicorn server on a loopback port that the system chooses; its owner handles signals."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            timeout_keep_alive=60,
        )
        super().__init__(config)
        self._listener = listener

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_until_told(self) -> None:
        await self.serve(sockets=[self._listener])


def loopback_listener() -> socket.socket:
    # The protocol is named because asyncio sets TCP_NODELAY only where it sees it.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"http://{host}:{port}"
