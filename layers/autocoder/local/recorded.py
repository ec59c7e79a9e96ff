"""A recorded task as a scenario: the model's answers, tool call by tool call, in their order.

A scenario's step is one tool or a closing text, so an answer with several tools becomes several
steps, and what a subagent did stands where it did it. Replayed, the same files come to be, and the
service's checks decide as they did.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autocoder.local.gateway.charge import HUNG_UP
from autocoder.local.gateway.meter import as_object
from autocoder.local.gateway.recorder import Entry, entries, recordings
from autocoder.local.gateway.replay import moved
from autocoder.local.sandboxes.bubblewrap import HOME
from autocoder.local.scenario import Scenario, ScenarioError, Step
from autocoder.message import Limits
from autocoder.record import TASK_ID

SUBAGENTS = ("Agent", "Task")  # their own calls are recorded: they need not be started again
TOKEN = re.compile(r"local-[0-9a-f]{48}")
SPARE_TURNS = 5
MAX_TURNS = 500


def scenario_of(task: str, name: str) -> Scenario:
    """Make a scenario of the task's recording."""
    folder = recordings() / task
    if not re.match(TASK_ID, task) or not (folder / "message.json").exists():
        known = sorted(path.parent.name for path in recordings().glob("*/message.json"))
        there = f"There are: {', '.join(known)}." if known else "There is none yet."
        raise ScenarioError(f"There is no recording of the task {task!r}. {there}")
    try:
        return read(folder, name)
    except (KeyError, TypeError, ValueError) as error:
        raise ScenarioError(f"The recording in {folder} can't be read: {error!r}.") from error


def read(folder: Path, name: str) -> Scenario:
    """Read a recording; what a model answered may have any form."""
    found = list(entries(folder))
    if any(entry.complete and not entry.kept for entry in found):
        raise ScenarioError(f"The recording in {folder} was too large to be kept whole.")
    runs = [run for _, run in sorted(runs_of(folder, found).items())]
    if not runs:
        raise ScenarioError(f"The recording in {folder} holds no run of the agent.")
    message = json.loads((folder / "message.json").read_text())
    if "source" in message:
        raise ScenarioError(f"The task of {folder} began with a project, which is not recorded.")
    scenario = Scenario(
        name=name, message=with_turns(message, runs), plan=plan_of(folder, found), runs=runs
    )
    return Scenario.model_validate_json(TOKEN.sub("[token]", scenario.model_dump_json()))


def plan_of(folder: Path, found: list[Entry]) -> dict[str, Any] | None:
    """What the planner answered, if it did."""
    for entry in found:
        if entry.run == 0 and entry.complete:
            blocks = content_of(folder, entry)
            return as_object("".join(b["text"] for b in blocks if b["type"] == "text").encode())
    return None


def runs_of(folder: Path, found: list[Entry]) -> dict[int, list[Step]]:
    """The steps of every run. A run that began again in another sandbox counts once."""
    runs: dict[int, list[Step]] = {}
    sandboxes: dict[int, str] = {}
    for entry in found:
        if not entry.run:
            continue
        if sandboxes.setdefault(entry.run, entry.sandbox_id) != entry.sandbox_id:
            sandboxes[entry.run] = entry.sandbox_id
            runs[entry.run] = []
        run = runs.setdefault(entry.run, [])
        if run and run[-1].tool is None:
            run.pop()  # only the last word ends a run
        run += steps_of(folder, entry)
    return runs


def steps_of(folder: Path, entry: Entry) -> Iterator[Step]:
    """An answer's tools; its text, if it has none. An error ends the run, unless more follows."""
    if entry.status >= 400 and entry.status != HUNG_UP:
        yield Step(text="", status=entry.status)
    if not entry.complete:
        return
    blocks = content_of(folder, entry)
    used = [block for block in blocks if block["type"] == "tool_use"]
    for block in used:
        if block["name"] not in SUBAGENTS:
            yield Step(tool=block["name"], input=portable(block["input"], entry.home))
    if not used:
        yield Step(text="".join(b["text"] for b in blocks if b["type"] == "text"))


def portable(given: dict[str, Any], home: str) -> dict[str, Any]:
    """A tool's input with a file's path from the project's folder, as scenarios have it."""
    given = moved(given, home, HOME)
    if isinstance(path := given.get("file_path"), str):
        given["file_path"] = posixpath.relpath(path, f"{HOME}/project")
    return given


def with_turns(message: dict[str, Any], runs: list[list[Step]]) -> dict[str, Any]:
    """The message, with as many turns as a tool a turn takes."""
    limits = message.get("limits", {})
    turns = limits.get("max_turns", Limits().max_turns)
    needed = min(max(map(len, runs)) + SPARE_TURNS, MAX_TURNS)
    return {**message, "limits": {**limits, "max_turns": needed}} if needed > turns else message


def content_of(folder: Path, entry: Entry) -> list[dict[str, Any]]:
    """The blocks of an answer, streamed or not."""
    answer = (folder / f"{entry.number:04}-answer").read_bytes()
    whole = as_object(answer)
    if isinstance(whole.get("content"), list):
        return [block for block in whole["content"] if isinstance(block, dict)]
    blocks: dict[int, dict[str, Any]] = {}
    parts: dict[int, str] = {}
    for line in answer.splitlines():
        event = as_object(line.removeprefix(b"data:"))
        match event.get("type"):
            case "content_block_start":
                blocks[event["index"]] = event["content_block"]
            case "content_block_delta":
                delta = event["delta"]
                said = delta.get("text") or delta.get("partial_json") or ""
                parts[event["index"]] = parts.get(event["index"], "") + said
    for index, block in blocks.items():
        if block["type"] == "text":
            block["text"] += parts.get(index, "")
        elif parts.get(index):
            block["input"] = as_object(parts[index].encode())
    return [block for _, block in sorted(blocks.items())]
