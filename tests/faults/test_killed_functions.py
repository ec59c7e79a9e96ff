"""A function that is killed while it works is called again, and the task ends as it should."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autocoder.local.cloud import LocalCloud
from tests.workflow.support import ended, executions, read, send, shipped

STEPS = [
    "CreateSandbox",
    "RunClaudeCode",
    "TestAndBuild",
    "DecideNext",
    "ExtractArtifacts",
    "FinishTask",
]


def workers(cloud: LocalCloud, step: str) -> list[int]:
    """The runtime processes of a function: theirs is the log that they write to."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            log = str((process / "fd" / "1").readlink())
        except OSError:
            continue  # it has ended, or is not ours to look at
        if log.startswith(str(cloud.folder / "logs")) and step in Path(log).name:
            found.append(int(process.name))
    return found


def kill_once(cloud: LocalCloud, task_id: str, step: str) -> int:
    """Kill the function as soon as its log says that it has begun to work on the task."""
    while not any(
        "step begins" in line and f'"{task_id}"' in line
        for log in (cloud.folder / "logs").glob(f"*{step}*")
        for line in log.read_text(errors="replace").splitlines()
    ):
        time.sleep(0.005)
    killed = 0
    for pid in workers(cloud, step):
        os.kill(pid, signal.SIGKILL)
        killed += 1
    return killed


def test_with_every_step_killed_once_the_task_succeeds_with_one_run_of_the_agent(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = "killed"
    with ThreadPoolExecutor(len(STEPS)) as pool:
        kills = [pool.submit(kill_once, cloud, task_id, step) for step in STEPS]
        send(cloud, shipped(scenarios / "first-try", task_id))
        record = ended(cloud, task_id)
        assert all(kill.result() for kill in kills)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)
    assert executions(cloud, task_id) == [f"{task_id}-1"]
    assert json.loads(read(cloud, task_id, "manifest.json"))["files"]
    asked = [json.loads(line) for line in (cloud.folder / "gateway.jsonl").read_text().splitlines()]
    assert [e["step"] for e in asked if e.get("task") == task_id] == [0, 1, 2]
    died = [event for event in history(cloud, task_id) if "Runtime.ExitError" in event]
    assert died, "no kill came while a function was at work"
    slots = cloud.table("TasksTable").get_item(Key={"task_id": "#slots"}).get("Item", {})
    assert f"{task_id}-1" not in slots.get("holders", set())


def history(cloud: LocalCloud, task_id: str) -> list[str]:
    """The execution's events, as text."""
    arn = cloud.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
    client = cloud.client("stepfunctions")
    pages = client.get_paginator("get_execution_history")
    found = pages.paginate(executionArn=f"{arn}:{task_id}-1")
    return [json.dumps(event, default=str) for page in found for event in page["events"]]
