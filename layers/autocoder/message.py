"""The task message: what senders put on the queue. A contract; unknown fields are rejected."""

import difflib
import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from autocoder.errors import InputError
from autocoder.model import Frozen
from autocoder.record import TASK_ID
from autocoder.tamper import CHECK, NAMES
from autocoder.toolchains import ACCEPTANCE, CUSTOM_TOOLCHAIN, asked_for

SPECIFICATION_BYTES = 256 * 1024

TaskId = Annotated[str, StringConstraints(pattern=TASK_ID)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2000)]


def known_environment(name: str) -> str:
    """Refuse an environment that there is no toolchain for."""
    asked_for(name)
    return name


def known_rule(name: str) -> str:
    """Refuse to allow what no rule forbids."""
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(NAMES)}"
        raise ValueError(f"is no rule; {remedy}")
    return name


def own_check(name: str) -> str:
    """Refuse a check with the name of the service's own."""
    if name == CHECK:
        raise ValueError("is the name of a check of the service's; choose another")
    return name


class Limits(Frozen):
    """How far a task may go; at the first of these it ends."""

    max_iterations: int = Field(
        10, ge=1, le=50, description="How often the agent may work on it: a first run, and fixes."
    )
    max_turns: int = Field(
        30, ge=1, le=500, description="How many turns one run of the agent may take."
    )
    budget_usd: float = Field(
        5.0, ge=0.01, le=1000, description="The most that the model may cost, planning included."
    )
    timeout_minutes: int = Field(
        60, ge=1, le=24 * 60, description="The longest that it may take from its start."
    )


class Project(Frozen):
    """The form that people fill in beside the specification; the agent and the planner read it."""

    name: Line | None = Field(None, description="What the project is called.")
    type: Line | None = Field(None, description="What it is: api, library, command-line tool, …")
    description: str | None = Field(None, max_length=20_000, description="More about it, in words.")
    requirements: list[Line] = Field(
        default_factory=list, max_length=100, description="What must be true of it, one each."
    )
    apis: list[Line] = Field(
        default_factory=list,
        max_length=100,
        description="The interfaces that it offers or uses, one each.",
    )


def inner_path(path: str) -> str:
    """Refuse a path that is not plainly within the project."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or {"", ".", ".."} & set(parts):
        raise ValueError("is no path within the project; write one such as tests/test_x.py")
    return path


class Source(Frozen):
    """A project to begin with: a tar.gz in the service's own bucket."""

    s3: Annotated[
        str,
        StringConstraints(pattern=r"^s3://[a-z0-9.-]{3,63}/sources/[^\s]+$", max_length=1000),
    ] = Field(description="`s3://BUCKET/sources/NAME.tar.gz`, there before the message is sent.")


class TaskMessage(Frozen):
    """A specification and how to work on it."""

    specification: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="What to build, in words; at most 256 KiB."
    )
    task_id: TaskId | None = Field(
        None,
        description="The task's name; without it, SQS's id of the message. The same id with the "
        "same content is the same task however often it comes; with other content it is rejected.",
    )
    project: Project = Field(Project(), description="What a form asks beside the specification.")
    environment: Annotated[str, AfterValidator(known_environment)] = Field(
        "auto",
        description="`auto`, `python`, `node`, `go`, `rust`, a version such as `python-3.11` or "
        "`nodejs-18`, or `custom`: the commands in `checks` alone, `test` among them. See "
        "[toolchains.md](toolchains.md).",
    )
    model: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:@/-]{1,128}$")] | None = Field(
        None, description="A full model id; without it, cdk.json's."
    )
    plan: bool = Field(True, description="Whether a plan is made before the agent begins.")
    checks: dict[
        Annotated[
            str,
            StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$"),
            AfterValidator(own_check),
        ],
        Line,
    ] = Field(
        default_factory=dict,
        max_length=20,
        description="{name: command}: replaces the toolchain's commands, or adds to them.",
    )
    limits: Limits = Field(Limits(), description="How far it may go.")
    source: Source | None = Field(
        None, description="A project to begin with; without it, an empty folder."
    )
    acceptance: dict[
        Annotated[str, StringConstraints(max_length=200), AfterValidator(inner_path)], str
    ] = Field(
        default_factory=dict,
        max_length=50,
        description="{path: content}: tests that the agent never sees, run in the clean room. "
        "With `custom`, or where no toolchain is recognised, name their command as "
        "`checks.acceptance`.",
    )
    allow: list[Annotated[str, AfterValidator(known_rule)]] = Field(
        default_factory=list,
        max_length=len(NAMES),
        description="[Tamper rules](tampering.md) that may be broken; what they find stays "
        "visible.",
    )
    priority: Literal["normal", "high"] = Field(
        "normal", description="`high` starts before every `normal` one that waits."
    )
    # In the record and in every event: both have limits of their own, which it must not use up.
    metadata: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=100)],
        Annotated[str, StringConstraints(max_length=1000)],
    ] = Field(
        default_factory=dict,
        max_length=50,
        description="{text: text}, echoed in record and events; names have up to 100 characters, "
        "values up to 1,000.",
    )


