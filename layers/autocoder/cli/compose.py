"""Making a task message of what the command line says; the service's own rules are the measure."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autocoder.cli.problems import UsageError
from autocoder.errors import InputError
from autocoder.message import TaskMessage, decode, parse
from autocoder.record import TASK_ID

# A message's fields, by the options that they are given by.
OPTIONS = {
    "limits.budget_usd": "--budget",
    "limits.max_iterations": "--max-iterations",
    "model": "--model",
    "environment": "--environment",
    "task_id": "--id",
    "priority": "--priority",
    "metadata": "--metadata",
}


# What pydantic says, and we instead.
WORDS = [
    (r": Value error, ", ": "),
    (
        rf": String should match pattern '{re.escape(TASK_ID)}'",
        ": must be 1 to 64 of a-z, 0-9, '-'",
    ),
    (r": String should match pattern ", ": must match the pattern "),
    (r": (String|List|Dictionary|Input) should (have|be) ", r": must \2 "),
]


class Options(NamedTuple):
    """Fields of a message that have an option each; None is not given."""

    budget: float | None = None
    max_iterations: int | None = None
    model: str | None = None
    environment: str | None = None
    id: str | None = None
    priority: str | None = None
    metadata: Mapping[str, str] | None = None

    def given(self) -> dict[str, Any]:
        """What was given, by the fields' names."""
        values = dict(zip(OPTIONS, self, strict=True))
        return {field: value for field, value in values.items() if value is not None}

    def over(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with what was given in the place of what it had."""
        made = dict(message)
        for field, value in self.given().items():
            outer, _, inner = field.rpartition(".")
            made |= {outer: {**made.get(outer, {}), inner: value}} if outer else {field: value}
        return made

    def refuse(self) -> None:
        """Say that a whole message has fields of its own."""
        for field in self.given():
            raise UsageError(
                f"{OPTIONS[field]} goes with a specification; a message has its own field."
            )


def pairs(given: list[str] | None) -> dict[str, str] | None:
    """Read `--metadata NAME=VALUE`, given as often as there are pairs."""
    if not given:
        return None
    for pair in given:
        if "=" not in pair:
            raise UsageError(f"--metadata: is NAME=VALUE, but it is {pair!r}; correct it.")
    return {name: value for name, _, value in (pair.partition("=") for pair in given)}


def text_of(option: str, file: Path) -> str:
    """A file's text."""
    try:
        return file.read_text()
    except OSError as error:
        raise UsageError(f"{option} {file} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {file} can't be read: it is not text ({error}).") from None


def standard_input() -> str:
    """What is typed or piped in."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not text: {error}.") from None


def read(body: str, called: Mapping[str, str] | None = None) -> TaskMessage:
    """Read a message as the service will; what it would reject is said by what it was given by."""
    try:
        message = parse(decode(body))
    except InputError as error:
        said = worded(error.message)
        for field, option in (called or {}).items():
            said = re.sub(rf"(^|\. ){re.escape(field)}(?=[.:])", rf"\1{option}", said)
        raise UsageError(said) from None
    if not isinstance(message, TaskMessage):
        raise UsageError(
            "action: is of no task; `autocoder cancel ID` and `autocoder retry ID` send such."
        )
    return message


def worded(said: str) -> str:
    """Say what pydantic found in the words of the other sentences."""
    for theirs, ours in WORDS:
        said = re.sub(theirs, ours, said)
    return said


def composed(message: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Lay the options over a message; give it if the service would take it."""
    made = options.over(message)
    read(json.dumps(made), {field: OPTIONS[field] for field in options.given()})
    return made
