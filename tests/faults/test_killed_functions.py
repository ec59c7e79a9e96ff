"""A function that is killed while it works is called again, and the task ends as it should.

For the moment of a kill the embedded AWS stands still: nobody hears what the function says then, so
one that works dies, and not one that has answered.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from tests.workflow.support import asked, ended, executions, feed, function, read, send, shipped
from tests.workflow.support import task as record_of

# Each step is killed as soon as it has begun; one that takes a while also half-way, which is when
# the feed tells of this.
KILLS = [
    ("PlanTask", None),
    ("CreateSandbox", None),
    ("RunClaudeCode", None),
    ("RunClaudeCode", "tool"),
    ("TestAndBuild", None),
    ("TestAndBuild", "check_started"),
    ("DecideNext", None),
    ("VerifyClean", None),
    ("VerifyClean", "clean_room"),
    ("ExtractArtifacts", None),
    ("FinishTask", None),
]
TRIES = 3  # a quick step may have ended before it is seen to begin


@pytest.mark.timeout(300)
def test_with_every_step_killed_the_task_succeeds_with_one_run_of_the_agent(
    cloud: LocalCloud, scenarios: Path
) -> None:
    died: Counter[str] = Counter()
    for number in range(TRIES):
        task_id = f"killed-{number}"
        died |= killed_at_every_step(cloud, slow(scenarios, task_id), task_id)
        if died == Counter(step for step, _ in KILLS):
            return
    pytest.fail(f"Not every kill came while the function was at work: {died}")


def slow(scenarios: Path, task_id: str) -> Scenario:
    """A task whose agent and whose checks can be met at work."""
    content = shipped(scenarios / "planned", task_id).model_dump()
    content["runs"][0][1]["delay_s"] = 3
    content["message"]["checks"] = {"slow": "sleep 3"}
    return Scenario.model_validate(content)


def killed_at_every_step(cloud: LocalCloud, scenario: Scenario, task_id: str) -> Counter[str]:
    """Run a task to its good end, kill its functions, and count the deaths of each step."""
    over = threading.Event()
    killer = threading.Thread(target=kill_each, args=(cloud, task_id, over))
    killer.start()
    try:
        record = ended(cloud, send(cloud, scenario))
    finally:
        over.set()
        killer.join()
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)
    assert executions(cloud, task_id) == [f"{task_id}-1"]
    assert json.loads(read(cloud, task_id, "manifest.json"))["files"]
    assert asked(cloud, task_id) == [(1, step) for step in range(len(scenario.runs[0]))]
    slots = cloud.table("TasksTable").get_item(Key={"task_id": "#slots"}).get("Item", {})
    assert f"{task_id}-1" not in slots.get("holders", set())
    return deaths(cloud, record["execution_arn"])


def kill_each(cloud: LocalCloud, task_id: str, over: threading.Event) -> None:
    """Kill the steps one after the other, until the task is over."""
    server = embedded_aws(cloud)
    for step, half_way in KILLS:
        while not over.is_set() and not met(cloud, task_id, step, half_way):
            time.sleep(0.002)
        os.kill(server, signal.SIGSTOP)
        try:
            send_signal(signal.SIGKILL, workers(cloud, step))
        finally:
            os.kill(server, signal.SIGCONT)


def met(cloud: LocalCloud, task_id: str, step: str, half_way: str | None) -> bool:
    """Whether the step works on the task, by its log, or has come half-way, by the feed."""
    if half_way:
        return half_way in [entry["kind"] for entry in feed(cloud, task_id)]
    return any(
        "step begins" in line and f'"{task_id}"' in line
        for log in (cloud.folder / "logs").glob(f"*{step}*")
        for line in log.read_text(errors="replace").splitlines()
    )


def deaths(cloud: LocalCloud, execution: str) -> Counter[str]:
    """How often a function died, by the step that it was called for."""
    pages = cloud.client("stepfunctions").get_paginator("get_execution_history")
    found: Counter[str] = Counter()
    step = ""
    for page in pages.paginate(executionArn=execution):
        for event in page["events"]:
            step = event.get("stateEnteredEventDetails", {}).get("name", step)
            found[step] += "Runtime.ExitError" in json.dumps(event, default=str)
    return +found


def test_an_intake_and_a_dispatch_that_are_killed_are_repeated(
    cloud: LocalCloud, scenarios: Path, quick_redelivery: None
) -> None:
    cloud.client("lambda").invoke(FunctionName=function(cloud, "DispatchTasks"))
    for step in ("StartTask", "DispatchTasks"):  # each has a process that waits; now it stops
        assert workers(cloud, step)
        send_signal(signal.SIGSTOP, workers(cloud, step))
    log = cloud.folder / "logs" / "aws.log"
    before = log.read_text()
    task_id = send(cloud, shipped(scenarios / "first-try", "taken-in-twice"))
    while not in_flight(cloud):
        time.sleep(0.1)
    time.sleep(1)  # it is in the hands of the process that stopped
    send_signal(signal.SIGKILL, workers(cloud, "StartTask"))
    while not record_of(cloud, task_id):
        time.sleep(0.1)
    time.sleep(1)  # and so is its event
    send_signal(signal.SIGKILL, workers(cloud, "DispatchTasks"))
    record = ended(cloud, task_id)
    assert (record["status"], executions(cloud, task_id)) == ("SUCCEEDED", [f"{task_id}-1"])
    died = [line for line in log.read_text()[len(before) :].splitlines() if "ExitError" in line]
    assert any("TaskQueue" in line for line in died), died
    assert any("DispatchTasks" in line for line in died), died


@pytest.fixture
def quick_redelivery(cloud: LocalCloud) -> Iterator[None]:
    """A message that nobody deletes comes again after two seconds, not after minutes."""
    sqs, queue, name = cloud.client("sqs"), cloud.outputs["TaskQueueUrl"], "VisibilityTimeout"
    before = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"]
    for attributes in ({name: "2"}, before):
        sqs.set_queue_attributes(QueueUrl=queue, Attributes=attributes)
        # The poll that is under way still goes by the old time: this message ends it.
        ended(cloud, cloud.send(json.dumps({"task_id": "nobody", "action": "cancel"})))
        if attributes != before:
            yield


def in_flight(cloud: LocalCloud) -> int:
    """How many messages were received and not deleted."""
    name = "ApproximateNumberOfMessagesNotVisible"
    queue = cloud.outputs["TaskQueueUrl"]
    found = cloud.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=[name])
    return int(found["Attributes"][name])


def workers(cloud: LocalCloud, step: str) -> list[int]:
    """The runtime processes of a function: theirs is the log that they write to."""

    def writes_its_log(process: Path) -> bool:
        log = (process / "fd" / "1").readlink()
        return log.parent == cloud.folder / "logs" and step in log.name

    return processes(writes_its_log)


def embedded_aws(cloud: LocalCloud) -> int:
    """The process of the embedded AWS."""
    called = {b"autocoder.local.aws", str(cloud.folder).encode()}
    (pid,) = processes(lambda p: called <= set((p / "cmdline").read_bytes().split(b"\0")))
    return pid


def processes(wanted: Callable[[Path], bool]) -> list[int]:
    """The processes of this machine that are wanted, by their folders in /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted(process):
                found.append(int(process.name))
        except OSError:
            continue  # it has ended, or is not ours to look at
    return found


def send_signal(number: signal.Signals, pids: list[int]) -> None:
    """Send a signal to each."""
    for pid in pids:
        os.kill(pid, number)
