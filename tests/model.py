"""Anthropic's Messages API on loopback, by a script: what the gateway forwards to in tests.

It streams as Anthropic does: pings, thinking, several blocks an answer, each in several deltas.
"""

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

KEY = "sk-ant-the-users-own-key-0123456789"
HEADING = re.compile(r"^Autocoder task (\S+), (?:plan|iteration (\d+) of \d+)\.$", re.MULTILINE)
USAGE = {
    "input_tokens": 1000,
    "cache_creation_input_tokens": 2000,
    "cache_read_input_tokens": 30_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 1500},
    "output_tokens": 400,
}

Block = dict[str, Any]


@dataclass
class Fault:
    """What a request gets instead: an error, a stream cut half-way, or one that never ends."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    endless: bool = False
    gzipped: bool = False
    message: str = "as the script says"


@dataclass
class Script:
    """A task's answers: run by run (0 is the plan), each a list of answers with their blocks."""

    runs: dict[int, list[list[Block]]]
    usage: dict[str, Any] = field(default_factory=lambda: dict(USAGE))
    plan_usage: dict[str, Any] = field(default_factory=lambda: dict(USAGE))
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None


@dataclass
class Seen:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes
    task: str


class ScriptedModel:
    """Answers with the scripts of tasks; keeps what it was asked, and what it answered."""

    def __init__(self) -> None:
        self.url = ""
        self.scripts: dict[str, Script] = {}
        self.seen: list[Seen] = []
        self.sent: list[bytes] = []
        self.hung_up = threading.Event()

    def of(self, task: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.task == task]

    async def messages(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw)
        task, run, step = place(body)
        self.seen.append(Seen(str(request.url), dict(request.headers), raw, task))
        if request.headers.get("x-api-key") != KEY:
            return error(401, f"invalid x-api-key {request.headers.get('x-api-key')}")
        script = self.scripts[task]
        fault = script.always or (script.faults.pop(0) if script.faults and run else None)
        fault = fault or Fault()
        if fault.status != 200:
            return error(fault.status, fault.message, fault.headers)
        answers = script.runs[run]
        blocks = answers[step] if step < len(answers) else [{"type": "text", "text": "Done."}]
        usage = script.usage if run else script.plan_usage
        answer = message(blocks, body["model"], usage)
        if fault.gzipped:
            data = gzip.compress(json.dumps(answer).encode())
            return Response(data, headers={"content-encoding": "gzip"})
        if not body.get("stream"):
            return JSONResponse(answer)
        return Streamed(self, answer, fault)

    async def count_tokens(self, request: Request) -> Response:
        self.seen.append(Seen(str(request.url), dict(request.headers), await request.body(), ""))
        return JSONResponse({"input_tokens": 14})

    async def models(self, request: Request) -> Response:
        self.seen.append(Seen(str(request.url), dict(request.headers), b"", ""))
        model = {"type": "model", "id": "claude-sonnet-5-5", "display_name": "Claude"}
        model["created_at"] = "2026-01-01T00:00:00Z"
        if "model" in request.path_params:
            return JSONResponse(model)
        return JSONResponse({"data": [model], "has_more": False, "first_id": None, "last_id": None})


class Streamed(Response):
    """An answer as events, or as much of it as the fault lets through."""

    def __init__(self, model: ScriptedModel, answer: dict[str, Any], fault: Fault) -> None:
        self.model, self.answer, self.fault = model, answer, fault
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"request-id", b"r-1")]
        headers.append((b"keep-alive", b"timeout=5"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.create_task(self._gone(receive))
        sent = b""
        async for event in events(self.answer):
            if event.startswith(b"event: message_delta") and self.fault.endless:
                await gone
            if gone.done() or (self.fault.cut and event.startswith(b"event: message_delta")):
                return  # without an end: the server breaks the connection
            await send({"type": "http.response.body", "body": event, "more_body": True})
            sent += event
        self.model.sent.append(sent)
        gone.cancel()
        await send({"type": "http.response.body"})

    async def _gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self.model.hung_up.set()


def place(body: dict[str, Any]) -> tuple[str, int, int]:
    """The task, the run and the step that a request is for."""
    step = 0
    for entry in reversed(body["messages"]):
        content = entry["content"]
        texts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if entry["role"] == "assistant":
            step += 1
            continue
        for block in texts:
            if block["type"] == "text" and (found := HEADING.search(block["text"])):
                return found[1], int(found[2] or 0), step
    raise AssertionError("a request without a prompt of Autocoder's")


def message(blocks: list[Block], model: str, usage: dict[str, Any]) -> dict[str, Any]:
    tools = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": f"msg_{time.monotonic_ns()}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": "tool_use" if tools else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


async def events(answer: dict[str, Any]) -> AsyncIterator[bytes]:
    opening = {**answer["usage"], "output_tokens": 1}
    start = {**answer, "content": [], "stop_reason": None, "usage": opening}
    yield sse({"type": "message_start", "message": start})
    yield sse({"type": "ping"})
    for index, block in enumerate(answer["content"]):
        kind, field_, whole = {
            "text": ("text_delta", "text", block.get("text", "")),
            "thinking": ("thinking_delta", "thinking", block.get("thinking", "")),
            "tool_use": ("input_json_delta", "partial_json", json.dumps(block.get("input"))),
        }[block["type"]]
        empty: Block = {"input": {}} if block["type"] == "tool_use" else {field_: ""}
        yield sse({"type": "content_block_start", "index": index, "content_block": block | empty})
        for at in range(0, len(whole), 50):
            delta = {"type": kind, field_: whole[at : at + 50]}
            yield sse({"type": "content_block_delta", "index": index, "delta": delta})
            await asyncio.sleep(0)
        yield sse({"type": "content_block_stop", "index": index})
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": answer["usage"]["output_tokens"]}
    yield sse({"type": "message_delta", "delta": end, "usage": usage})
    yield sse({"type": "message_stop"})


def sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
    told = {"type": kinds.get(status, "api_error"), "message": text}
    return JSONResponse({"type": "error", "error": told, "request_id": "r-1"}, status, headers)


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def tool(name: str, **given: Any) -> Block:
    return {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": name, "input": given}


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve an application on loopback, in a thread; give its URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)  # before the server does: nobody is to be turned away
    config = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """Run a scripted model."""
    model = ScriptedModel()
    app = Starlette(
        routes=[
            Route("/v1/messages", model.messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", model.count_tokens, methods=["POST"]),
            Route("/v1/models", model.models, methods=["GET"]),
            Route("/v1/models/{model}", model.models, methods=["GET"]),
        ]
    )
    with serving(app) as model.url:
        yield model
