"""`autocoder status` and `autocoder list`: what the records say, with nothing heavy imported."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from autocoder.cli.problems import UsageError
from autocoder.cli.records import newest_first, place, read_record
from autocoder.cli.service import Service
from autocoder.cli.shown import columns, here, painted, print_json, print_rows, size
from autocoder.record import STATUSES, Status, TaskRecord, TaskRow, stable

MARKS = {"passed": "✓", "failed": "✗", "not_run": "-"}


def show_status(service: Service, task_id: str, *, as_json: bool) -> int:
    """Show a task's record; that it can be shown is success, whatever became of the task."""
    record = read_record(service, task_id)
    if as_json:
        print_json(stable(record))
    else:
        print_rows(list(rows(record)))
    return 0


def rows(record: TaskRecord) -> Iterator[tuple[str, str]]:
    """A record in lines."""
    yield "task", record["task_id"]
    yield "status", ", ".join([record["status"], *where(record)])
    if record["attempt"] > 1:
        yield "attempt", str(record["attempt"])
    named = [record[part].get("name") for part in ("project", "plan") if part in record]
    if name := next(filter(None, named), None):
        yield "project", name
    if "progress" in record and record["status"] == "RUNNING":
        yield "now", " ".join(str(part) for part in record["progress"].values() if part)
    if checks := record.get("checks"):
        yield "checks", "  ".join(f"{MARKS.get(c['status'], '!')} {n}" for n, c in checks.items())
    if "cost" in record and "limits" in record:
        cost, most = record["cost"], record["limits"]["budget_usd"]
        boxes = f", sandboxes {cost.get('sandbox_usd', 0.0):.4f} USD"
        budget = f"{most:.2f} USD" + (" an attempt" if record["attempt"] > 1 else "")
        yield "cost", f"model {cost.get('model_usd', 0.0):.4f} of {budget}{boxes}"
    yield "created", here(record["created_at"])
    if "started_at" in record:
        yield "took" if "finished_at" in record else "started", duration(record)
    if failure := record.get("failure"):
        yield "failure", f"{failure['code']}: {failure['message']}"
        yield "", failure["hint"]
    if result := record.get("result"):
        yield "result", f"{result['files']} files, {size(result['bytes'])}"
        yield "", f"s3://{result['bucket']}/{result['prefix']}"
        yield "", f"autocoder download {record['task_id']}"


def where(record: TaskRow) -> list[str]:
    """Where a task is that has not ended, and how far it came."""
    said = []
    if position := record.get("queue_position"):
        said.append(f"place {position} in line")
    elif record["status"] == "RUNNING" and (stage := record.get("stage")):
        said.append(stage.replace("_", " "))
    if number := record.get("iteration"):
        said.append(f"iteration {number}")
    if record.get("cancel_requested") and record["status"] in ("QUEUED", "RUNNING"):
        said.append("to be cancelled")
    return said


def duration(record: TaskRecord) -> str:
    """How long it took, or since when it runs."""
    started = datetime.fromisoformat(record["started_at"])
    if "finished_at" not in record:
        return here(record["started_at"])
    took = datetime.fromisoformat(record["finished_at"]) - started
    return str(timedelta(seconds=round(took.total_seconds())))


def show_list(
    service: Service, statuses: list[str], limit: int | None, after: str | None, *, as_json: bool
) -> int:
    """Show tasks, newest first: a page of them, or all (`limit` is None)."""
    found = newest_first(service, known(statuses), read_token(after))
    page = list(found if limit is None else islice(found, limit))
    more = next(found, None) is not None
    if as_json:
        print_json(page)
    else:
        print_table(page)
        if not page:
            which = "" if after is None else " behind that"
            sys.stderr.write(f"There are no such tasks{which} in {service.where}.\n")
    if more:
        token = "/".join(place(page[-1]))
        sys.stderr.write(f"There are more: --after {token}, or --all.\n")
    return 0


def known(statuses: list[str]) -> list[Status]:
    """The statuses that were asked for; without any, all."""
    asked = {status.upper() for status in statuses}
    if unknown := asked - set(STATUSES):
        names = ", ".join(STATUSES).lower()
        raise UsageError(f"--status {min(unknown).lower()}: there is none; there are {names}.")
    return [status for status in STATUSES if not asked or status in asked]


def read_token(after: str | None) -> tuple[str, str] | None:
    """Read where a page begins: a task's created_at and id."""
    if after is None:
        return None
    created, slash, task_id = after.partition("/")
    try:
        datetime.fromisoformat(created)
    except ValueError:
        slash = ""
    if not slash:
        raise UsageError(f"--after {after}: must be CREATED_AT/ID, as the page before said.")
    return created, task_id


def print_table(page: list[TaskRow]) -> None:
    """A line a task; where a terminal is too narrow for it, two."""
    lines = [(here(row["created_at"]), row["status"], ", ".join(where(row))) for row in page]
    gap = max((len(far) for _, _, far in lines), default=0)
    longest = max((len(row["task_id"]) for row in page), default=0)
    width = columns()
    narrow = width is not None and 16 + 2 + 9 + 2 + gap + 2 + longest > width
    for row, (created, status, far) in zip(page, lines, strict=True):
        # The colour takes no room, so the padding is not the format's to count.
        shown = painted(status) + " " * (9 - len(status))
        if narrow:
            sys.stdout.write(f"{row['task_id']}\n  {created}  {shown}  {far}".rstrip() + "\n")
        else:
            sys.stdout.write(f"{created}  {shown}  {far:<{gap}}  {row['task_id']}\n")
