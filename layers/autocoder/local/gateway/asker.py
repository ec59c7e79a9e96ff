"""Who asks, and for what: the task by the token, the run by the newest prompt's heading."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request

from autocoder.local.gateway.errors import RefusedError
from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.prompts import HEADING_PATTERN, PLAN_HEADING_PATTERN
from autocoder.task import attempt_of

PLANNER_FILE = "planner-token"  # in the state folder: what the planner is known by here
REQUEST_BYTES = 32 << 20  # Anthropic takes no more either

Lookup = Callable[[str], SandboxIdentity | None]


@dataclass(frozen=True)
class Asker:
    """A request's origin. Run 0 is the planner's; None is a conversation without our prompt."""

    token: str
    sandbox_id: str = ""
    home: str = ""
    task: str = ""
    attempt: int = 0  # the planner's is not known
    run: int | None = None
    step: int = 0

    @property
    def is_planner(self) -> bool:
        """The planner asks from a function, an agent from a sandbox."""
        return not self.sandbox_id


class Askers:
    """Tells askers by their tokens."""

    def __init__(self, lookup: Lookup, state_dir: Path) -> None:
        """`lookup` gives the sandbox that a token belongs to."""
        self.lookup = lookup
        self.planner_token = new_planner_token(state_dir)

    def who(self, request: Request) -> Asker:
        """Know the asker, or refuse."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        token = request.headers.get("x-api-key") or bearer
        if secrets.compare_digest(token.encode(), self.planner_token.encode()):
            return Asker(token)
        identity = self.lookup(token)
        if identity is None:
            raise RefusedError(403, "This token belongs to no sandbox that is running.")
        task, attempt = attempt_of(identity.metadata.get("autocoder_attempt", "")) or ("", 0)
        return Asker(token, identity.sandbox_id, identity.home, task, attempt)


def placed(asker: Asker, body: dict[str, Any]) -> Asker:
    """Find the run and the step that are asked for; the planner names its task, too."""
    messages = [m for m in as_list(body.get("messages")) if isinstance(m, dict)]
    if asker.is_planner:
        for entry in messages:
            if found := PLAN_HEADING_PATTERN.match(text_of(entry)):
                return replace(asker, task=found[1], run=0)
        raise RefusedError(400, "No task of Autocoder's is named in this request for a plan.")
    answers = 0
    for entry in reversed(messages):
        if entry.get("role") == "assistant":
            answers += 1
        elif found := HEADING_PATTERN.search(text_of(entry)):
            return replace(asker, run=int(found[1]), step=answers)
    return asker


async def read_body(request: Request) -> bytes:
    """Read a request that is not larger than Anthropic takes."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > REQUEST_BYTES:
                raise RefusedError(413, f"The request is larger than {REQUEST_BYTES} bytes.")
    except ClientDisconnect:
        raise RefusedError(400, "The request was not sent to its end.") from None
    return bytes(body)


def parsed(body: bytes) -> dict[str, Any]:
    """Read a body as one JSON object."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "The request's body is not valid JSON.") from None
    if not isinstance(content, dict):
        raise RefusedError(400, "The request's body is not a JSON object.")
    return content


def text_of(entry: dict[str, Any]) -> str:
    """The text that a message holds, without the results of tools: those are not prompts."""
    content = entry.get("content")
    if isinstance(content, str):
        return content
    blocks = [b for b in as_list(content) if isinstance(b, dict)]
    return "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def as_list(value: Any) -> list[Any]:
    """Take a value of a request as a list, or as an empty one."""
    return value if isinstance(value, list) else []


def new_planner_token(state_dir: Path) -> str:
    """Make the token by which the planner is known here, for the cloud to put into its secret."""
    path = state_dir / PLANNER_FILE
    path.touch(mode=0o600)
    path.write_text(token := secrets.token_urlsafe(32))
    return token
