"""SQS, DynamoDB and S3: what must be one step, in one step."""

import copy
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

# fmt: off
QUEUE_OPERATIONS = (
    "change_message_visibility", "change_message_visibility_batch", "create_queue",
    "delete_message", "delete_message_batch", "delete_queue", "get_queue_attributes",
    "purge_queue", "send_message", "send_message_batch", "set_queue_attributes",
)
# fmt: on


def lock_queues() -> None:
    """moto's queues have no lock, so a message can be received twice. SQS delivers it once.

    Its long poll also looks only once a second; this one wakes with the message.
    """
    from moto.sqs.models import Queue, SQSBackend

    changed = threading.Condition(threading.RLock())
    receive, add = SQSBackend.receive_message, Queue.add_message

    def receive_message(
        self: Any,
        queue_name: str,
        count: int,
        wait_seconds_timeout: float,
        visibility_timeout: int,
        message_attribute_names: list[str] | None = None,
    ) -> list[Any]:
        ends = time.monotonic() + float(wait_seconds_timeout or 0)
        with changed:
            while True:
                found: list[Any] = receive(
                    self, queue_name, count, 0, visibility_timeout, message_attribute_names
                )
                remaining = ends - time.monotonic()
                if found or remaining <= 0:
                    return found
                changed.wait(min(remaining, _next_visible(self.get_queue(queue_name))))

    def add_message(self: Any, message: Any) -> None:
        add(self, message)
        changed.notify_all()

    SQSBackend.receive_message = receive_message
    Queue.add_message = add_message
    for name in QUEUE_OPERATIONS:
        setattr(SQSBackend, name, _notifying(changed, getattr(SQSBackend, name)))


def _next_visible(queue: Any) -> float:
    """Seconds until a message that is delayed or in flight can be received."""
    hidden = [max(m.visible_at, m.delayed_until) / 1000 for m in queue._messages]
    return max(0.001, min(hidden, default=float("inf")) - time.time() + 0.001)


def _notifying(changed: threading.Condition, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with changed:
            try:
                return method(*args, **kwargs)
            finally:
                changed.notify_all()

    return call


def _locked(lock: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return method(*args, **kwargs)

    return call


def lock_tables() -> None:
    """moto checks a condition and writes in two steps. DynamoDB's write is one."""
    from moto.dynamodb.responses import DynamoHandler

    DynamoHandler.call_action = _locked(threading.RLock(), DynamoHandler.call_action)


def snapshot_tables_cheaply() -> None:
    """moto copies whole tables, item by item, once for each write of a transaction.

    Here a copy shares the items, and an update works on a copy of its one item.
    """
    from moto.dynamodb.models import DynamoDBBackend
    from moto.dynamodb.models.table import Table

    update = DynamoDBBackend.update_item

    def share_items(self: Any, _: Any) -> Any:
        snapshot = copy.copy(self)
        snapshot.items = defaultdict(dict)
        for key, found in self.items.items():
            snapshot.items[key] = dict(found) if self.has_range_key else found
        return snapshot

    def update_item(self: Any, table_name: str, key: Any, *args: Any, **kwargs: Any) -> Any:
        table = self.get_table(table_name)
        hash_value, range_value = self.get_keys_value(table, key)
        if item := table.get_item(hash_value, range_value):
            place = table.items[hash_value] if table.has_range_key else table.items
            place[range_value if table.has_range_key else hash_value] = copy.deepcopy(item)
        return update(self, table_name, key, *args, **kwargs)

    Table.__deepcopy__ = share_items
    DynamoDBBackend.update_item = update_item


def lock_objects() -> None:
    """moto checks `If-None-Match: *` and puts in two steps. S3 lets exactly one writer win."""
    from moto.s3.responses import S3Response

    lock = threading.RLock()
    for name in ("put_object", "delete_object", "_key_response_post"):
        setattr(S3Response, name, _locked(lock, getattr(S3Response, name)))
