"""`autocoder cost`: what tasks came to, added up from their records."""

import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Literal

from typing_extensions import TypedDict

from autocoder.cli.problems import UsageError
from autocoder.cli.records import newest_first, plain_item
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json
from autocoder.cli.table import print_table
from autocoder.prices import Tokens
from autocoder.record import STATUSES

By = Literal["task", "day", "model"]
UNITS = {"h": "hours", "d": "days", "w": "weeks"}
BATCH = 100  # DynamoDB's own
SANDBOXES = "sandboxes"


class Sum(TypedDict):
    """What some tasks came to. `estimate_usd` is Claude Code's own figure, in no sum."""

    of: str
    tasks: int
    model_usd: float
    sandbox_usd: float
    total_usd: float
    estimate_usd: float | None


class Costs(TypedDict):
    """All that `autocoder cost --json` prints."""

    since: str
    by: By
    rows: list[Sum]
    total: Sum
    without_cost: int
    not_ended: int
    prices_as_of: list[str]


def show_cost(service: Service, since: str, by: By, *, as_json: bool) -> int:
    """Show the sums, and say what is not in them."""
    costs = add_up(service, beginning(since), by)
    if as_json:
        print_json(costs)
        return 0
    heads = (by, "tasks", "model", "sandboxes", "total USD", "estimate")
    if costs["rows"]:
        print_table(heads, [cells(row) for row in (*costs["rows"], costs["total"])], numbers=5)
    for line in remarks(costs, service):
        sys.stderr.write(f"{line}\n")
    return 0


def beginning(since: str) -> datetime:
    """Read when to begin: so long ago, or a date, whose day begins here."""
    if found := re.fullmatch(r"(\d{1,4})([hdw])", since):
        return datetime.now(UTC) - timedelta(**{UNITS[found[2]]: int(found[1])})
    try:
        return datetime.fromisoformat(since).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--since {since}: must be such as 7d, 12h, 2w or 2026-11-01.") from None


def add_up(service: Service, since: datetime, by: By) -> Costs:
    """Read the records since then, and add up what they say."""
    first = since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rows = takewhile(lambda row: row["created_at"] >= first, newest_first(service, STATUSES))
    sums: dict[str, Sum] = {}
    total = nothing("total")
    dates: set[str] = set()
    without = not_ended = 0
    for record in records_of(service, (row["task_id"] for row in rows)):
        cost = record.get("cost")
        not_ended += record["status"] in ("QUEUED", "RUNNING")
        if not cost:
            without += 1
            continue
        dates |= {cost["prices_as_of"]} if "prices_as_of" in cost else set()
        add(total, cost)
        for of, part in parts(record, cost, by):
            add(sums.setdefault(of, nothing(of)), part)
    return Costs(
        since=first,
        by=by,
        rows=list(sums.values()),
        total=total,
        without_cost=without,
        not_ended=not_ended,
        prices_as_of=sorted(dates),
    )


def records_of(service: Service, task_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read many records, in the order of their ids; one that has just expired is left out."""
    table = service.outputs["TasksTable"]
    names = {"#status": "status", "#cost": "cost"}
    ids = iter(task_ids)
    while some := list(islice(ids, BATCH)):
        found: dict[str, Any] = {}
        asked: dict[str, Any] = {
            table: {
                "Keys": [{"task_id": {"S": task_id}} for task_id in some],
                "ProjectionExpression": "task_id, created_at, #status, #cost",
                "ExpressionAttributeNames": names,
            }
        }
        while asked:
            answer = service.dynamodb.batch_get_item(RequestItems=asked)
            items = map(plain_item, answer["Responses"].get(table, []))
            found |= {item["task_id"]: item for item in items}
            asked = answer.get("UnprocessedKeys") or {}
        yield from (found[task_id] for task_id in some if task_id in found)


def parts(record: dict[str, Any], cost: dict[str, Any], by: By) -> Iterator[tuple[str, Any]]:
    """What a record's cost counts for."""
    match by:
        case "task":
            yield record["task_id"], cost
        case "day":
            created = datetime.fromisoformat(record["created_at"]).astimezone()
            yield created.date().isoformat(), cost
        case "model":
            for model, tokens in cost.get("models", {}).items():
                known = {kind: n for kind, n in tokens.items() if kind in Tokens.model_fields}
                yield model, {"model_usd": Tokens(**known).usd(model)}
            yield SANDBOXES, {"sandbox_usd": cost.get("sandbox_usd", 0.0)}


def nothing(of: str) -> Sum:
    """A sum to add to."""
    return Sum(of=of, tasks=0, model_usd=0.0, sandbox_usd=0.0, total_usd=0.0, estimate_usd=None)


def add(to: Sum, cost: dict[str, Any]) -> None:
    """Add a cost; the total is what its parts come to."""
    to["tasks"] += 1
    to["model_usd"] = round(to["model_usd"] + cost.get("model_usd", 0.0), 6)
    to["sandbox_usd"] = round(to["sandbox_usd"] + cost.get("sandbox_usd", 0.0), 6)
    to["total_usd"] = round(to["model_usd"] + to["sandbox_usd"], 6)
    if "estimate_usd" in cost:
        to["estimate_usd"] = round((to["estimate_usd"] or 0.0) + cost["estimate_usd"], 6)


def cells(row: Sum) -> tuple[str, ...]:
    """A sum for people."""
    usd = (row["model_usd"], row["sandbox_usd"], row["total_usd"])
    guess = "" if row["estimate_usd"] is None else f"~{row['estimate_usd']:.2f}"
    return row["of"], str(row["tasks"]), *(f"{amount:.4f}" for amount in usd), guess


def remarks(costs: Costs, service: Service) -> Iterator[str]:
    """What must be known of the sums."""
    if not costs["rows"]:
        yield f"No task of {service.where} since {costs['since']} has a cost."
    if costs["prices_as_of"]:
        dates = ", ".join(costs["prices_as_of"])
        yield f"Reckoned from tokens and sandbox seconds by the prices of {dates}."
    if costs["total"]["estimate_usd"] is not None:
        yield "The estimate is Claude Code's own figure for its runs, and in no sum."
    if number := costs["not_ended"]:
        yield f"{number} {have(number)} not ended: what they spent is counted so far."
    if number := costs["without_cost"]:
        yield f"{number} {have(number)} no cost: rejected, waiting, or in a first iteration."


def have(number: int) -> str:
    """The verb for so many."""
    return "has" if number == 1 else "have"
