"""Reading the tables of a service: a task's record, many tasks by status, the live feed."""

import heapq
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, cast

from autocoder.cli.problems import UsageError
from autocoder.cli.service import Service
from autocoder.record import STATUS_INDEX, TASK_ID, Status, TaskRecord, TaskRow


def plain(value: dict[str, Any]) -> Any:
    """Make one of DynamoDB's typed values plain."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            number = float(content)
            return int(number) if number.is_integer() else number
        case "M":
            return plain_item(content)
        case "L":
            return [plain(one) for one in content]
        case "NULL":
            return None
        case _:
            return content


def plain_item(item: dict[str, Any]) -> dict[str, Any]:
    """Make an item plain."""
    return {name: plain(value) for name, value in item.items()}


def find_record(service: Service, task_id: str) -> TaskRecord | None:
    """The task's record as it is now, if there is one."""
    if not re.fullmatch(TASK_ID, task_id):
        rule = "1 to 64 of a-z, 0-9 and '-'"
        raise UsageError(f"{task_id!r} is no task's id: one has {rule}.")
    answer = service.dynamodb.get_item(
        TableName=service.outputs["TasksTable"],
        Key={"task_id": {"S": task_id}},
        ConsistentRead=True,
    )
    return cast(TaskRecord, plain_item(answer["Item"])) if "Item" in answer else None


def read_record(service: Service, task_id: str) -> TaskRecord:
    """The task's record; that there is none is said with where it was looked for."""
    record = find_record(service, task_id)
    if record is None:
        raise UsageError(
            f"there is no task {task_id} in {service.where}: `autocoder list` shows those that are "
            "there. Records expire, and --stack, --region, --profile or --local look elsewhere."
        )
    return record


def newest_first(
    service: Service, statuses: Iterable[Status], after: tuple[str, str] | None = None
) -> Iterator[TaskRow]:
    """The tasks of these statuses; `after` is (created_at, task_id) of the last that was seen."""
    queries = [rows_of(service, status, after[0] if after else None) for status in statuses]
    for row in heapq.merge(*queries, key=place, reverse=True):
        if after is None or place(row) < after:  # one that changed its status meanwhile comes twice
            after = place(row)
            yield row


def place(row: TaskRow) -> tuple[str, str]:
    """What orders tasks: two of the same millisecond go by their names."""
    return row["created_at"], row["task_id"]


def rows_of(service: Service, status: Status, until: str | None) -> Iterator[TaskRow]:
    """One status's tasks, by one query of the index, newest first; pages as they are needed."""
    condition, values = "#s = :status", {":status": str(status)}
    if until:
        condition += " AND created_at <= :until"
        values[":until"] = until
    found = pages(
        service,
        TableName=service.outputs["TasksTable"],
        IndexName=STATUS_INDEX,
        KeyConditionExpression=condition,
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={name: {"S": text} for name, text in values.items()},
        ScanIndexForward=False,
        Limit=100,
    )
    rows = (cast(TaskRow, item) for item in found)
    for _, alike in groupby(rows, key=lambda row: row["created_at"]):
        yield from sorted(alike, key=place, reverse=True)


def before(record: TaskRecord) -> int:
    """How many iterations earlier attempts had: numbers go on, places in the feed begin anew."""
    return int((record.get("resumes") or {}).get("iteration", 0))


def begins(attempt: int, iteration: int = 0) -> int:
    """Where an attempt's, or its iteration's, entries begin in the feed (ports.events.place)."""
    return (attempt * 100 + iteration) * 10**11


def iteration_at(seq: int, record: TaskRecord) -> int:
    """The iteration that a place in the feed belongs to."""
    return seq // 10**11 % 100 + before(record)


def entries(service: Service, task_id: str, after: int = -1) -> Iterator[dict[str, Any]]:
    """The live feed's entries behind a place, in their order."""
    return pages(
        service,
        TableName=service.outputs["TaskEventsTable"],
        KeyConditionExpression="task_id = :id AND seq > :seq",
        ExpressionAttributeValues={":id": {"S": task_id}, ":seq": {"N": str(after)}},
        ConsistentRead=True,
    )


def pages(service: Service, **query: Any) -> Iterator[dict[str, Any]]:
    """A query's items, page by page."""
    while True:
        page = service.dynamodb.query(**query)
        yield from map(plain_item, page["Items"])
        if "LastEvaluatedKey" not in page:
            return
        query["ExclusiveStartKey"] = page["LastEvaluatedKey"]
