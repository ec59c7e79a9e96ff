"""Whole tasks: a message on the queue, the deployed stack, the real CLI in a real sandbox."""

import json
import time
import uuid
from pathlib import Path

import pytest

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from tests.workflow.support import asked, ended, executions, feed, read, send, shipped, task


def test_a_red_python_project_is_fixed_in_the_second_iteration(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = send(cloud, shipped(scenarios / "fix-loop", "python-loop"))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 2)
    assert record["checks"]["test"]["tests"] == {
        "ran": 3,
        "failed": 0,
        "skipped": 0,
        "xfailed": 0,
        "deselected": 0,
    }
    manifest = json.loads(read(cloud, task_id, "manifest.json"))
    assert [f["path"] for f in manifest["files"]] == ["README.md", "slugs.py", "test_slugs.py"]
    assert b"unicodedata" in read(cloud, task_id, "files/slugs.py")
    first = json.loads(read(cloud, task_id, "iterations/01/checks.json"))
    assert {c["name"]: c["status"] for c in first["checks"]}["test"] == "failed"
    assert b"SUCCEEDED" in read(cloud, task_id, "summary.md")


def test_the_fix_resumes_the_agents_session_with_the_failure(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = send(cloud, shipped(scenarios / "fix-loop", "resumed-loop"))
    ended(cloud, task_id)
    sessions = []
    for number in (1, 2):
        lines = read(cloud, task_id, f"iterations/{number:02}/claude.jsonl").splitlines()
        sessions.append(json.loads(lines[-1])["session_id"])
    assert sessions[0] == sessions[1]
    prompt = read(cloud, task_id, "iterations/02/prompt.md").decode()
    assert "exit code 1" in prompt
    assert "observer.py pytest" in prompt
    assert "'-what-now-' == 'what-now'" in prompt


def test_a_red_node_project_is_fixed_in_the_second_iteration(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = send(cloud, shipped(scenarios / "node-fix-loop", "node-loop"))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 2)
    assert record["checks"]["test"]["tests"] == {
        "ran": 3,
        "failed": 0,
        "skipped": 0,
        "xfailed": 0,
        "deselected": 0,
    }


def test_a_project_that_is_green_at_once_takes_one_iteration(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = send(cloud, shipped(scenarios / "first-try", "green"))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)


def test_what_the_agent_says_does_not_make_it_green(cloud: LocalCloud, scenarios: Path) -> None:
    task_id = send(cloud, shipped(scenarios / "never-green", "red"))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("FAILED", 3)
    assert record["failure"]["code"] == "checks_failed"
    assert record["failure"]["hint"]
    assert record["result"]["files"] == 2  # what is there is kept
    assert json.loads(read(cloud, task_id, "result.json"))["status"] == "FAILED"


def test_a_task_that_failed_is_retried_to_green_from_its_last_checkpoint(
    cloud: LocalCloud, scenarios: Path
) -> None:
    red = shipped(scenarios / "never-green", "retried").model_dump()
    right = "def is_prime(n):\n    return n > 1 and all(n % i for i in range(2, n))\n"
    fix = {"tool": "Write", "input": {"file_path": "primes.py", "content": right}}
    red["message"]["limits"]["max_iterations"] = 2
    red["runs"] = [*red["runs"], [{"tool": "Bash", "input": {"command": "cat primes.py"}}, fix]]
    task_id = send(cloud, Scenario.model_validate(red))
    failed = ended(cloud, task_id)
    assert (failed["status"], failed["iteration"], failed["attempt"]) == ("FAILED", 2, 1)
    before = read(cloud, task_id, "iterations/02/checks.json")

    cloud.send(json.dumps({"task_id": task_id, "action": "retry"}))
    while (task(cloud, task_id) or {}).get("attempt") != 2:
        time.sleep(0.1)
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"], record["attempt"]) == ("SUCCEEDED", 3, 2)
    assert sorted(executions(cloud, task_id)) == ["retried-1", "retried-2"]
    assert read(cloud, task_id, "iterations/02/checks.json") == before
    assert json.loads(read(cloud, task_id, "manifest.json"))["attempt"] == 2
    prompt = read(cloud, task_id, "iterations/03/prompt.md").decode()
    assert "iteration 3 of 4." in prompt
    assert "test_two_is_prime" in prompt
    assert "## Specification" in prompt
    sessions = [
        json.loads(read(cloud, task_id, f"iterations/0{n}/claude.jsonl").splitlines()[-1])
        for n in (2, 3)
    ]
    assert sessions[0]["session_id"] != sessions[1]["session_id"]
    assert record["cost"]["sandbox_seconds"] > failed["cost"]["sandbox_seconds"]
    result = json.loads(read(cloud, task_id, "result.json"))
    assert [one["iteration"] for one in result["iterations"]] == [1, 2, 3]
    kinds = [entry["kind"] for entry in feed(cloud, task_id)]
    assert kinds.count("finished") == kinds.count("queued") == 2
    assert kinds[-1] == "finished"


def test_the_same_message_three_times_is_one_task(cloud: LocalCloud, scenarios: Path) -> None:
    scenario = shipped(scenarios / "first-try", "thrice")
    for _ in range(3):
        send(cloud, scenario)
    record = ended(cloud, "thrice")
    send(cloud, scenario)  # and once more when it is over
    time.sleep(1)
    assert task(cloud, "thrice") == record
    assert executions(cloud, "thrice") == ["thrice-1"]


def test_a_bad_message_is_rejected_and_kept(cloud: LocalCloud) -> None:
    body = json.dumps({"specification": "x", "task_id": "bad", "colour": "blue"})
    cloud.send(body)
    record = ended(cloud, "bad")
    assert record["status"] == "REJECTED"
    assert "colour" in record["failure"]["message"]
    assert executions(cloud, "bad") == []
    letters = cloud.client("sqs").receive_message(
        QueueUrl=cloud.outputs["DeadLettersUrl"], WaitTimeSeconds=5, MaxNumberOfMessages=10
    )
    assert body in [letter["Body"] for letter in letters["Messages"]]


def test_a_running_task_can_be_cancelled(cloud: LocalCloud, scenarios: Path) -> None:
    slow = shipped(scenarios / "first-try", "cancelled").model_dump()
    slow["runs"][0][1]["delay_s"] = 600
    task_id = send(cloud, Scenario.model_validate(slow))
    while not (task(cloud, task_id) or {}).get("progress", {}).get("turn"):
        time.sleep(0.1)
    cloud.send(json.dumps({"task_id": task_id, "action": "cancel"}))
    record = ended(cloud, task_id)
    assert (record["status"], record["failure"]["code"]) == ("CANCELLED", "cancelled")
    assert read(cloud, task_id, "files/greet.py")  # written before the cancel


def test_a_sandbox_that_vanishes_is_replaced_and_the_task_goes_on(
    cloud: LocalCloud, scenarios: Path
) -> None:
    task_id = send(cloud, shipped(scenarios / "vanish", "vanishing"))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 2)
    made = [entry["detail"] for entry in feed(cloud, task_id) if entry["kind"] == "sandbox"]
    assert [one["restored"] for one in made] == [False, True]
    assert [f["path"] for f in json.loads(read(cloud, task_id, "manifest.json"))["files"]] == [
        "README.md",
        "slugs.py",
        "test_slugs.py",
    ]
    first, second = [(1, 0), (1, 1), (1, 2), (1, 3)], [(2, 0), (2, 1), (2, 2)]
    steps = asked(cloud, task_id)
    assert [step for step in steps if step[0] == 1] == first  # nothing of it again
    assert list(dict.fromkeys(steps)) == [*first, *second]
    assert steps.count((2, 0)) == 2  # the lost run was begun anew


