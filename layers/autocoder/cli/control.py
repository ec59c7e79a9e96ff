"""Ending and repeating tasks: messages on the same queue that tasks come by."""

import json
import sys
import time

from autocoder.cli.problems import UsageError
from autocoder.cli.records import read_record
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json
from autocoder.cli.watch import watch_tasks
from autocoder.record import RETRYABLE, TERMINAL, TaskRecord, stable

TAKEN_WITHIN_S = 120


def cancel(service: Service, task_id: str, *, wait: bool, as_json: bool) -> int:
    """Ask for a task's end; with `wait`, 1 if it ended otherwise."""
    record = read_record(service, task_id)
    if record["status"] in TERMINAL:
        raise UsageError(f"{task_id} has ended already: it is {record['status']}.")
    service.send(json.dumps({"task_id": task_id, "action": "cancel"}))
    if wait:
        while record["status"] not in TERMINAL:
            time.sleep(service.poll_s)
            record = read_record(service, task_id)
    if as_json:
        print_json(stable(record))
    elif wait:
        sys.stdout.write(f"{task_id} is {record['status']}.\n")
    else:
        ends = "now" if record["status"] == "QUEUED" else "at its next heartbeat"
        sys.stdout.write(f"Asked for the end of {task_id}: it comes {ends}.\n")
    return 0 if not wait or record["status"] == "CANCELLED" else 1


def retry(service: Service, task_id: str, *, watch: bool, as_json: bool) -> int:
    """Ask for another attempt at a task that ended without success."""
    record = read_record(service, task_id)
    if record["status"] not in RETRYABLE:
        raise UsageError(
            f"{task_id} is {record['status']}: only a task that FAILED or was CANCELLED can be "
            "tried again."
        )
    message_id = service.send(json.dumps({"task_id": task_id, "action": "retry"}))
    if watch:
        next_attempt(service, record, message_id)
        return watch_tasks(service, [task_id], as_json=as_json, one=True)
    if as_json:
        print_json({"task_id": task_id, "message_id": message_id})
    else:
        attempt = record["attempt"] + 1
        sys.stdout.write(f"Asked for attempt {attempt}: `autocoder watch {task_id}` shows it.\n")
    return 0


def next_attempt(service: Service, before: TaskRecord, message_id: str) -> None:
    """Wait until the message was taken in: the old end must not be mistaken for the new one's."""
    task_id = before["task_id"]
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while read_record(service, task_id)["attempt"] == before["attempt"]:
        if time.monotonic() > deadline:
            raise UsageError(
                f"no new attempt at {task_id} began within {TAKEN_WITHIN_S} s: `autocoder status "
                f"{message_id}` shows whether the message was rejected."
            )
        time.sleep(service.poll_s)
