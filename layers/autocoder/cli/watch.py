"""Showing a task as it goes: the workflow's states, the live feed, the record."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from boto3.dynamodb.conditions import Key

from autocoder.cli.live import View
from autocoder.local.cloud import LocalCloud
from autocoder.local.state import LocalCloudError
from autocoder.ports.tasks import to_plain
from autocoder.task import TERMINAL

POLL_S = 0.25
APPEARS_WITHIN_S = 120
NO_RECORD = (
    f"The message was sent, but no record of it appeared within {APPEARS_WITHIN_S} s. "
    "Run again with --keep DIR and read the functions' logs there."
)

News = tuple[datetime, str, str]


class Watcher:
    """Follows one task by what anybody can read: two tables and the execution's history."""

    def __init__(self, cloud: LocalCloud, view: View) -> None:
        """What is seen goes to the view."""
        self.cloud = cloud
        self.tasks = cloud.table("TasksTable")
        self.feed = cloud.table("TaskEventsTable")
        self.workflow = cloud.client("stepfunctions")
        self.view = view
        self.seen_seq = -1
        self.seen_event = 0
        self.status = ""

    def watch(self, ids: list[str]) -> dict[str, Any]:
        """Show the task until its execution has ended; give its record."""
        appears_by = time.monotonic() + APPEARS_WITHIN_S
        while True:
            self.cloud.check()
            record = next(filter(None, map(self.record, ids)), None)
            if record:
                self.show(record)
                if record["status"] in TERMINAL and self.execution_ended(record):
                    self.show(record)  # what came between the two looks
                    return record
            elif time.monotonic() > appears_by:
                raise LocalCloudError(NO_RECORD)
            time.sleep(POLL_S)

    def record(self, task_id: str) -> dict[str, Any] | None:
        """Read the task's row."""
        item = self.tasks.get_item(Key={"task_id": task_id}, ConsistentRead=True).get("Item")
        return to_plain(item) if item else None

    def show(self, record: dict[str, Any]) -> None:
        """Print what is new, in the order in which it happened."""
        self.view.record = record
        news = [*self.new_states(record), *self.new_entries(record["task_id"])]
        for _, subject, line in sorted(news, key=lambda item: item[0]):
            self.view.say(subject, line)
        if record["status"] != self.status:
            self.status = record["status"]
            self.view.say("DynamoDB", f"{record['task_id']} is {self.status}")

    def new_states(self, record: dict[str, Any]) -> Iterator[News]:
        """The workflow's states that were entered; a Choice is no news."""
        arn = record.get("execution_arn")
        if arn and record["status"] != "QUEUED":  # it is known before it is started
            history = self.workflow.get_execution_history(executionArn=arn, maxResults=1000)
            for event in history["events"]:
                if event["id"] > self.seen_event and event["type"] == "TaskStateEntered":
                    name = event["stateEnteredEventDetails"]["name"]
                    yield event["timestamp"], "workflow", name
                self.seen_event = max(self.seen_event, event["id"])

    def new_entries(self, task_id: str) -> Iterator[News]:
        """The feed's entries that are worth a line."""
        after = Key("task_id").eq(task_id) & Key("seq").gt(self.seen_seq)
        for item in self.feed.query(KeyConditionExpression=after)["Items"]:
            entry = to_plain(item)
            self.seen_seq = entry["seq"]
            self.view.entry(entry["kind"], entry["detail"])
            for subject, line in describe(entry["kind"], entry["detail"]):
                yield datetime.fromisoformat(entry["at"]), subject, line

    def execution_ended(self, record: dict[str, Any]) -> bool:
        """A task has ended a moment before its execution; one that never started has none."""
        arn = record.get("execution_arn")
        if not (arn and record.get("started_at")):
            return True
        status = self.workflow.describe_execution(executionArn=arn)["status"]
        return bool(status != "RUNNING")


def describe(kind: str, detail: dict[str, Any]) -> list[tuple[str, str]]:
    """Say a feed entry in lines; the start of a check is not worth one."""
    match kind:
        case "planned" if detail["status"] == "planned":
            size = f"{detail['files']} files, {detail['risks']} risks"
            return [("plan", f"{detail['name']}: {size}")]
        case "planned" if detail["status"] == "unavailable":
            return [("plan", f"none: {detail['reason']}")]
        case "sandbox":
            restored = ", restored from the checkpoint" if detail["restored"] else ""
            return [("sandbox", f"{detail['sandbox_id']}{restored}")]
        case "tool":
            return [("claude", f"{detail['tool']} {detail['target']}")]
        case "tool_failed":
            return [("claude", f"failed: {detail['problem'].splitlines()[0]}")]
        case "agent_ended":
            return [("claude", f"ended: {detail['outcome'].replace('_', ' ')}")]
        case "clean_room":
            return [("clean room", f"{detail['sandbox_id']}: the project and nothing else")]
        case "checks_ended" | "clean_room_ended":
            where = "clean room" if kind == "clean_room_ended" else "checks"
            lines = []
            for check in detail["checks"]:
                lines.append(("check", f"{check['name']}: {check['says']}"))
                lines += [("", f"    {line}") for line in check["end"].splitlines()]
            return [*lines, (where, "green" if detail["green"] else "red")]
        case _:
            return []
