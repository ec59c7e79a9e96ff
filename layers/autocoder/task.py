"""A task's life: its states and stages, and what the workflow hands from step to step.

The state holds small typed results only. The message lies in S3, anything large too: nothing of a
specification, and no secret, is in an execution's history.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from autocoder.checks import Resource
from autocoder.errors import HINTS
from autocoder.model import Frozen
from autocoder.plan import Usage
from autocoder.prices import Tokens
from autocoder.record import RETRYABLE as RETRYABLE
from autocoder.record import TERMINAL as TERMINAL
from autocoder.record import Status as Status

Next = Literal["fix", "fix_anew", "recheck", "verify", "finish", "give_up"]
Following = Literal["running", "done", "cancelled"]


class Failure(Frozen):
    """Why a task did not succeed: a stable code, a sentence, and a hint at the remedy."""

    code: str
    message: str
    hint: str

    @classmethod
    def of(cls, code: str, message: str, hint: str | None = None) -> "Failure":
        """Make one with the code's hint, if none is given that says more."""
        return cls(code=code, message=message, hint=hint or HINTS[code])


class Planning(Frozen):
    """Whether there is a plan; it lies in plan.json. `reason` says why a wanted one is missing."""

    status: Literal["planned", "skipped", "unavailable"]
    reason: str | None = None
    usage: Usage = Usage()


class SandboxRef(Frozen):
    """The task's sandbox: the how-manieth it is, and the how-manieth of its iteration."""

    sandbox_id: str
    generation: int
    iteration: int = 1
    of_iteration: int = 1


class AgentRun(Frozen):
    """The newest run of Claude Code, and what all runs so far come to.

    `checkpoint` is the newest there is: while a run is under way, that of the run before.
    """

    iteration: int
    status: Following | Literal["failed"]
    failure: Failure | None = None  # why another run would end no better
    session_id: str | None = None
    outcome: str | None = None
    turns: int = 0
    cost_usd: float = 0.0  # of the model in this attempt, the plan included, by our prices
    checkpoint: str | None = None
    offset: int = 0  # how much of a feed that is under way was heard
    heard: dict[str, Tokens] = Field(default_factory=dict)  # what that came to, by model
    nonce: str = ""  # made when the agent had ended: it can't have prepared the checks' job
    seal: str = ""  # so, too: what the supervisors of the checks prove themselves with


class ChecksRun(Frozen):
    """One run of the project's checks; details lie in iterations/NN/checks.json."""

    iteration: int
    status: Following
    green: bool = False
    failed: list[str] = Field(default_factory=list)
    signature: str = ""  # the same as long as the same fails in the same way
    broken: Resource | None = None  # what the sandbox, not the project, lacked
    tampered: list[str] = Field(default_factory=list)  # the rules that were broken


class CleanRun(ChecksRun):
    """The checks again, with the acceptance tests, in a sandbox that the agent never touched."""

    sandbox_id: str | None = None  # of the one under way
    sandboxes: int = 0  # so many were made for this iteration
    versions: dict[str, str] = Field(default_factory=dict)  # of its tools


class Decision(Frozen):
    """What comes next. `iteration` is the one to work on, `code` why a task is given up.

    `recheck` repeats the checks in a fresh sandbox, `verify` in the clean room, after which there
    is no sandbox to go on in: `fix_anew` makes one. `alike` counts the iterations in a row, up to
    this one, whose checks had this `signature`.
    """

    next: Next
    iteration: int
    reason: str
    repeats: bool = False  # the same checks again: it was the sandbox that lacked something
    code: str | None = None
    hint: str | None = None
    signature: str = ""
    alike: int = 0


class Result(Frozen):
    """Where the project lies in S3."""

    bucket: str
    prefix: str
    files: int
    bytes: int


class Caught(Frozen):
    """An error as a Catch of Step Functions hands it on."""

    Error: str
    Cause: str = ""


class Resumes(Frozen):
    """What a further attempt goes on from: the last iteration there was, and what it left.

    `report` is what its checks found, if they were red: the agent is then told to fix that.
    """

    iteration: int
    checkpoint: str | None = None
    report: str | None = None


