"""Scenarios: a task message and, run by run, what the model answers. The format is a contract.

A scenario is a folder with a scenario.json:

    {"name": str,
     "message": {…a task message…},
     "source": {path: content, …}                  (optional: the project that the task begins with)
     "plan": {…what the planner answers…}          (optional: without it, the task has no plan)
     "runs": [[step, …], …]}                       (one list a run of Claude Code)

A step is {"tool": str, "input": {…}}, whose `file_path` is relative to the project's folder, or
{"text": str}, which ends the run. Any step may have "delay_s"; "status", an HTTP error that is
answered once before the step; and "vanishes": true, by which the sandbox is lost once before it. If
more runs are asked for than there are, the last one is repeated.
"""

import json
import re
import secrets
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field, ValidationError, model_validator

from autocoder.errors import Mendable
from autocoder.model import Frozen

SHIPPED = Path(__file__).parents[3] / "scenarios"


class ScenarioError(Mendable):
    """The scenario can't be used; the text says where and why."""


class Step(Frozen):
    """One answer of the model: a tool to use, or a closing text."""

    tool: str | None = None
    input: dict[str, Any] = Field(default_factory=dict)
    text: str | None = None
    delay_s: float = Field(0.0, ge=0, le=3600)
    status: int | None = Field(None, ge=400, le=599)
    vanishes: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> "Step":
        if (self.tool is None) == (self.text is None):
            raise ValueError('a step has either "tool" or "text"')
        if PurePosixPath(str(self.input.get("file_path", ""))).is_absolute():
            raise ValueError("file_path is relative to the project's folder")
        return self


class Scenario(Frozen):
    """A scripted task."""

    name: str
    message: dict[str, Any]
    source: dict[str, str] | None = None
    plan: dict[str, Any] | None = None
    runs: list[list[Step]] = Field(min_length=1)

    @model_validator(mode="after")
    def _texts_end_runs(self) -> "Scenario":
        for number, run in enumerate(self.runs, start=1):
            if any(step.text is not None for step in run[:-1]):
                raise ValueError(f"run {number} has steps behind a text, which ends it")
        return self

    def task_message(self) -> dict[str, Any]:
        """The message to send: a scenario without a plan runs without a planner."""
        return self.message if self.plan is not None else {**self.message, "plan": False}

    def step(self, run: int, number: int) -> Step:
        """The answer to the `number`-th request (from 0) of the `run`-th run (from 1)."""
        steps = self.runs[min(run, len(self.runs)) - 1]
        return steps[number] if number < len(steps) else Step(text="Done.")


def load(folder: Path) -> Scenario:
    """Read a scenario: its folder, the file itself, or the name of one that is shipped."""
    named = SHIPPED / folder
    if not folder.exists() and (named / "scenario.json").is_file():
        folder = named
    path = folder if folder.is_file() else folder / "scenario.json"
    if not path.exists():
        names = ", ".join(sorted(found.parent.name for found in SHIPPED.glob("*/scenario.json")))
        raise ScenarioError(
            f"{path} can't be read: there is none. Name a folder that has a scenario.json, or one "
            f"of those that are shipped: {names}."
        )
    try:
        return Scenario.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path} can't be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
        raise ScenarioError(f"{path}: {at}{first['msg']}.") from None


def shipped() -> dict[str, Scenario]:
    """The scenarios that the project ships, by name."""
    found = SHIPPED.glob("*/scenario.json")
    return {path.parent.name: load(path) for path in sorted(found)}


def example_id(name: str) -> str:
    """An id for a task that is a ready example: by it the local cloud knows what to replay."""
    return f"example-{name}-{secrets.token_hex(5)}"


def example_of(task_id: str) -> str | None:
    """The example that a task is, by its id."""
    found = re.fullmatch(r"example-(.+)-[0-9a-f]{10}", task_id)
    return found and found[1]


def replayable() -> dict[str, Scenario]:
    """Those that can just be sent: a source must be put into the bucket first."""
    return {name: one for name, one in shipped().items() if one.source is None}


def dump(scenario: Scenario) -> str:
    """Write a scenario for the gateway."""
    return json.dumps(scenario.model_dump(exclude_none=True))
