"""`autocoder logs`: what the agent did and what the checks printed, an iteration at a time.

What has ended lies in S3, whole. What is under way is told by the live feed, in fewer words.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator

from autocoder import claude
from autocoder.cli.problems import UsageError
from autocoder.cli.records import before, begins, entries, iteration_at, read_record
from autocoder.cli.results import harmless, objects_of, stored, write_out
from autocoder.cli.service import Service
from autocoder.cli.watch import describe
from autocoder.ports.objects import TaskFolder
from autocoder.record import TERMINAL, TaskRecord
from autocoder.text import printable

Tell = Callable[[str], None]


def show_logs(
    service: Service,
    task_id: str,
    iteration: int | None,
    check: str | None,
    *,
    follow: bool,
    as_json: bool,
) -> int:
    """Show an iteration's log; with `follow`, go on to the task's end. 1 if it did not succeed."""
    record = read_record(service, task_id)
    number = iteration or record.get("iteration") or 1
    if check:
        if follow:
            raise UsageError("--check is one that has ended, --follow goes on: choose.")
        if as_json:
            raise UsageError("--check is its output as it is, --json is lines: choose.")
        return one_check(service, task_id, number, check)
    tell = tell_as_json if as_json else tell_plainly
    if follow:
        return follow_logs(service, record, number, tell)
    found = list(log_lines(service, record, number))
    if not found:
        raise UsageError(nothing_yet(record, number))
    for line in found:
        tell(line)
    return 0


def nothing_yet(record: TaskRecord, number: int) -> str:
    """Say why an iteration has no log."""
    task_id, last = record["task_id"], record.get("iteration") or 0
    if number > last:
        return f"{task_id} has had {last} iterations: there is no iteration {number}."
    return f"{task_id} has no log of iteration {number}: it has expired, or did not begin."


def tell_plainly(line: str) -> None:
    """Write a line now: somebody may be waiting for it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell_as_json(line: str) -> None:
    """Write it for a program."""
    tell_plainly(json.dumps({"line": line}))


def log_lines(service: Service, record: TaskRecord, number: int) -> Iterator[str]:
    """An iteration: the agent's transcript, then each check's output."""
    objects, folder = objects_of(service), TaskFolder(record["task_id"])
    try:
        with objects.open(folder.transcript(number)) as lines:
            for line in lines:
                yield from said(line)
    except objects.s3.exceptions.NoSuchKey:  # it is under way, or got lost
        yield from feed_lines(service, record, number)
    yield from check_lines(service, record["task_id"], number)


def said(line: bytes) -> Iterator[str]:
    """One event of the agent's transcript, in lines."""
    event = claude.parse_line(line)
    if event.get("type") == "assistant":
        for block in claude.blocks(event, "text"):
            yield from (
                f"claude  {printable(text)}" for text in str(block.get("text", "")).splitlines()
            )
        yield from (printable(f"claude  > {tool} {on}") for tool, on in claude.tool_uses(event))
    for problem in claude.tool_failures(event):
        yield from (f"claude  ! {printable(text)}" for text in problem.splitlines())
    if event.get("type") == "result":
        outcome = claude.read_outcome([line])
        words = outcome.outcome.replace("_", " ")
        yield printable(f"claude  ended: {words}, {outcome.turns} turns")


def feed_lines(service: Service, record: TaskRecord, number: int) -> Iterator[str]:
    """What the live feed tells of an iteration."""
    here = number - before(record)
    begin, end = begins(record["attempt"], here), begins(record["attempt"], here + 1)
    for entry in entries(service, record["task_id"], begin - 1):
        if entry["seq"] >= end:
            return
        for subject, line in describe(entry["kind"], entry["detail"]):
            yield printable(f"{subject:<7} {line}")


def check_logs(service: Service, task_id: str, number: int) -> dict[str, str]:
    """The checks of an iteration, each with its output's key in S3."""
    folder = TaskFolder(task_id)
    below = folder.log(number, "").removesuffix(".log").removeprefix(folder.prefix)
    names = [name for name, _ in stored(service, task_id) if name.startswith(below)]
    return {n.removeprefix(below).removesuffix(".log"): folder.prefix + n for n in names}


def check_lines(service: Service, task_id: str, number: int) -> Iterator[str]:
    """The output of every check of an iteration."""
    for check, key in check_logs(service, task_id, number).items():
        yield f"── {printable(check)}"
        with objects_of(service).open(key) as lines:
            for line in lines:
                yield harmless(line).rstrip("\n")


def one_check(service: Service, task_id: str, number: int, check: str) -> int:
    """Write one check's output."""
    there = check_logs(service, task_id, number)
    if check not in there:
        known = ", ".join(map(printable, there)) or "none"
        raise UsageError(
            f"iteration {number} of {task_id} has no check {printable(check)!r}: there is {known}."
        )
    write_out(objects_of(service), there[check])
    return 0


def follow_logs(service: Service, record: TaskRecord, number: int, tell: Tell) -> int:
    """Tell of the feed as it comes, and of each iteration's checks when they have ended."""
    task_id = record["task_id"]
    seen = begins(record["attempt"], max(number - before(record), 0)) - 1
    try:
        while True:
            record = read_record(service, task_id)  # before the feed: its end is then complete
            for entry in entries(service, task_id, seen):
                seen = entry["seq"]
                for subject, line in describe(entry["kind"], entry["detail"]):
                    tell(printable(f"{subject:<7} {line}"))
                if entry["kind"] == "checks_ended":
                    for line in check_lines(service, task_id, iteration_at(seen, record)):
                        tell(line)
            if record["status"] in TERMINAL:
                tell(f"{task_id} is {record['status']}")
                return 0 if record["status"] == "SUCCEEDED" else 1
            time.sleep(service.poll_s)
    except KeyboardInterrupt:
        sys.stderr.write("No longer following; the task goes on.\n")
        return 130
