"""The control plane: create, connect, list, look at, pause, extend and kill sandboxes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from autocoder.local.sandboxes.errors import error_response, unavailable
from autocoder.local.sandboxes.fleet import Fleet, Host, matches
from autocoder.local.sandboxes.policy import find_unsupported
from autocoder.local.sandboxes.routing import WithApiKey
from autocoder.local.sandboxes.sandbox import Order, Sandbox

ENVD_VERSION = "0.6.7"
"""The version of E2B's in-sandbox daemon that this server speaks like."""

_DEFAULT_TIMEOUT = 300
_LONGEST_TIMEOUT = 24 * 3600
_PAGE = 100

_WITHOUT_MEMORY = "pausing without the memory, and rebooting"
_SUPPORTED = (
    *("templateID", "timeout", "metadata", "envVars", "network", "allow_internet_access"),
    *("autoPause", "autoPauseMemory", "autoResume"),
)


class BadRequestError(Exception):
    """The caller's mistake; the message is for them."""


class NotFoundError(Exception):
    """There is no such sandbox, or none that runs."""


class Api:
    """The REST half of E2B's API, over one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def routes(self) -> list[Route]:
        one = "/sandboxes/{sandbox_id}"
        table = [
            ("POST", "/v2/sandboxes", self._create),
            ("GET", "/v2/sandboxes", self._list),
            ("POST", f"/v2{one}/connect", self._connect),
            ("GET", one, self._info),
            ("DELETE", one, self._kill),
            ("POST", f"{one}/pause", self._pause),
            ("POST", f"{one}/timeout", self._set_timeout),
            ("PUT", f"{one}/network", self._set_network),
        ]
        keyed = [Middleware(WithApiKey)]
        return [
            Route(path, endpoint, methods=[method], middleware=keyed)
            for method, path, endpoint in table
        ]

    async def _create(self, request: Request) -> Response:
        body = await _body(request)
        for name, value in body.items():
            if value and name not in _SUPPORTED:
                return error_response(501, unavailable(f"a sandbox's {name}"))
        if problem := find_unsupported(body.get("network")):
            return error_response(501, unavailable(problem))
        if body.get("autoPauseMemory") is False:
            return error_response(501, unavailable(_WITHOUT_MEMORY))
        order = Order(
            template=str(body.get("templateID", "base")),
            timeout=_timeout(body),
            metadata=_strings(body, "metadata"),
            envs=_strings(body, "envVars"),
            network=body.get("network"),
            allow_internet_access=body.get("allow_internet_access"),
            pause_on_timeout=bool(body.get("autoPause")),
            resume_on_request=bool((body.get("autoResume") or {}).get("enabled")),
        )
        sandbox = await self._fleet.create(order, request.headers.get("idempotency-key"))
        return JSONResponse(_as_created(sandbox), 201)

    async def _connect(self, request: Request) -> Response:
        sandbox = self._find(request)
        body = await _body(request)
        if body.get("memory") is False:
            return error_response(501, unavailable(_WITHOUT_MEMORY))
        timeout = _timeout(body)
        if await self._fleet.resume(sandbox, timeout):
            return JSONResponse(_as_created(sandbox), 201)
        if sandbox.end_at < datetime.now(UTC) + timedelta(seconds=timeout):
            self._fleet.set_timeout(sandbox, timeout)  # connecting never shortens a life
        return JSONResponse(_as_created(sandbox))

    async def _info(self, request: Request) -> Response:
        sandbox = self._find(request)
        network = {"network": sandbox.network} if sandbox.network else {}
        return JSONResponse(
            {
                **_as_listed(sandbox, self._fleet.host),
                **network,
                "envdAccessToken": sandbox.access_token,
                "allowInternetAccess": sandbox.order.allow_internet_access,
                "lifecycle": {
                    "onTimeout": "pause" if sandbox.order.pause_on_timeout else "kill",
                    "autoResume": sandbox.order.resume_on_request,
                },
            }
        )

    async def _kill(self, request: Request) -> Response:
        await self._fleet.kill(self._find(request))
        return Response(status_code=204)

    async def _pause(self, request: Request) -> Response:
        sandbox = self._find(request)
        if (await _body(request)).get("memory") is False:
            return error_response(501, unavailable(_WITHOUT_MEMORY))
        if not await self._fleet.pause(sandbox):
            return error_response(409, f"sandbox {sandbox.id} is paused already")
        return Response(status_code=204)

    async def _set_timeout(self, request: Request) -> Response:
        sandbox = self._find_running(request)
        self._fleet.set_timeout(sandbox, _timeout(await _body(request)))
        return Response(status_code=204)

    async def _set_network(self, request: Request) -> Response:
        sandbox = self._find_running(request)
        network = await _body(request)
        if problem := find_unsupported(network):
            return error_response(501, unavailable(problem))
        sandbox.set_network(network)
        return Response(status_code=204)

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        limit = _number(query, "limit", _PAGE)
        newest_first = query.get("order", "desc") == "desc"
        found = sorted(self._select(request), key=lambda x: x.number, reverse=newest_first)
        if "nextToken" in query:
            last = _number(query, "nextToken", 0)
            found = [x for x in found if (x.number < last if newest_first else x.number > last)]
        page = found[:limit]
        more = {"x-next-token": str(page[-1].number)} if len(found) > limit else {}
        return JSONResponse([_as_listed(x, self._fleet.host) for x in page], headers=more)

    def _select(self, request: Request) -> list[Sandbox]:
        query = request.query_params
        # The SDK quotes keys and values, and then encodes the whole: hence twice.
        pairs = parse_qsl(query.get("metadata", ""), keep_blank_values=True)
        metadata = {unquote(key): unquote(value) for key, value in pairs}
        found = [x for x in self._fleet.all() if matches(x, metadata)]
        if "state" in query:
            found = [x for x in found if _state(x) in query["state"].split(",")]
        if template := query.get("template"):
            found = [x for x in found if x.order.template == template]
        if started_after := query.get("startedAfter"):
            moment = _moment(started_after)
            found = [x for x in found if x.started_at >= moment]
        return found

    def _find(self, request: Request) -> Sandbox:
        return _found(request, self._fleet.find)

    def _find_running(self, request: Request) -> Sandbox:
        return _found(request, self._fleet.find_running)


def _found(request: Request, find: Callable[[str], Sandbox | None]) -> Sandbox:
    sandbox_id = request.path_params["sandbox_id"]
    if sandbox := find(sandbox_id):
        return sandbox
    raise NotFoundError(f"sandbox {sandbox_id} not found")


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError("the body is not a JSON object")
    return body


def _timeout(body: dict[str, Any]) -> int:
    timeout = body.get("timeout", _DEFAULT_TIMEOUT)
    if not isinstance(timeout, int) or not 0 <= timeout <= _LONGEST_TIMEOUT:
        raise BadRequestError(f"timeout must be 0 to {_LONGEST_TIMEOUT} seconds, not {timeout!r}")
    return timeout


def _number(query: QueryParams, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise BadRequestError(f"{name} must be a number from 1 on, not {text!r}")
    return int(text)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(f"startedAfter must be an ISO 8601 time, not {text!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _strings(body: dict[str, Any], name: str) -> dict[str, str]:
    value = body.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(x, str) for x in value.values()):
        raise BadRequestError(f"{name} must map strings to strings")
    return value


def _state(sandbox: Sandbox) -> str:
    return "paused" if sandbox.is_paused else "running"


def _as_created(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "sandboxID": sandbox.id,
        "templateID": sandbox.order.template,
        "clientID": "local",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": sandbox.access_token,
    }


def _as_listed(sandbox: Sandbox, host: Host) -> dict[str, Any]:
    return {
        "sandboxID": sandbox.id,
        "templateID": sandbox.order.template,
        "clientID": "local",
        "startedAt": sandbox.started_at.isoformat(),
        "endAt": sandbox.end_at.isoformat(),
        "envdVersion": ENVD_VERSION,
        "metadata": sandbox.order.metadata,
        "state": _state(sandbox),
        "cpuCount": 2,
        "memoryMB": host.memory_mb,
        "diskSizeMB": host.disk_mb,
    }
