"""Answers from a scenario, without any key.

It is stateless but for errors that are answered once: the run is known by the newest prompt's
heading, the step by the number of answers since. So retries, resumed sessions and restored
sandboxes need no care here. The planner's request is step 0 of run 0.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from autocoder.claude import REPLAYED
from autocoder.local.gateway.asker import Asker
from autocoder.local.gateway.errors import RefusedError
from autocoder.local.sandboxes.bubblewrap import HOME
from autocoder.local.scenario import Scenario, Step, example_of

EndSandbox = Callable[[str, str], Awaitable[None]]


class Replay:
    """Answers with a scenario's steps."""

    def __init__(self, state_dir: Path, end_sandbox: EndSandbox) -> None:
        """Scenarios lie in `state_dir`/scenarios: <task_id>.json, or default.json for any task."""
        self.end_sandbox = end_sandbox
        self.scenarios = state_dir / "scenarios"
        self.failed_once: set[tuple[str, int, int]] = set()

    def scenario(self, task: str) -> Scenario | None:
        """Load the task's scenario, if it has one; a ready example has that of its name."""
        for name in filter(None, (task, example_of(task), "default")):
            path = self.scenarios / f"{name}.json"
            if path.exists():
                return Scenario.model_validate_json(path.read_text())
        return None

    async def answer(self, asker: Asker, body: dict[str, Any], scenario: Scenario) -> Response:
        """Answer POST /v1/messages."""
        if asker.run is None:
            raise RefusedError(400, "No prompt of an Autocoder task is in this conversation.")
        step = step_of(scenario, asker.run, asker.step)
        await asyncio.sleep(step.delay_s)
        place = (asker.task, asker.run, asker.step)
        first = place not in self.failed_once
        self.failed_once.add(place)
        if step.vanishes and first:
            await self.end_sandbox(asker.sandbox_id, "the scenario says so")
            raise RefusedError(503, "The sandbox that asked is gone.")
        if step.status and first:
            raise RefusedError(step.status, "The scenario answers this error once.")
        name = f"{REPLAYED}{asker.task}_{asker.run}_{asker.step}"
        answer = message(step, asker.home, str(body.get("model")), name)
        if body.get("stream"):
            return StreamingResponse(server_sent(answer), media_type="text/event-stream")
        return JSONResponse(answer)


def step_of(scenario: Scenario, run: int, number: int) -> Step:
    """The scenario's answer; run 0 is the planner's."""
    if run:
        return scenario.step(run, number)
    if scenario.plan is None:
        raise RefusedError(404, "The scenario has no plan.")
    return Step(text=json.dumps(scenario.plan))


def message(step: Step, home: str, model: str, id: str) -> dict[str, Any]:
    """An answer of the Messages API. Nothing was computed, so no tokens are charged."""
    block: dict[str, Any] = {"type": "text", "text": step.text}
    if step.tool:
        given = dict(step.input)
        if "file_path" in given:
            given["file_path"] = f"{HOME}/project/{given['file_path']}"
        given = moved(given, HOME, home)
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


def moved(given: dict[str, Any], home: str, to: str) -> dict[str, Any]:
    """A tool's input, for a sandbox whose home is elsewhere: without isolation each has its own."""
    if home == to:
        return given
    quoted, other = (json.dumps(path)[1:-1] for path in (home, to))
    return dict(json.loads(json.dumps(given).replace(quoted, other)))


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
