"""A cancel, whenever it comes: the task ends, nothing goes on running, what was there is kept.

A waiting task and one whose agent runs: tests/steps/test_start_task.py and
tests/workflow/test_whole_tasks.py.
"""

import json
import time
from pathlib import Path
from typing import Any

import e2b
import pytest

from autocoder.errors import TaskCancelled
from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from autocoder.sandbox import jobs
from autocoder.services import Services
from autocoder.task import Caught, Decision, State, verdict
from functions import create_sandbox, decide_next, extract_artifacts, plan_task, run_claude_code
from functions import test_and_build as check
from tests.faults.conftest import Begin
from tests.steps.builders import queued, take_in
from tests.workflow.support import ended, feed, read, send, shipped
from tests.world import World, never

GREEN = [
    {"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): pass\n"}},
]


def cancel(services: Services, state: State) -> None:
    take_in(services, {"task_id": state.task_id, "action": "cancel"})


def caught(error: TaskCancelled) -> Caught:
    """As Step Functions hands it on."""
    return Caught(Error=type(error).__name__, Cause=json.dumps({"errorMessage": str(error)}))


def test_before_its_sandbox_is_made_no_sandbox_is_made(services: Services) -> None:
    state = queued(services, "early")
    services.tasks.running(state.task_id, 1, stage="queued")  # dispatched
    cancel(services, state)
    with pytest.raises(TaskCancelled) as seen:
        create_sandbox.run(state, services)
    assert services.sandboxes.kill_all(state.name) == 0
    state = state.model_copy(update={"cancel": caught(seen.value)})
    assert extract_artifacts.run(state, services).files == 0
    status, failure = verdict(state)
    assert (status, failure and failure.code) == ("CANCELLED", "cancelled")


def test_before_it_is_planned_no_model_is_asked(world: World, services: Services) -> None:
    state = queued(services, "unplanned")
    services.tasks.running(state.task_id, 1, stage="queued")  # dispatched
    cancel(services, state)
    with pytest.raises(TaskCancelled):
        plan_task.run(state, services)
    assert world.model_requests(state.task_id) == []


def cancelled_before_its_checks(services: Services, begun: Begin) -> State:
    state = begun("between", [GREEN])
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    cancel(services, state)
    return state


def test_between_steps_it_is_seen_by_the_next_one_s_first_heartbeat(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = cancelled_before_its_checks(services, begun)
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0)
    state = state.model_copy(update={"checks": check.run(state, services, never)})
    assert state.checks and state.checks.status == "cancelled"
    assert extract_artifacts.run(state, services).files == 1
    assert verdict(state)[0] == "CANCELLED"


def test_a_job_that_is_quicker_than_its_first_heartbeat_leaves_it_to_the_step_behind_it(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = cancelled_before_its_checks(services, begun)
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 600)
    state = state.model_copy(update={"checks": check.run(state, services, never)})
    assert state.checks and state.checks.status == "done"
    with pytest.raises(TaskCancelled) as seen:
        decide_next.run(state, services)
    state = state.model_copy(update={"cancel": caught(seen.value)})
    assert extract_artifacts.run(state, services).files == 1
    assert verdict(state)[0] == "CANCELLED"


def test_while_it_is_extracted_it_comes_too_late(services: Services, begun: Begin) -> None:
    state = begun("late", [GREEN])
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    decided = Decision(next="finish", iteration=1, reason="Every check passed.")
    state = state.model_copy(update={"decision": decided})
    cancel(services, state)
    assert extract_artifacts.run(state, services).files == 1
    assert verdict(state)[0] == "SUCCEEDED"


def slow_agent(content: dict[str, Any]) -> None:
    content["runs"][0][1]["delay_s"] = 600


def slow_checks(content: dict[str, Any]) -> None:
    content["message"]["checks"] = {"slow": "sleep 600"}


def slow_clean_room(content: dict[str, Any]) -> None:
    agent_was_here = "test -d ~/.autocoder/jobs/claude-1"
    content["message"]["checks"] = {"slow": f"{agent_was_here} || sleep 600"}


@pytest.mark.parametrize(
    ("stage", "slow", "tells"),
    [
        ("coding", slow_agent, "tool"),
        ("checking", slow_checks, "check_started"),
        ("verifying", slow_clean_room, "clean_room"),
    ],
)
def test_while_a_job_runs_it_ends_within_seconds_and_keeps_what_is_there(
    cloud: LocalCloud, scenarios: Path, stage: str, slow: Any, tells: str
) -> None:
    content = shipped(scenarios / "first-try", f"cancelled-{stage}").model_dump()
    slow(content)
    task_id = send(cloud, Scenario.model_validate(content))
    while tells not in [entry["kind"] for entry in feed(cloud, task_id)]:
        time.sleep(0.1)
    cloud.send(json.dumps({"task_id": task_id, "action": "cancel"}))
    record = ended(cloud, task_id)
    assert (record["status"], record["failure"]["code"]) == ("CANCELLED", "cancelled")
    assert read(cloud, task_id, "files/greet.py")
    with pytest.raises(e2b.SandboxException):
        e2b.Sandbox.connect(
            record["sandbox_id"], api_key="e2b_0", api_url=cloud.sandboxes["api_url"]
        )
