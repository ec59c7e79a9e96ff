"""The Tasks table: where every task is, and who may run.

Control writes (status, stage, iteration) and progress writes are conditional on attempt and status,
so a step that was overtaken can change nothing; terminal states absorb. The slots are one item
whose set of holders grows only while it is smaller than the limit: taking and giving back are
idempotent.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from autocoder.errors import TaskClosed
from autocoder.ledger import EMPTY
from autocoder.record import SLOTS as SLOTS
from autocoder.record import STATUS_INDEX as STATUS_INDEX
from autocoder.task import RETRYABLE, TERMINAL, Status, attempt_name

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

QUEUE_INDEX = "queue"  # sparse: `queue` (the priority) is there only while a task waits
WAITS = ("queue", "queue_position")  # what only a task that waits has
PRIORITIES = ("high", "normal")
# What a record has of one attempt alone; a retry begins without. `result` is so, too: where an
# earlier attempt's files lie stays known by the task's folder.
OF_ONE_ATTEMPT = (
    "started_at", "finished_at", "failure", "result", "progress", "checks", "sandbox_id",
    "execution_arn", "cancel_requested",
)  # fmt: skip

Slot = Literal["taken", "full", "not_queued", "busy"]
Entries = dict[tuple[str, ...], Any]  # path in the ledger → what is written there


def now() -> str:
    """The time as every record has it: ISO, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def expiry(retention: timedelta) -> int:
    """When an item that is made now expires, as DynamoDB's TTL wants it."""
    return int((datetime.now(UTC) + retention).timestamp())


def to_item(content: Any) -> Any:
    """Make JSON content storable: DynamoDB has decimals, not floats."""
    return json.loads(json.dumps(content), parse_float=Decimal)


def to_plain(item: Any) -> Any:
    """Make an item plain JSON content again."""
    if isinstance(item, dict):
        return {key: to_plain(value) for key, value in item.items()}
    if isinstance(item, list):
        return [to_plain(value) for value in item]
    if isinstance(item, Decimal):
        return int(item) if item == item.to_integral_value() else float(item)
    return item


