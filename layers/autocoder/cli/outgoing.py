"""What `autocoder submit` is to send: messages that the service would take, each with an id."""

import hashlib
import json
import re
import secrets
import sys
from pathlib import Path
from typing import Any, NamedTuple

from autocoder.cli.compose import Options, composed, read, standard_input, text_of
from autocoder.cli.examples import example
from autocoder.cli.problems import UsageError
from autocoder.local.scenario import example_id
from autocoder.message import canonical

SQS_BYTES = 1024 * 1024  # of a message, and of all in a request
CLEAN_ROOM_S = 900  # what a green project gets for that when the task's time is over
SHOWN = 20  # mistakes in a file
HOW = (
    "say what to build: autocoder submit 'Build a …', --file FILE, - for standard input, "
    "--message FILE, --jsonl FILE, --example NAME; or nothing at all in a terminal, for a form."
)


class Given(NamedTuple):
    """Where the message comes from, by the command line."""

    specification: str | None = None
    file: Path | None = None
    message: Path | None = None
    jsonl: Path | None = None
    example: str | None = None
    options: Options = Options()

    @property
    def sources(self) -> int:
        """How many places are named: more than one is too many."""
        return sum(one is not None for one in self[:5])


class Task(NamedTuple):
    """A message that the service would take; `line` is where a JSONL file has it."""

    content: dict[str, Any]
    line: int | None = None

    @property
    def task_id(self) -> str:
        """Its id: every message that is sent has one."""
        return str(self.content["task_id"])

    @property
    def body(self) -> str:
        """What goes on the queue: plain ASCII, for SQS does not take every character."""
        return json.dumps(self.content)


def tasks_of(given: Given) -> list[Task]:
    """Read what is to be sent; all of it is valid, or nothing is."""
    if given.jsonl is not None:
        given.options.refuse()
        return from_lines(given.jsonl)
    if given.message is not None:
        given.options.refuse()
        body = text_of("--message", given.message)
        read(body)
        return [with_id(json.loads(body))]
    if given.example is not None:
        message = {"task_id": example_id(given.example), **example(given.example)}
        return [with_id(composed(message, given.options))]
    return [with_id(composed({"specification": specification_of(given)}, given.options))]


def specification_of(given: Given) -> str:
    """The specification: the argument, a file's text, or standard input's."""
    if given.file is not None:
        return text_of("--file", given.file)
    if given.specification is not None and given.specification != "-":
        return given.specification
    if given.specification is None and sys.stdin.isatty():
        raise UsageError(HOW)  # no form either: its questions would not be seen
    text = standard_input()
    if not text.strip():
        raise UsageError(f"standard input is empty: {HOW}")
    return text


def with_id(content: dict[str, Any]) -> Task:
    """Give a message an id of its own, if it has none."""
    return checked(Task({"task_id": f"{slug(content)}-{secrets.token_hex(5)}", **content}))


def slug(content: dict[str, Any]) -> str:
    """The project's name as part of an id."""
    name = str((content.get("project") or {}).get("name") or "").lower()
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:40].rstrip("-") or "task"


def checked(task: Task) -> Task:
    """Refuse what does not fit on the queue."""
    if (size := len(task.body)) > SQS_BYTES:
        raise UsageError(
            f"the message has {size} bytes as JSON, at most {SQS_BYTES} fit on the queue: shorten "
            "it, or put files into a `source`."
        )
    return task


def from_lines(file: Path) -> list[Task]:
    """Read a message a line; what is wrong is said of each line, and then nothing is sent."""
    tasks: dict[str, Task] = {}
    problems = []
    text = standard_input() if str(file) == "-" else text_of("--jsonl", file)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            read(line)
            content = json.loads(line)
            # Made of the content, so that the same file sent again is no task twice.
            made = f"{slug(content)}-{hashlib.sha256(canonical(content)).hexdigest()[:10]}"
            task = checked(Task({"task_id": made, **content}, number))
            first = tasks.setdefault(task.task_id, task)
            if first is not task:
                raise UsageError(f"task_id: is that of line {first.line}; give it another one.")
        except UsageError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        more = f"\n… and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        listed = "\n".join(problems[:SHOWN])
        raise UsageError(f"nothing was sent: {file} has mistakes.\n{listed}{more}")
    if not tasks:
        raise UsageError(f"--jsonl {file} has no message: write one a line.")
    return list(tasks.values())


def most_usd(task: Task) -> dict[str, float]:
    """The most that a task may cost: its budget, and a sandbox for all of its time."""
    from autocoder.prices import sandbox_usd
    from infra.settings import Settings

    limits, settings = read(task.body).limits, Settings.load()
    seconds = 60 * limits.timeout_minutes + CLEAN_ROOM_S
    usd = sandbox_usd(seconds, settings.sandbox_cpus, settings.sandbox_memory_mb)
    return {"model": limits.budget_usd, "sandbox": round(usd, 4)}
