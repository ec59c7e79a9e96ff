"""Which sandbox a request is for: one server answers for all of them."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autocoder.local.sandboxes.errors import SANDBOX_NOT_FOUND, error_response, unavailable
from autocoder.local.sandboxes.fleet import Fleet
from autocoder.local.sandboxes.sandbox import Sandbox

_ID = "e2b-sandbox-id"
_KEEPALIVE = "keepalive-ping-interval"
_KEEPALIVE_SECONDS = 90.0
USER = "user"


class WithApiKey:
    """Any key will do, but there must be one: no web page can send this header to loopback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-api-key")
        app = self._app if given else error_response(401, "the API key is missing")
        await app(scope, receive, send)


class ForLiveSandbox:
    """Answers for sandboxes that are gone as E2B's proxy does, and checks the access token."""

    def __init__(self, app: ASGIApp, fleet: Fleet) -> None:
        self._app = app
        self._fleet = fleet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) or await self._wake(scope)
        if problem:
            await read_to_its_end(receive)
        await (problem or self._app)(scope, receive, send)

    def _problem(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        sandbox = self._fleet.find(headers.get(_ID, ""))
        if b"signature=" in scope["query_string"]:
            return error_response(501, unavailable("signed URLs of files"))
        if sandbox is None:
            return error_response(502, SANDBOX_NOT_FOUND)
        if not secrets.compare_digest(
            headers.get("x-access-token", "").encode(), sandbox.access_token.encode()
        ):
            return error_response(401, "the sandbox's access token is missing or wrong")
        return None

    async def _wake(self, scope: Scope) -> Response | None:
        """A paused sandbox is as good as gone, unless it is to go on when somebody asks for it."""
        sandbox = self._fleet.find(Headers(scope=scope).get(_ID, ""))
        if sandbox is None or (sandbox.is_paused and not sandbox.order.resume_on_request):
            return error_response(502, SANDBOX_NOT_FOUND)
        await self._fleet.resume(sandbox, sandbox.order.timeout)
        return None


async def read_to_its_end(receive: Receive) -> None:
    """Read a request that is refused: one who still sends when we close never sees the answer."""
    while (await receive()).get("more_body"):
        continue


def sandbox_of(fleet: Fleet, ctx: RequestContext[Any, Any]) -> Sandbox:
    """The sandbox that an RPC is for; it may have ended since the request was let in."""
    sandbox = fleet.find_running(ctx.request_headers.get(_ID, ""))
    if sandbox is None:
        raise ConnectError(Code.UNAVAILABLE, SANDBOX_NOT_FOUND)
    return sandbox


def keepalive_seconds(ctx: RequestContext[Any, Any]) -> float:
    """How often a stream shows that it lives; only then is it noticed that its caller is gone."""
    return float(ctx.request_headers.get(_KEEPALIVE, _KEEPALIVE_SECONDS))


def sandbox_named(fleet: Fleet, headers: Headers) -> Sandbox | None:
    return fleet.find_running(headers.get(_ID, ""))


def problem_with(user: str) -> tuple[int, Code, str] | None:
    """Why a request can't be done as this user: local sandboxes have a single one."""
    if user == USER:
        return None
    if user == "root":
        return 501, Code.UNIMPLEMENTED, unavailable(f"the user 'root': all is done as {USER!r}")
    return 401, Code.UNAUTHENTICATED, f"invalid username: {user!r}"


def check_user(ctx: RequestContext[Any, Any]) -> None:
    authorization = ctx.request_headers.get("authorization", "")
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        return
    name = base64.b64decode(credentials).decode().partition(":")[0]
    if problem := problem_with(name):
        raise ConnectError(problem[1], problem[2])