class Tasks:
    """Reads and writes task records."""

    def __init__(self, table: "Table", retention_days: int) -> None:
        """Records expire `retention_days` after they were made."""
        self.table = table
        self.retention = timedelta(days=retention_days)

    def create(self, task_id: str, status: Status, **fields: Any) -> bool:
        """Make the record; say whether it was made now.

        A task may take the place of a message that was rejected under its name: the sender has
        corrected it.
        """
        item = {**fields, "task_id": task_id, "status": status, "created_at": now()}
        free: ConditionBase = Attr("task_id").not_exists()
        if status == "QUEUED":
            free = free | Attr("status").eq("REJECTED")
        try:
            self.table.put_item(
                Item=to_item({**item, "expires_at": expiry(self.retention)}),
                ConditionExpression=free,
            )
        except self.table.meta.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def get(self, task_id: str) -> dict[str, Any] | None:
        """Read a record as it is now."""
        item = self.table.get_item(Key={"task_id": task_id}, ConsistentRead=True).get("Item")
        return to_plain(item) if item else None

    def running(
        self, task_id: str, attempt: int, entries: Entries | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Write control fields of a running task; a QUEUED one becomes RUNNING by it."""
        return self._update(
            task_id,
            attempt,
            {"status": "RUNNING", **fields},
            ("QUEUED", "RUNNING"),
            remove=WAITS,
            once={"started_at": now()},
            entries=entries,
        )

    def progress(
        self, task_id: str, attempt: int, progress: dict[str, Any], entries: Entries | None = None
    ) -> dict[str, Any]:
        """Write the progress of a running task and read the record: also the heartbeat."""
        fields = {"progress": progress}
        return self._update(task_id, attempt, fields, ("RUNNING",), entries=entries)

    def release(self, task_id: str, sandbox_id: str) -> None:
        """Note in the ledger that a sandbox is gone, the first time.

        No attempt and no status guards it: an id belongs to one attempt, and one time counts.
        """
        path = f"ledger.sandboxes.{sandbox_id}"
        with suppress(self.table.meta.client.exceptions.ConditionalCheckFailedException):
            self.table.update_item(
                Key={"task_id": task_id},
                UpdateExpression="SET ledger.sandboxes.#id.ended = :now",
                ConditionExpression=Attr(path).exists() & Attr(f"{path}.ended").not_exists(),
                ExpressionAttributeNames={"#id": sandbox_id},
                ExpressionAttributeValues={":now": now()},
            )

    def finish(
        self,
        task_id: str,
        attempt: int,
        status: Status,
        entries: Entries | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """End the task. Its end absorbs: a repeated finish reads what the first one wrote."""
        fields = {"status": status, "finished_at": now(), "stage": "finished", **fields}
        allowed: tuple[Status, ...] = ("QUEUED", "RUNNING")
        try:
            return self._update(task_id, attempt, fields, allowed, remove=WAITS, entries=entries)
        except TaskClosed:
            record = self.get(task_id)
            if record and record["attempt"] == attempt and record["status"] in TERMINAL:
                return record
            raise

    def withdraw(self, task_id: str, attempt: int, **fields: Any) -> bool:
        """End a task that still waits; say whether it did."""
        fields = {"status": "CANCELLED", "finished_at": now(), "stage": "finished", **fields}
        try:
            self._update(task_id, attempt, fields, ("QUEUED",), remove=WAITS)
        except TaskClosed:
            return False
        return True

    def retry(self, task_id: str, attempt: int, message_id: str, **fields: Any) -> bool:
        """Put a task that has ended back into line, as its next attempt; say whether it was.

        `message_id` is noted: the same message, delivered again, starts nothing.
        """
        fields |= {"status": "QUEUED", "stage": "queued", "attempt": attempt + 1}
        fields |= {"updated_at": now(), "expires_at": expiry(self.retention)}
        sets = [f"#{key} = :{key}" for key in fields]
        sets += ["#ledger = if_not_exists(#ledger, :empty)"]
        sets += ["#retries = list_append(if_not_exists(#retries, :none), :me)"]
        gone = ", ".join(f"#{key}" for key in OF_ONE_ATTEMPT)
        try:
            self.table.update_item(
                Key={"task_id": task_id},
                UpdateExpression=f"SET {', '.join(sets)} REMOVE {gone}",
                ConditionExpression=Attr("attempt").eq(attempt)
                & Attr("status").is_in(list(RETRYABLE))
                & ~Attr("retries").contains(message_id),
                ExpressionAttributeNames={
                    f"#{key}": key for key in [*fields, *OF_ONE_ATTEMPT, "retries", "ledger"]
                },
                ExpressionAttributeValues={
                    **{f":{key}": to_item(value) for key, value in fields.items()},
                    ":none": [],
                    ":me": [message_id],
                    ":empty": EMPTY,
                },
            )
        except self.table.meta.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def ask_cancel(self, task_id: str, message_id: str) -> dict[str, Any] | None:
        """Raise the cancel flag of a task that has not ended; None if there is no such task.

        `message_id` is noted: the same message, delivered again, is not for a later attempt.
        """
        try:
            response = self.table.update_item(
                Key={"task_id": task_id},
                UpdateExpression="SET cancel_requested = :yes, "
                "cancels = list_append(if_not_exists(cancels, :none), :me)",
                ConditionExpression=Attr("task_id").exists()
                & ~Attr("status").is_in(list(TERMINAL))
                & ~Attr("cancels").contains(message_id),
                ExpressionAttributeValues={":yes": True, ":none": [], ":me": [message_id]},
                ReturnValues="ALL_NEW",
            )
        except self.table.meta.client.exceptions.ConditionalCheckFailedException:
            return self.get(task_id)
        return dict(to_plain(response["Attributes"]))

    def waiting(self) -> Iterator[dict[str, Any]]:
        """The queued tasks in the order in which they may start."""
        for priority in PRIORITIES:
            yield from self._query(QUEUE_INDEX, Key("queue").eq(priority))

    def with_status(self, status: Status) -> Iterator[dict[str, Any]]:
        """The tasks of a status, oldest first, with the few fields that the index holds."""
        return self._query(STATUS_INDEX, Key("status").eq(status))

    def queue_again(self, task_id: str, attempt: int, priority: str) -> bool:
        """Put a QUEUED task back into the index that dispatch reads; say whether it was."""
        try:
            self._update(task_id, attempt, {"queue": priority}, ("QUEUED",))
        except TaskClosed:
            return False
        return True

    def _query(self, index: str, key: ConditionBase) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        while True:
            page = self.table.query(IndexName=index, KeyConditionExpression=key, **start)
            yield from (to_plain(item) for item in page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def place(self, task_id: str, attempt: int, position: int) -> None:
        """Note a waiting task's place in line; one that waits no more is left as it is."""
        with suppress(TaskClosed):
            self._update(task_id, attempt, {"queue_position": position}, ("QUEUED",))

    def take_slot(self, task_id: str, attempt: int, limit: int, execution_arn: str) -> Slot:
        """Take a slot for a task, if it is still QUEUED, and note which execution it will be.

        One transaction: the slot of a task that meanwhile ran and ended is never taken.
        """
        client = self.table.meta.client
        name = attempt_name(task_id, attempt)
        try:
            client.transact_write_items(TransactItems=[
                {"Update": {
                    "TableName": self.table.name,
                    "Key": {"task_id": task_id},
                    "UpdateExpression": "SET execution_arn = :arn",
                    "ConditionExpression": "#s = :queued AND attempt = :attempt",
                    "ExpressionAttributeNames": {"#s": "status"},
                    "ExpressionAttributeValues": {
                        ":queued": "QUEUED", ":attempt": attempt, ":arn": execution_arn,
                    },
                }},
                {"Update": {
                    "TableName": self.table.name,
                    "Key": {"task_id": SLOTS},
                    "UpdateExpression": "ADD holders :me",
                    "ConditionExpression": "attribute_not_exists(holders) OR size(holders) < :limit"
                    " OR contains(holders, :name)",
                    "ExpressionAttributeValues": {":me": {name}, ":limit": limit, ":name": name},
                }},
            ])  # fmt: skip
        except client.exceptions.TransactionCanceledException as error:
            task, slot = (r["Code"] for r in error.response["CancellationReasons"])
            if task == "ConditionalCheckFailed":
                return "not_queued"
            if slot == "ConditionalCheckFailed":
                return "full"
            if "TransactionConflict" in (task, slot):
                return "busy"
            raise
        return "taken"

    def release_slot(self, task_id: str, attempt: int) -> None:
        """Give the slot back."""
        self.table.update_item(
            Key={"task_id": SLOTS},
            UpdateExpression="DELETE holders :me",
            ExpressionAttributeValues={":me": {attempt_name(task_id, attempt)}},
        )

    def holders(self) -> set[str]:
        """The attempts that hold a slot."""
        item = self.table.get_item(Key={"task_id": SLOTS}, ConsistentRead=True).get("Item", {})
        return set(item.get("holders", set()))  # type: ignore[arg-type]

    def _update(
        self,
        task_id: str,
        attempt: int,
        fields: dict[str, Any],
        allowed: tuple[Status, ...],
        remove: Sequence[str] = (),
        once: Mapping[str, Any] | None = None,
        entries: Entries | None = None,
    ) -> dict[str, Any]:
        """Set `fields`, remove others, and set those `once` that are not there yet.

        `entries` are the ledger's, by their path in it. Those of runs replace what is there; all
        others are written once.
        """
        # A record lives on for the whole term after its last change.
        fields = {**fields, "updated_at": now(), "expires_at": expiry(self.retention)}
        sets = [f"#{key} = :{key}" for key in fields]
        sets += [f"#{key} = if_not_exists(#{key}, :{key})" for key in once or {}]
        values = {f":{key}": to_item(v) for key, v in {**fields, **(once or {})}.items()}
        names = {f"#{key}": key for key in [*fields, *remove, *(once or {})]}
        for number, (path, entry) in enumerate((entries or {}).items()):
            parts = {f"#e{number}p{at}": part for at, part in enumerate(("ledger", *path))}
            at, value = ".".join(parts), f":e{number}"
            sets.append(f"{at} = {value if path[0] == 'runs' else f'if_not_exists({at}, {value})'}")
            names |= parts
            values[value] = to_item(entry)
        expression = "SET " + ", ".join(sets)
        if remove:
            expression += " REMOVE " + ", ".join(f"#{key}" for key in remove)
        try:
            response = self.table.update_item(
                Key={"task_id": task_id},
                UpdateExpression=expression,
                ConditionExpression=Attr("attempt").eq(attempt) & Attr("status").is_in(allowed),
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        except self.table.meta.client.exceptions.ConditionalCheckFailedException:
            raise TaskClosed.for_attempt(task_id, attempt) from None
        return dict(to_plain(response["Attributes"]))
