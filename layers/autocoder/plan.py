"""The plan: what a model advises before the agent begins. Advice, and untrusted.

The service never runs a command of a plan, opens a path of it, or goes by its environment: checks
come from the toolchains and the message, the project is recognised by its files. Every text is one
printable line of bounded length, so that it can forge no other part of a prompt or a feed. What is
too long is cut, what has another form is refused.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from autocoder.model import Frozen
from autocoder.toolchains import ENVIRONMENTS


def one_line(text: str, most: int) -> str:
    """Make a text one line without control characters, cut to size."""
    begun = text[: 4 * most]  # cut twice: no work is spent on what is thrown away
    printable = "".join(char if char.isprintable() else " " for char in begun)
    return " ".join(printable.split())[:most].rstrip()


def line(most: int) -> BeforeValidator:
    """Tidy a text; what is none is for the field to refuse."""
    return BeforeValidator(lambda v: one_line(v, most) if isinstance(v, str) else v)


def first(most: int) -> BeforeValidator:
    """Cut a list to size."""
    return BeforeValidator(lambda v: v[:most] if isinstance(v, list) else v)


def known_or_auto(value: Any) -> Any:
    """An environment that there is no toolchain for advises nothing."""
    return value if value in ENVIRONMENTS or not isinstance(value, str) else "auto"


Name = Annotated[str, Field(min_length=1, max_length=80), line(80)]
Text = Annotated[str, Field(min_length=1, max_length=300), line(300)]
Environment = Annotated[
    str, BeforeValidator(known_or_auto), Field(json_schema_extra={"enum": list(ENVIRONMENTS)})
]


class PlannedFile(Frozen):
    """A file that the project will probably have."""

    path: Text
    purpose: Text


class PlannedCheck(Frozen):
    """A command that would show that the project works."""

    name: Name
    command: Text


class Plan(Frozen):
    """How a project could be built, and what would show that it is what was asked for."""

    name: Name
    environment: Environment
    files: Annotated[list[PlannedFile], Field(max_length=40), first(40)]
    checks: Annotated[list[PlannedCheck], Field(max_length=10), first(10)]
    acceptance_criteria: Annotated[list[Text], Field(max_length=20), first(20)]
    risks: Annotated[list[Text], Field(max_length=10), first(10)]

    def summary(self) -> dict[str, Any]:
        """What the task's record and feed show of it."""
        lists = ("files", "checks", "acceptance_criteria", "risks")
        counts = {name: len(getattr(self, name)) for name in lists}
        return {"name": self.name, "environment": self.environment, **counts}


class Kept(BaseModel):
    """How much of what was put into the cache is kept for an hour, which costs more."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ephemeral_1h_input_tokens: int = Field(0, ge=0, le=10**9)


class Usage(BaseModel):
    """The tokens that a request to the model took."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    input_tokens: int = Field(0, ge=0, le=10**9)
    output_tokens: int = Field(0, ge=0, le=10**9)
    cache_read_input_tokens: int | None = Field(None, ge=0, le=10**9)
    cache_creation_input_tokens: int | None = Field(None, ge=0, le=10**9)
    cache_creation: Kept | None = None


class StoredPlan(Frozen):
    """plan.json: the plan, and which model made it at what price."""

    model: str
    usage: Usage
    plan: Plan


class PlannerUnavailable(Exception):  # noqa: N818 - no error: the task runs without a plan
    """There is no plan to be had; `reason` is a sentence that quotes nothing of the task."""

    def __init__(self, reason: str, usage: Usage | None = None) -> None:
        """`usage` is what the attempt took all the same."""
        self.reason = reason
        self.usage = usage or Usage()
        super().__init__(reason)


def read_plan(text: str, usage: Usage) -> Plan:
    """Read a model's answer, or say in which field it is no plan."""
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        at = one_line(".".join(str(part) for part in problem["loc"]), 80)
        said = f"{at}: {problem['msg']}" if at else "it is not a JSON object"
        raise PlannerUnavailable(f"The planner's answer is no plan: {said}.", usage) from None
