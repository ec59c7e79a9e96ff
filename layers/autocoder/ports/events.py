"""Telling others: EventBridge for systems, the TaskEvents table for those who watch a task."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr

from autocoder.errors import TransientError
from autocoder.ports.tasks import expiry, now, to_item
from autocoder.task import State

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table
    from mypy_boto3_events import EventBridgeClient

SOURCE = "autocoder"

STAGES = (
    "queued", "planning", "creating_sandbox", "coding", "checking", "deciding", "verifying",
    "extracting", "finished",
)  # fmt: skip


def place(state: State, stage: str, offset: int) -> int:
    """Compute a feed entry's `seq`: a step that is retried writes the same entry, not a second one.

    Its digits: attempt, iteration of the attempt (2), sandbox of the iteration (1), stage (1),
    offset in the job's feed (9). The end comes behind all that the task did. Up to attempt 899 the
    number is below 2**53, so that every JSON reader gets it right.
    """
    box = state.sandbox.of_iteration if state.sandbox else 0
    iteration, sandbox = (99, 9) if stage == "finished" else (state.iteration - state.before, box)
    digits = ((state.attempt * 100 + iteration) * 10 + sandbox) * 10 + STAGES.index(stage)
    return digits * 10**9 + offset


class Events:
    """Emits a task's events."""

    def __init__(
        self, bus: "EventBridgeClient", feed: "Table", *, stack: str, retention_days: int
    ) -> None:
        """`feed` is the TaskEvents table; its entries expire with the tasks.

        `stack` tells the events of several stacks on one bus apart.
        """
        self.bus = bus
        self.stack = stack
        self.feed = feed
        self.retention = timedelta(days=retention_days)

    def emit(self, kind: str, record: dict[str, Any], **detail: Any) -> None:
        """Put an event of this detail type on EventBridge; its id is the same when repeated."""
        parts = [record["task_id"], record["attempt"], kind.lower().replace(" ", "-")]
        if "iteration" in detail:
            parts.append(detail["iteration"])
        content = {
            "id": "-".join(map(str, parts)),
            "stack": self.stack,
            "task_id": record["task_id"],
            "attempt": record["attempt"],
            "metadata": record.get("metadata", {}),
            **detail,
        }
        text = json.dumps(content, ensure_ascii=False)  # escapes would double what metadata takes
        entry = {"Source": SOURCE, "DetailType": kind, "Detail": text}
        answer = self.bus.put_events(Entries=[entry])  # type: ignore[list-item]
        if answer["FailedEntryCount"]:
            reason = answer["Entries"][0].get("ErrorMessage", "no reason given")
            raise TransientError("internal_error", f"EventBridge took no {kind!r} event: {reason}.")

    def note(self, state: State, stage: str, kind: str, *, offset: int = 0, **detail: Any) -> None:
        """Write an entry of the live feed, once."""
        entry = {
            "task_id": state.task_id,
            "seq": place(state, stage, offset),
            "at": now(),
            "kind": kind,
            "detail": detail,
            "expires_at": expiry(self.retention),
        }
        with suppress(self.feed.meta.client.exceptions.ConditionalCheckFailedException):
            self.feed.put_item(Item=to_item(entry), ConditionExpression=Attr("seq").not_exists())
