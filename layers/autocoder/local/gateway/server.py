"""The gateway's server: who asks is told here, and whether a scenario or Anthropic answers."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from autocoder.local.gateway.asker import Askers, Lookup, parsed, placed, read_body
from autocoder.local.gateway.errors import RefusedError
from autocoder.local.gateway.forward import Forward, Upstream
from autocoder.local.gateway.messages import StoredMessages
from autocoder.local.gateway.replay import EndSandbox, Replay

MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
LOG_BYTES = 64 << 20
AT_ONCE = 16  # requests of one sandbox: each may hold a body in memory
NO_MODEL = (
    "No scenario answers for task {task}, and there is no key for a model: end the local cloud, "
    "export ANTHROPIC_API_KEY, and start it again."
)


class Gateway:
    """Answers Claude Code and the planner."""

    def __init__(
        self, lookup: Lookup, end_sandbox: EndSandbox, state_dir: Path, upstream: Upstream | None
    ) -> None:
        """Without `upstream` only tasks that have a scenario are answered."""
        self.askers = Askers(lookup, state_dir)
        self.replay = Replay(state_dir, end_sandbox)
        messages = StoredMessages(state_dir)
        self.forward = Forward(upstream, messages.read) if upstream else None
        self.log, self.noted = state_dir / "gateway.jsonl", 0

    async def messages(self, request: Request) -> Response:
        """Answer POST /v1/messages."""
        asker = self.askers.who(request)
        entry: dict[str, Any] = {"user_agent": request.headers.get("user-agent", "")[:200]}
        try:
            body = await read_body(request)
            content = parsed(body)
            asker = placed(asker, content)
            entry |= {"task": asker.task, "run": asker.run, "step": asker.step}
            if scenario := self.replay.scenario(asker.task):
                answer = await self.replay.answer(asker, content, scenario)
                entry["status"] = 200
            elif self.forward:
                answer = await self.forward.paid(request, asker, body, content)
                entry["forwarded"] = True  # the recording has the status
            else:
                raise RefusedError(403, NO_MODEL.format(task=asker.task))
        except RefusedError as refused:
            self.note({**entry, "status": refused.status})
            raise
        self.note(entry)
        return answer

    async def free(self, request: Request) -> Response:
        """Answer what costs nothing: which models there are, and how many tokens a text has."""
        asker, body = self.askers.who(request), await read_body(request)
        if not MODEL_ID.fullmatch(request.path_params.get("model", "any")):
            raise RefusedError(404, "There is no such model.")
        if self.forward and not (asker.task and self.replay.scenario(asker.task)):
            return self.forward.free(request, asker, body)
        if request.url.path == "/v1/models":  # whoever sees it has a token that is good
            return JSONResponse({"data": [], "has_more": False})
        raise RefusedError(404, "A scenario has no answer to this.")

    def note(self, entry: dict[str, Any]) -> None:
        """Keep a line on every request, as long as there is room for it."""
        line = json.dumps(entry) + "\n"
        self.noted += len(line)
        if self.noted <= LOG_BYTES:
            with self.log.open("a") as log:
                log.write(line)


class AtOnce:
    """Lets only so many requests of one token in at a time; the CLI tries the others again."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` is what they are let into."""
        self.app = app
        self.open: Counter[bytes] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request as long as it is open."""
        headers = dict(scope.get("headers", ()))
        token = headers.get(b"x-api-key") or headers.get(b"authorization", b"")
        if self.open[token] >= AT_ONCE:
            refused = RefusedError(429, f"At most {AT_ONCE} requests of a sandbox at a time.")
            await refused.response()(scope, receive, send)
            return
        self.open[token] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.open[token] -= 1
            if not self.open[token]:
                del self.open[token]


async def hello(request: Request) -> Response:
    """Answer the CLI's question whether anybody is there."""
    return Response(status_code=200)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer in the Messages API's form, also a path that is not served, and a fault here."""
    if isinstance(error, RefusedError):
        return error.response()
    if isinstance(error, HTTPException):
        what = f"{request.method} {request.url.path} is not served here."
        return RefusedError(error.status_code, what).response()
    return RefusedError(500, f"The gateway failed ({type(error).__name__}).").response()


def create_app(
    lookup: Lookup, end_sandbox: EndSandbox, state_dir: Path, upstream: Upstream | None = None
) -> Starlette:
    """Make the gateway; `lookup` gives the sandbox that a token belongs to."""
    gateway = Gateway(lookup, end_sandbox, state_dir, upstream)

    @asynccontextmanager
    async def open_as_long_as_served(app: Starlette) -> AsyncIterator[None]:
        yield
        if gateway.forward:
            await gateway.forward.client.aclose()

    return Starlette(
        routes=[
            Route("/v1/messages", gateway.messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", gateway.free, methods=["POST"]),
            Route("/v1/models", gateway.free, methods=["GET"]),
            Route("/v1/models/{model}", gateway.free, methods=["GET"]),
            Route("/api/hello", hello, methods=["GET", "HEAD"]),
        ],
        lifespan=open_as_long_as_served,
        middleware=[Middleware(AtOnce)],
        exception_handlers={RefusedError: refuse, HTTPException: refuse, Exception: refuse},
    )
