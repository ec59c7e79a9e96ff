"""An E2B account, as far as setting one up needs it: secrets, and templates.

A secret's value is not kept: the gateway has the model's key. A template is known by its name and
tags and nothing is built: every local sandbox has the same tools. The build's log says so.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from autocoder.local.sandboxes.errors import error_response
from autocoder.local.sandboxes.routing import WithApiKey

_BUILT = "Nothing is built in the local cloud: its sandboxes bring their own tools."


class Account:
    """What a team has besides its sandboxes."""

    def __init__(self) -> None:
        self._secrets: dict[str, dict[str, Any]] = {}
        self._templates: dict[str, dict[str, Any]] = {}

    def routes(self) -> list[Route]:
        secret, template = "/secrets/{name:path}", "/templates/{name}"
        table = [
            ("POST", "/secrets", self._create_secret),
            ("GET", secret, self._secret),
            ("POST", secret, self._update_secret),
            ("POST", "/v3/templates", self._request_build),
            ("POST", f"/v2{template}/builds/{{build}}", self._start_build),
            ("GET", f"{template}/builds/{{build}}/status", self._build_status),
            ("GET", "/templates/aliases/{name}", self._template),
            ("GET", f"{template}/tags", self._tags),
        ]
        keyed = [Middleware(WithApiKey)]
        return [Route(path, call, methods=[verb], middleware=keyed) for verb, path, call in table]

    async def _create_secret(self, request: Request) -> Response:
        body = await request.json()
        name = str(body.get("name", ""))
        if not name or not body.get("value"):
            return error_response(400, "a secret needs a name and a value")
        if name in self._secrets:
            return error_response(409, f"secret {name} exists")
        self._secrets[name] = {
            "secretID": str(uuid.uuid4()),
            "name": name,
            "currentVersion": 1,
            "metadata": body.get("metadata") or {},
            "createdAt": _now(),
            "updatedAt": _now(),
        }
        return JSONResponse(self._secrets[name], 201)

    async def _secret(self, request: Request) -> Response:
        found = self._secrets.get(request.path_params["name"])
        return JSONResponse(found) if found else error_response(404, "no such secret")

    async def _update_secret(self, request: Request) -> Response:
        found = self._secrets.get(request.path_params["name"])
        if found is None:
            return error_response(404, "no such secret")
        if not (await request.json()).get("value"):
            return error_response(400, "a secret needs a value")
        found |= {"currentVersion": found["currentVersion"] + 1, "updatedAt": _now()}
        return JSONResponse(found)

    async def _request_build(self, request: Request) -> Response:
        body = await request.json()
        name = str(body.get("name", ""))
        if not name:
            return error_response(400, "a template needs a name")
        template = self._templates.setdefault(name, {"id": uuid.uuid4().hex[:20], "tags": {}})
        build, tags = str(uuid.uuid4()), body.get("tags") or ["default"]
        template["tags"] |= {tag: {"buildID": build, "createdAt": _now()} for tag in tags}
        answer = {"templateID": template["id"], "buildID": build, "public": False}
        return JSONResponse({**answer, "names": [name], "aliases": [name], "tags": tags}, 202)

    async def _start_build(self, request: Request) -> Response:
        steps = (await request.json()).get("steps")
        return Response(status_code=202) if steps else error_response(400, "a build needs steps")

    async def _build_status(self, request: Request) -> Response:
        entries = [{"timestamp": _now(), "level": "info", "message": _BUILT}]
        told = int(request.query_params.get("logsOffset", 0))
        status = {"templateID": request.path_params["name"], "status": "ready", "logs": []}
        build = request.path_params["build"]
        return JSONResponse({**status, "buildID": build, "logEntries": entries[told:]})

    async def _template(self, request: Request) -> Response:
        found = self._templates.get(request.path_params["name"])
        if found is None:
            return error_response(404, "no such template")
        return JSONResponse({"templateID": found["id"], "public": False})

    async def _tags(self, request: Request) -> Response:
        found = self._templates.get(request.path_params["name"])
        if found is None:
            return error_response(404, "no such template")
        return JSONResponse([{"tag": tag, **build} for tag, build in found["tags"].items()])


def _now() -> str:
    return datetime.now(UTC).isoformat()
