"""The model on loopback: answers Claude Code and the planner from a scenario, without any key.

It is stateless but for errors that are answered once: the task is known by the sandbox's token, the
run by the newest prompt's heading, the step by the number of answers since. So retries, resumed
sessions and restored sandboxes need no care here. The planner has a token of its own, and names the
task in its prompt's heading; in the log its request is step 0 of run 0.
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.local.scenario import Scenario, Step
from autocoder.prompts import HEADING_PATTERN, PLAN_HEADING_PATTERN

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}

PLANNER_FILE = "planner-token"  # in the state folder: what the planner is known by here

Lookup = Callable[[str], SandboxIdentity | None]


class RefusedError(Exception):
    """The request gets an error of the Messages API's shape."""

    def __init__(self, status: int, message: str) -> None:
        """`status` is the HTTP status."""
        self.status = status
        self.message = message
        super().__init__(status, message)


class Replay:
    """Answers with a scenario's steps."""

    def __init__(self, lookup: Lookup, state_dir: Path) -> None:
        """Scenarios lie in `state_dir`/scenarios: <task_id>.json, or default.json for any task."""
        self.lookup = lookup
        self.planner_token = new_planner_token(state_dir)
        self.scenarios = state_dir / "scenarios"
        self.log = state_dir / "gateway.jsonl"
        self.failed_once: set[tuple[str, int, int]] = set()

    async def messages(self, request: Request) -> Response:
        """Answer POST /v1/messages."""
        entry: dict[str, Any] = {"user_agent": request.headers.get("user-agent", "")}
        try:
            body = await request.json()
            home, task, run, number = self.place(request, body)
            entry |= {"task": task, "run": run, "step": number}
            step = self.step(task, run, number)
            await asyncio.sleep(step.delay_s)
            if step.status and (task, run, number) not in self.failed_once:
                self.failed_once.add((task, run, number))
                raise RefusedError(step.status, "The scenario answers this error once.")
        except RefusedError as refused:
            self.note({**entry, "status": refused.status})
            kind = ERROR_TYPES.get(refused.status, "api_error")
            error = {"type": kind, "message": refused.message}
            return JSONResponse({"type": "error", "error": error}, refused.status)
        self.note({**entry, "status": 200})
        answer = message(step, home, str(body.get("model")), f"msg_{task}_{run}_{number}")
        if body.get("stream"):
            return StreamingResponse(server_sent(answer), media_type="text/event-stream")
        return JSONResponse(answer)

    async def models(self, request: Request) -> Response:
        """Answer GET /v1/models: whoever sees it has a token that is good."""
        known = self.lookup(request.headers.get("x-api-key", "")) is not None
        return JSONResponse({"data": [], "has_more": False}, 200 if known else 403)

    def place(self, request: Request, body: dict[str, Any]) -> tuple[str, str, int, int]:
        """Find the sandbox's home, the task, the run and the step that a request asks for."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        token = request.headers.get("x-api-key") or bearer
        if secrets.compare_digest(token.encode(), self.planner_token.encode()):
            return "", planned_task(body), 0, 0
        identity = self.lookup(token)
        if identity is None:
            raise RefusedError(403, "This token belongs to no sandbox that is running.")
        task = identity.metadata.get("autocoder_attempt", "").rpartition("-")[0]
        answers = 0
        for entry in reversed(body.get("messages", [])):
            if entry.get("role") == "assistant":
                answers += 1
            elif found := HEADING_PATTERN.search(text_of(entry)):
                return identity.home, task, int(found[1]), answers
        raise RefusedError(400, "No prompt of an Autocoder task is in this conversation.")

    def step(self, task: str, run: int, number: int) -> Step:
        """The scenario's answer; run 0 is the planner's."""
        scenario = self.scenario(task)
        if run:
            return scenario.step(run, number)
        if scenario.plan is None:
            raise RefusedError(404, "The scenario has no plan.")
        return Step(text=json.dumps(scenario.plan))

    def scenario(self, task: str) -> Scenario:
        """Load the task's scenario."""
        for name in (task, "default"):
            path = self.scenarios / f"{name}.json"
            if path.exists():
                return Scenario.model_validate_json(path.read_text())
        raise RefusedError(403, f"No scenario answers for task {task}, and there is no model here.")

    def note(self, entry: dict[str, Any]) -> None:
        """Keep a line on every request."""
        with self.log.open("a") as log:
            log.write(json.dumps(entry) + "\n")


def new_planner_token(state_dir: Path) -> str:
    """Make the token by which the planner is known here, for the cloud to put into its secret."""
    path = state_dir / PLANNER_FILE
    path.touch(mode=0o600)
    path.write_text(token := secrets.token_urlsafe(32))
    return token


def planned_task(body: dict[str, Any]) -> str:
    """The task that a plan is asked for, by the first line of the prompt."""
    for entry in body.get("messages", []):
        if found := PLAN_HEADING_PATTERN.match(text_of(entry)):
            return found[1]
    raise RefusedError(400, "No task of Autocoder's is named in this request for a plan.")


def text_of(entry: dict[str, Any]) -> str:
    """The text that a message holds, without the results of tools: those are not prompts."""
    content = entry.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def message(step: Step, home: str, model: str, id: str) -> dict[str, Any]:
    """An answer of the Messages API. Nothing was computed, so no tokens are charged."""
    block: dict[str, Any] = {"type": "text", "text": step.text}
    if step.tool:
        given = dict(step.input)
        if "file_path" in given:
            given["file_path"] = f"{home}/project/{given['file_path']}"
        block = {"type": "tool_use", "id": f"toolu_{id}", "name": step.tool, "input": given}
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if step.tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def server_sent(answer: dict[str, Any]) -> Iterator[str]:
    """The same answer as the stream of events that Claude Code reads."""
    (block,) = answer["content"]
    if block["type"] == "tool_use":
        opening = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        opening = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    start = {**answer, "content": [], "stop_reason": None}
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": opening},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": answer["usage"]},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


async def hello(request: Request) -> Response:
    """Answer the CLI's question whether anybody is there."""
    return Response(status_code=200)


def create_app(lookup: Lookup, state_dir: Path) -> Starlette:
    """Make the gateway; `lookup` gives the sandbox that a token belongs to."""
    replay = Replay(lookup, state_dir)
    return Starlette(
        routes=[
            Route("/v1/messages", replay.messages, methods=["POST"]),
            Route("/v1/models", replay.models, methods=["GET"]),
            Route("/api/hello", hello, methods=["GET", "HEAD"]),
        ]
    )
