"""Showing tasks as they go: the workflow's states, the live feed, the record."""

import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from autocoder.cli.ended import show_end
from autocoder.cli.live import Say, TaskView, View
from autocoder.cli.records import begins, entries, find_record, read_record
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json
from autocoder.local.state import LocalCloudError
from autocoder.record import TERMINAL, TaskRecord, stable

APPEARS_WITHIN_S = 120
NO_RECORD = (
    f"The message was sent, but no record of it appeared within {APPEARS_WITHIN_S} s. "
    "Run again with --keep DIR and read the functions' logs there."
)

News = tuple[datetime, str, str]


def watch_tasks(service: Service, task_ids: list[str], *, as_json: bool, one: bool = False) -> int:
    """Show tasks until all have ended; 0 if all succeeded. Ctrl-C ends the watching alone.

    As JSON they are a list, but for a command that is about `one` task.
    """
    task_ids = list(dict.fromkeys(task_ids))
    for task_id in task_ids:
        read_record(service, task_id)  # a wrong one is said before any is watched
    view = View(sys.stderr if as_json else sys.stdout, len(task_ids))
    watchers = [
        Watcher(service, task, named(view.say, task_id if len(task_ids) > 1 else ""), [task_id])
        for task_id, task in zip(task_ids, view.tasks, strict=True)
    ]
    try:
        with view.live:
            records = follow(watchers, service.poll_s)
    except KeyboardInterrupt:
        names = " ".join(task_ids)
        sys.stderr.write(
            f"No longer watching; the work goes on. `autocoder watch {names}` takes it up again, "
            f"`autocoder cancel {task_ids[0]}` would end it.\n"
        )
        return 130
    if as_json:
        ended = [stable(record) for record in records]
        print_json(ended[0] if one else ended)
    return 0 if all(record["status"] == "SUCCEEDED" for record in records) else 1


def named(say: Say, name: str) -> Say:
    """Say with each line whose it is, where there are several."""
    return (lambda subject, line: say(subject, f"{name}: {line}")) if name else say


def follow(
    watchers: "list[Watcher]", poll_s: float, check: Callable[[], None] = lambda: None
) -> list[TaskRecord]:
    """Look at all of them again and again, until all have ended; give their records."""
    while True:
        check()
        for watcher in [one for one in watchers if not one.ended]:
            watcher.look()
        if all(watcher.ended for watcher in watchers):
            return [watcher.record for watcher in watchers if watcher.record]
        time.sleep(poll_s)


class Watcher:
    """Follows one task by what anybody can read: two tables and the execution's history."""

    def __init__(self, service: Service, view: TaskView, say: Say, ids: list[str]) -> None:
        """`ids` are those that the task may have; what is seen goes to `view` and `say`."""
        self.service = service
        self.view = view
        self.say = say
        self.ids = ids
        self.appears_by = time.monotonic() + APPEARS_WITHIN_S
        self.record: TaskRecord | None = None
        self.ended = False
        self.seen_seq = -1
        self.seen_event = 0
        self.stood: tuple[object, ...] = ()
        self.status = ""

    def look(self) -> None:
        """Show what is new; note the end, which the execution's end completes."""
        found = (find_record(self.service, task_id) for task_id in self.ids)
        self.record = record = next(filter(None, found), None)
        if record is None:
            if time.monotonic() > self.appears_by:
                raise LocalCloudError(NO_RECORD)
            return
        self.seen_seq = max(self.seen_seq, begins(record["attempt"]) - 1)
        self.show(record)
        if record["status"] in TERMINAL and self.execution_ended(record):
            self.stood = ()
            self.show(record)  # what came between the two looks
            show_end(self.service, record, self.say)
            self.ended = True

    def show(self, record: TaskRecord) -> None:
        """Say what is new, in the order in which it happened."""
        self.view.record = dict(record)
        news = [*self.new_states(record), *self.new_entries(record["task_id"])]
        for _, subject, line in sorted(news, key=lambda item: item[0]):
            self.say(subject, line)
        if record["status"] != self.status:
            self.status = record["status"]
            self.say("DynamoDB", f"{record['task_id']} is {self.status}")

    def new_states(self, record: TaskRecord) -> Iterator[News]:
        """The workflow's states that were entered; a Choice is no news.

        A state changes where the record stands, so the history is read only when that changed.
        """
        stands = tuple(record.get(key) for key in ("status", "stage", "iteration", "sandbox_id"))
        arn = record.get("execution_arn")
        if not arn or record["status"] == "QUEUED" or stands == self.stood:
            return  # the execution is known before it is started
        self.stood = stands
        for event in sorted(self.new_events(arn), key=lambda event: int(event["id"])):
            self.seen_event = event["id"]
            if event["type"] == "TaskStateEntered":
                name = event["stateEnteredEventDetails"]["name"]
                yield event["timestamp"], "workflow", name

    def new_events(self, arn: str) -> list[dict[str, Any]]:
        """The history's events that were not seen, by as few pages as they take."""
        found: list[dict[str, Any]] = []
        more: dict[str, str] = {}
        client = self.service.client("stepfunctions")
        while True:
            try:
                page = client.get_execution_history(
                    executionArn=arn, reverseOrder=True, maxResults=100, **more
                )
            except client.exceptions.ExecutionDoesNotExist:
                return []  # AWS forgets one 90 days after its end
            fresh = [event for event in page["events"] if event["id"] > self.seen_event]
            found += fresh
            if len(fresh) < len(page["events"]) or "nextToken" not in page:
                return found
            more = {"nextToken": page["nextToken"]}

    def new_entries(self, task_id: str) -> Iterator[News]:
        """The feed's entries that are worth a line."""
        for entry in entries(self.service, task_id, self.seen_seq):
            self.seen_seq = entry["seq"]
            self.view.entry(entry["kind"], entry["detail"])
            for subject, line in describe(entry["kind"], entry["detail"]):
                yield datetime.fromisoformat(entry["at"]), subject, line

    def execution_ended(self, record: TaskRecord) -> bool:
        """A task has ended a moment before its execution; one that never started has none."""
        arn = record.get("execution_arn")
        if not (arn and record.get("started_at")):
            return True
        client = self.service.client("stepfunctions")
        try:
            found = client.describe_execution(executionArn=arn)
        except client.exceptions.ExecutionDoesNotExist:
            return True
        return bool(found["status"] != "RUNNING")


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
            return [("claude", f"failed: {next(iter(detail['problem'].splitlines()), 'no word')}")]
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