def test_a_budget_that_is_used_up_ends_the_task_and_what_was_written_is_kept(
    cloud: LocalCloud, scenarios: Path
) -> None:
    dear = shipped(scenarios / "first-try", "dear").model_dump()
    dear["runs"][0][1]["status"] = 402
    task_id = send(cloud, Scenario.model_validate(dear))
    record = ended(cloud, task_id)
    assert (record["status"], record["failure"]["code"]) == ("FAILED", "budget_exceeded")
    assert record["failure"]["hint"]
    assert read(cloud, task_id, "files/greet.py")
    assert json.loads(read(cloud, task_id, "result.json"))["failure"] == record["failure"]


@pytest.mark.parametrize(
    ("name", "status", "iteration"),
    [
        ("from-source", "SUCCEEDED", 1),
        ("acceptance", "SUCCEEDED", 2),
        ("api", "SUCCEEDED", 2),
        ("overloaded", "SUCCEEDED", 1),
        ("hang", "FAILED", 1),
    ],
)
def test_a_shipped_scenario_ends_as_it_says(
    cloud: LocalCloud, scenarios: Path, name: str, status: str, iteration: int
) -> None:
    record = ended(cloud, send(cloud, shipped(scenarios / name, f"shipped-{name}")))
    assert (record["status"], record["iteration"]) == (status, iteration)
    if name == "hang":
        assert record["failure"]["code"] == "deadline_exceeded"
        assert record["result"]["files"] == 1  # what was there by then