class ControlMessage(Frozen):
    """Asks a task to stop, or one that has ended without success to be tried again."""

    task_id: TaskId = Field(description="Which task.")
    action: Literal["cancel", "retry"] = Field(description="What is to become of it.")


def parse(content: dict[str, Any]) -> TaskMessage | ControlMessage:
    """Read a decoded message, or raise InputError with a sentence that names the field."""
    model = ControlMessage if "action" in content else TaskMessage
    try:
        message = model.model_validate(content)
    except ValidationError as error:
        raise InputError("message_invalid", explain(error, model)) from None
    if isinstance(message, TaskMessage):
        size = len(message.specification.encode())
        if size > SPECIFICATION_BYTES:
            raise InputError(
                "message_invalid",
                f"specification: has {size} bytes, at most {SPECIFICATION_BYTES} are allowed; "
                "shorten it.",
            )
        if message.environment == CUSTOM_TOOLCHAIN.name and "test" not in message.checks:
            raise InputError(
                "message_invalid",
                "checks.test: is required where environment is custom; add the command that runs "
                "the tests.",
            )
        if (
            message.environment == CUSTOM_TOOLCHAIN.name
            and message.acceptance
            and ACCEPTANCE not in message.checks
        ):
            raise InputError(
                "message_invalid",
                "checks.acceptance: is required where environment is custom and there are "
                "acceptance tests; add the command that runs them.",
            )
    return message


def own_id(content: dict[str, Any]) -> str | None:
    """The task_id of a message that was not accepted, if it has a valid one."""
    try:
        return TypeAdapter(TaskId).validate_python(content.get("task_id"))
    except ValidationError:
        return None


def decode(body: str) -> dict[str, Any]:
    """Read the body as one JSON object whose texts can be stored."""
    try:
        content = json.loads(body)
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError("message_not_json", f"The body is not valid JSON: {error}.") from None
    if not isinstance(content, dict):
        raise InputError(
            "message_not_json", f"The body is a JSON {type(content).__name__}, not an object."
        )
    return content


def canonical(content: dict[str, Any]) -> bytes:
    """A message as it is stored and hashed: the order of its fields makes no other one of it."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False).encode()


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Turn pydantic's findings into sentences: field, reason, remedy."""
    sentences = []
    for problem in error.errors(include_url=False, include_context=False)[:5]:
        field = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        if problem["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            sentences.append(f"{field[:80]}: is not a known field; remove it (known: {known}).")
        elif problem["type"] == "missing":
            sentences.append(f"{field}: is required; add it.")
        elif problem["type"] == "value_error":  # raised here: "is no …; did you mean …?"
            got = json.dumps(problem["input"], default=str)[:60]
            said = problem["msg"].removeprefix("Value error, ")
            field = field.rstrip(".0123456789")  # a place in a list says less than what is there
            sentences.append(f"{field[:80]}: {got} {said}{'' if said.endswith('?') else '.'}")
        else:
            got = json.dumps(problem["input"], default=str)[:60]
            sentences.append(f"{field[:80]}: {problem['msg']}, but it is {got}; correct it.")
    return " ".join(sentences)