class State(Frozen):
    """The workflow's state; each step reads it whole and adds its own result."""

    task_id: str
    attempt: int
    resumes: Resumes | None = None
    plan: Planning | None = None
    sandbox: SandboxRef | None = None
    run: AgentRun | None = None
    checks: ChecksRun | None = None
    clean: CleanRun | None = None
    decision: Decision | None = None
    result: Result | None = None
    cancel: Caught | None = None
    error: Caught | None = None

    @property
    def iteration(self) -> int:
        """The iteration being worked on: 1 is the first run, and attempts count on."""
        return self.decision.iteration if self.decision else self.before + 1

    @property
    def before(self) -> int:
        """How many iterations earlier attempts had."""
        return self.resumes.iteration if self.resumes else 0

    @property
    def checkpoint(self) -> str | None:
        """The newest project there is: this attempt's, or what it goes on from."""
        own = self.run.checkpoint if self.run else None
        return own or (self.resumes.checkpoint if self.resumes else None)

    @property
    def judged(self) -> ChecksRun:
        """The checks that count: those of the clean room, once this iteration was there."""
        assert self.checks  # noqa: S101 - TestAndBuild comes before
        in_clean_room = self.clean and self.clean.iteration == self.checks.iteration
        return self.clean if self.clean and in_clean_room else self.checks

    @property
    def generation(self) -> int:
        """How many sandboxes the task has had."""
        return self.sandbox.generation if self.sandbox else 0

    @property
    def name(self) -> str:
        """The attempt's name: of its execution, and of its holder in the slots."""
        return attempt_name(self.task_id, self.attempt)


def attempt_name(task_id: str, attempt: int) -> str:
    """Name an attempt; the last part is always the attempt, so no two names are the same."""
    return f"{task_id}-{attempt}"


def attempt_of(name: str) -> tuple[str, int] | None:
    """Read an attempt's name; None if it is none of ours."""
    task_id, _, attempt = name.rpartition("-")
    return (task_id, int(attempt)) if task_id and attempt.isdecimal() else None


def is_over(name: str, find: Callable[[str], Mapping[str, Any] | None]) -> bool:
    """Whether nothing may run any more under this attempt's name; `find` reads a task's record."""
    attempt = attempt_of(name)
    record = find(attempt[0]) if attempt else None
    return (
        attempt is None
        or record is None
        or record["attempt"] != attempt[1]
        or record["status"] in TERMINAL
    )


def seconds_left(record: dict[str, Any]) -> float:
    """How long a task may still take, by its record; negative when its time is over."""
    started = datetime.fromisoformat(record["started_at"])
    used = (datetime.now(UTC) - started).total_seconds()
    return float(record["limits"]["timeout_minutes"] * 60 - used)


def verdict(state: State) -> tuple[Status, Failure | None]:
    """Say how a task ends: only what the service saw counts."""
    followed = (state.run, state.checks, state.clean)
    if any(part and part.status == "cancelled" for part in followed):
        return "CANCELLED", Failure.of("cancelled", "The task was cancelled.")
    if state.cancel:
        return "CANCELLED", failure_of(state.cancel)
    if state.error:
        return "FAILED", failure_of(state.error)
    if state.run and state.run.failure:
        return "FAILED", state.run.failure
    if state.decision and state.decision.next == "finish":
        return "SUCCEEDED", None
    if state.decision and state.decision.code:
        return "FAILED", Failure.of(state.decision.code, state.decision.reason, state.decision.hint)
    return "FAILED", Failure.of("internal_error", "The workflow ended without a decision.")


def failure_of(error: Caught) -> Failure:
    """Read the failure from an error's text; one that is not ours is a fault of the service."""
    try:
        text = json.loads(error.Cause)["errorMessage"]
        return Failure.model_validate_json(text)
    except (ValueError, KeyError, TypeError):
        return Failure.of("internal_error", f"{error.Error}: {error.Cause[:500]}")