def test_checks_that_found_no_room_on_the_disk_are_repeated_in_a_fresh_sandbox(
    cloud: LocalCloud, scenarios: Path
) -> None:
    full = shipped(scenarios / "first-try", "no-room").model_dump()
    fills = "from pathlib import Path\n\n\ndef test_there_is_room():\n"
    fills += "    assert not Path.home().joinpath('full').exists(), 'No space left on device'\n"
    test = {"tool": "Write", "input": {"file_path": "tests/test_room.py", "content": fills}}
    disk = {"tool": "Bash", "input": {"command": "touch ~/full"}}  # not part of the project
    full["runs"][0][:0] = [test, disk]
    task_id = send(cloud, Scenario.model_validate(full))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)
    kinds = [entry["kind"] for entry in feed(cloud, task_id)]
    assert kinds.count("sandbox") == 2
    assert kinds.count("checks_ended") == 2
    assert kinds.count("agent_ended") == 1


def test_others_hear_of_a_task_on_eventbridge(cloud: LocalCloud, scenarios: Path) -> None:
    sqs, events = cloud.client("sqs"), cloud.client("events")
    queue = sqs.create_queue(QueueName=f"listener-{uuid.uuid4().hex}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {"source": ["autocoder"], "detail": {"task_id": ["heard"]}}
    events.put_rule(Name="listener", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="listener", Targets=[{"Id": "q", "Arn": arn["QueueArn"]}])
    scenario = shipped(scenarios / "first-try", "heard")
    scenario.message["metadata"] = {"team": "a"}
    send(cloud, scenario)
    record = ended(cloud, "heard")
    heard: dict[str, dict[str, object]] = {}
    while "Task Succeeded" not in heard:
        got = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1, MaxNumberOfMessages=10)
        for letter in got.get("Messages", []):
            event = json.loads(letter["Body"])
            heard[event["detail-type"]] = event["detail"]
    assert set(heard) == {"Task Queued", "Task Started", "Iteration Completed", "Task Succeeded"}
    assert heard["Task Succeeded"]["metadata"] == {"team": "a"}
    assert heard["Task Succeeded"]["id"] == "heard-1-task-succeeded"
    assert heard["Task Succeeded"]["cost"] == record["cost"]
    completed = heard["Iteration Completed"]
    assert completed["cost"] == completed["iteration_cost"] == record["cost"]
    assert record["cost"]["sandbox_usd"] > 0


def test_nothing_is_held_when_all_is_over(cloud: LocalCloud, scenarios: Path) -> None:
    task_id = send(cloud, shipped(scenarios / "first-try", "released"))
    ended(cloud, task_id)
    slots = cloud.table("TasksTable").get_item(Key={"task_id": "#slots"}).get("Item", {})
    assert f"{task_id}-1" not in slots.get("holders", set())
