"""Sending a task to the local cloud and waiting for its end."""

import json
import time
from pathlib import Path
from typing import Any

from boto3.dynamodb.conditions import Key

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario, load
from autocoder.ports.tasks import to_plain
from autocoder.task import TERMINAL


def shipped(folder: Path, task_id: str) -> Scenario:
    """A scenario of the project's, under another task id."""
    scenario = load(folder)
    return scenario.model_copy(update={"message": {**scenario.message, "task_id": task_id}})


def send(cloud: LocalCloud, scenario: Scenario) -> str:
    """Let the gateway answer for the scenario's task, and send its message."""
    task_id = str(scenario.message["task_id"])
    cloud.add_scenario(scenario, task_id)
    cloud.send(json.dumps(cloud.with_source(scenario, scenario.task_message())))
    return task_id


def task(cloud: LocalCloud, task_id: str) -> dict[str, Any] | None:
    """The task's record."""
    found = cloud.table("TasksTable").get_item(Key={"task_id": task_id}).get("Item")
    return to_plain(found) if found else None


def feed(cloud: LocalCloud, task_id: str) -> list[dict[str, Any]]:
    """The task's live feed."""
    condition = Key("task_id").eq(task_id)
    found = cloud.table("TaskEventsTable").query(KeyConditionExpression=condition)
    return [to_plain(item) for item in found["Items"]]


def ended(cloud: LocalCloud, task_id: str) -> dict[str, Any]:
    """Wait for the task's end; the test's own time-out bounds it."""
    while True:
        record = task(cloud, task_id)
        if record and record["status"] in TERMINAL and not executions(cloud, task_id, "RUNNING"):
            return record
        time.sleep(0.1)


def executions(cloud: LocalCloud, task_id: str, *statuses: str) -> list[str]:
    """The names of the task's executions."""
    client = cloud.client("stepfunctions")
    machine = cloud.outputs["StateMachineArn"]
    found = client.list_executions(stateMachineArn=machine)["executions"]
    return [
        e["name"]
        for e in found
        if e["name"].rpartition("-")[0] == task_id and (not statuses or e["status"] in statuses)
    ]


def read(cloud: LocalCloud, task_id: str, name: str) -> bytes:
    """One of the task's objects in S3."""
    key = f"tasks/{task_id}/{name}"
    body = cloud.client("s3").get_object(Bucket=cloud.outputs["BucketName"], Key=key)["Body"]
    return bytes(body.read())


def requests(cloud: LocalCloud, task_id: str) -> list[dict[str, Any]]:
    """What was asked of the gateway for a task."""
    log = cloud.folder / "gateway.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [entry for entry in map(json.loads, lines) if entry.get("task") == task_id]


def states(cloud: LocalCloud, record: dict[str, Any]) -> list[str]:
    """The workflow's states in the order in which the task entered them."""
    history = cloud.client("stepfunctions").get_execution_history(
        executionArn=record["execution_arn"], maxResults=1000
    )
    kind = "TaskStateEntered"
    entered = [event for event in history["events"] if event["type"] == kind]
    return [event["stateEnteredEventDetails"]["name"] for event in entered]


def asked(cloud: LocalCloud, task_id: str) -> list[tuple[int, int]]:
    """Which step of which run the agent asked the model for, in this order."""
    return [(e["run"], e["step"]) for e in requests(cloud, task_id) if e.get("run")]


def function(cloud: LocalCloud, part: str) -> str:
    """The physical name of a deployed function."""
    functions = cloud.client("lambda").list_functions()["Functions"]
    (name,) = [f["FunctionName"] for f in functions if part in f["FunctionName"]]
    return str(name)
