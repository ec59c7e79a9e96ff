"""A task's record, as the Tasks table holds it and every `--json` prints it. A contract.

Dictionaries with types, not models: a command that only shows a record must not pay for building
them, nor refuse one that another version wrote. Pydantic reads these same classes where it is
wanted: their texts are the reference, and tests hold real records against them.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Required, TypeVar, cast

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

Status = Literal["QUEUED", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"]
TERMINAL: tuple[Status, ...] = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
RETRYABLE: tuple[Status, ...] = ("FAILED", "CANCELLED")
STATUSES: tuple[Status, ...] = ("QUEUED", "RUNNING", *TERMINAL)  # WAITING: none has it yet
TASK_ID = r"^[a-z0-9-]{1,64}$"
STATUS_INDEX = "by_status"
SLOTS = "#slots"  # the item with the slots' holders: no task_id can be this

T = TypeVar("T")


def contract(kind: type[T]) -> type[T]:
    """Let pydantic take the texts below fields for their descriptions, and allow no other field."""
    kind.__pydantic_config__ = {  # type: ignore[attr-defined]
        "use_attribute_docstrings": True,
        "extra": "forbid",
    }
    return kind


@contract
class FailureRecord(TypedDict):
    """Why a task did not succeed."""

    code: str
    """A stable code; docs/failures.md has them all."""
    message: str
    """A sentence that says what happened."""
    hint: str
    """What to do about it."""


@contract
class ResultRecord(TypedDict):
    """Where the project lies in S3."""

    bucket: str
    """The stack's bucket."""
    prefix: str
    """The task's folder in it; keys begin with this."""
    files: int
    """How many files the project has."""
    bytes: int
    """Their size."""


@contract
class LimitsRecord(TypedDict):
    """How far the task may go."""

    max_iterations: int
    """How often the agent may work on it."""
    max_turns: int
    """How many turns a run of the agent may take."""
    budget_usd: float
    """The most that the model may cost."""
    timeout_minutes: int
    """The longest that the task may take from its start."""


@contract
class ProjectRecord(TypedDict):
    """What the sender calls the project."""

    name: str | None
    """Its name, if the message has one."""


@contract
class PlanRecord(TypedDict, total=False):
    """What came of planning; the plan itself is plan.json."""

    status: Required[Literal["planned", "skipped", "unavailable"]]
    """Whether there is a plan."""
    reason: str
    """Why a plan that was wanted is missing."""
    usage: dict[str, int]
    """The tokens that it took."""
    name: str
    """What the plan calls the project."""
    environment: str
    """The toolchain that it advises."""
    files: int
    """How many files it names."""
    checks: int
    """How many checks."""
    acceptance_criteria: int
    """How many criteria."""
    risks: int
    """How many risks."""


@contract
class ProgressRecord(TypedDict, total=False):
    """What is being done at this moment."""

    turn: int
    """The agent's turn."""
    tool: str
    """The tool that it uses."""
    target: str
    """What it uses the tool on."""
    check: str | None
    """The check that is running."""


@contract
class CheckRecord(TypedDict):
    """What became of one check of the newest iteration."""

    status: str
    """passed, failed, not_run, timed_out or broken."""
    exit_code: int | None
    """The command's."""
    seconds: float
    """How long it took."""
    tests: NotRequired[dict[str, Any]]
    """How many tests ran, failed and were left out, where it ran tests."""


@contract
class CostRecord(TypedDict, total=False):
    """What the task has cost so far, in USD."""

    model_usd: float
    """The model's part, reckoned from tokens: planner and agent."""
    sandbox_usd: float
    """The sandboxes' part, reckoned from their seconds and sizes."""
    total_usd: float
    """Both."""
    estimate_usd: float
    """Claude Code's own figure for its runs; part of no sum."""
    models: dict[str, dict[str, int]]
    """The tokens of each model, by what each kind costs."""
    sandbox_seconds: float
    """How long sandboxes were there, all together."""
    prices_as_of: str
    """The date of the price table."""


@contract
class TaskRow(TypedDict, total=False):
    """A task as the index by status has it: what `autocoder list` prints."""

    task_id: Required[str]
    """The task's name: the message's own, or SQS's id of the message."""
    status: Required[Status]
    """QUEUED, RUNNING, or how it ended: SUCCEEDED, FAILED, CANCELLED, REJECTED (the message)."""
    created_at: Required[str]
    """When the message was taken in: ISO, UTC, milliseconds, as all times here."""
    updated_at: str
    """When the record last changed; a task that waits has none yet."""
    stage: str
    """Where the task is: queued, planning, creating_sandbox, coding, checking, deciding, verifying,
    extracting, finished."""
    iteration: int
    """The iteration that is worked on; 1 is the agent's first run, 0 is before it."""
    priority: Literal["normal", "high"]
    """The message's."""


@contract
class TaskRecord(TaskRow, total=False):
    """Everything that the Tasks table has of a task: what `autocoder status` prints."""

    attempt: Required[int]
    """The how-manieth attempt this is."""
    started_at: str
    """When it got a slot."""
    finished_at: str
    """When it ended."""
    expires_at: int
    """When the record goes, in seconds since 1970; its objects in S3 go at about the same time."""
    limits: LimitsRecord
    """How far it may go."""
    project: ProjectRecord
    """What the sender calls the project."""
    metadata: dict[str, str]
    """The message's, as it came."""
    plan: PlanRecord
    """What came of planning."""
    progress: ProgressRecord
    """What is being done at this moment."""
    checks: dict[str, CheckRecord]
    """The newest iteration's checks, by their names."""
    cost: CostRecord
    """What it has cost so far, in all attempts; a running task's is of its last decision."""
    ledger: dict[str, dict[str, Any]]
    """What the cost is reckoned from: an entry a run, a sandbox and an iteration."""
    resumes: dict[str, Any]
    """What a further attempt goes on from: the iteration before it, and its checkpoint."""
    retries: list[str]
    """SQS's ids of the messages that asked for a further attempt."""
    cancels: list[str]
    """SQS's ids of the messages that asked for its end."""
    failure: FailureRecord
    """Why it did not succeed, once it has ended so."""
    result: ResultRecord
    """Where the project lies, once it has ended with one."""
    execution_arn: str
    """The Step Functions execution of this attempt."""
    sandbox_id: str
    """The newest sandbox."""
    queue: Literal["normal", "high"]
    """The line that it waits in, while it does."""
    queue_position: int
    """Its place in that line: 1 starts next; the first 100 have one."""
    cancel_requested: bool
    """Whether somebody asked for its end."""
    message_sha256: str
    """The hash of the message, which an id belongs to for good."""
    message_id: str
    """SQS's id of a message that was rejected."""


def stable(record: Mapping[str, Any]) -> TaskRecord:
    """Take the fields that are documented, in their order: others are nobody's to rely on."""
    known = {name: record[name] for name in TaskRecord.__annotations__ if name in record}
    return cast(TaskRecord, known)
