"""Telling others: EventBridge for systems, the TaskEvents table for those who watch a task."""

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from autocoder.errors import TransientError
from autocoder.ports.tasks import now, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table
    from mypy_boto3_events import EventBridgeClient

SOURCE = "autocoder"

# A feed entry's place is computed, not counted: a step that is retried writes the same entry again
# instead of a second one. Digits: attempt, iteration (2), stage, offset in the job's feed (12);
# attempts up to 8 stay below 2**53, so that every JSON reader gets the number right.
STAGES = ("queued", "creating_sandbox", "coding", "checking", "deciding", "extracting", "finished")


def place(attempt: int, iteration: int, stage: str, offset: int = 0) -> int:
    """Compute a feed entry's `seq`."""
    at = STAGES.index(stage)
    if stage == "finished":
        iteration = 99  # behind all that the task did
    return ((attempt * 100 + iteration) * 10 + at) * 10**12 + offset


class Events:
    """Emits a task's events."""

    def __init__(self, bus: "EventBridgeClient", feed: "Table", retention_days: int) -> None:
        """`feed` is the TaskEvents table; its entries expire with the tasks."""
        self.bus = bus
        self.feed = feed
        self.retention = timedelta(days=retention_days)

    def emit(self, kind: str, task_id: str, attempt: int, **detail: Any) -> None:
        """Put `Task <kind>` on EventBridge; the id lets a consumer see a repetition."""
        content = {
            "id": f"{task_id}-{attempt}-{kind.lower().replace(' ', '-')}",
            "task_id": task_id,
            "attempt": attempt,
            **detail,
        }
        entry = {"Source": SOURCE, "DetailType": kind, "Detail": json.dumps(content)}
        answer = self.bus.put_events(Entries=[entry])  # type: ignore[list-item]
        if answer["FailedEntryCount"]:
            reason = answer["Entries"][0].get("ErrorMessage", "no reason given")
            raise TransientError("internal_error", f"EventBridge took no {kind!r} event: {reason}.")

    def note(self, task_id: str, seq: int, kind: str, **detail: Any) -> None:
        """Write an entry of the live feed."""
        expires_at = int((datetime.now(UTC) + self.retention).timestamp())
        entry = {"task_id": task_id, "seq": seq, "at": now(), "kind": kind, "detail": detail}
        self.feed.put_item(Item=to_item({**entry, "expires_at": expires_at}))
