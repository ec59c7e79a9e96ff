"""What is left behind is mended, and what lives or ends at the same moment is left alone."""

import json
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import Mock

import e2b
import pytest

from autocoder.errors import TransientError
from autocoder.services import Services
from autocoder.task import State
from functions import dispatch_tasks, end_stranded_task, reap_sandboxes
from tests.steps.builders import new_id, queued
from tests.world import World

WAITS = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 600, "End": True}}}
NO_QUIET = timedelta(0)


@pytest.fixture(scope="module")
def machine(world: World) -> str:
    made = world.client("stepfunctions").create_state_machine(
        name=new_id("reap"),
        definition=json.dumps(WAITS),
        roleArn="arn:aws:iam::123456789012:role/r",
    )
    return str(made["stateMachineArn"])


@pytest.fixture
def reaped(world: World, machine: str) -> Services:
    """Services of a stack of its own: other tests' sandboxes and tasks are none of its business."""
    owner = new_id("reaped")
    tasks = world.services().tasks
    for left in [*tasks.with_status("QUEUED"), *tasks.with_status("RUNNING")]:
        record = tasks.get(left["task_id"])
        if record:
            tasks.finish(record["task_id"], record["attempt"], "FAILED")
    return world.services(state_machine_arn=machine, max_running=10_000, sandbox_owner=owner)


def running(services: Services, name: str) -> State:
    """A task that was started."""
    state = queued(services, name)
    arn = services.settings.execution_arn(state.name)
    services.tasks.take_slot(state.task_id, 1, 10_000, arn)
    dispatch_tasks.start(state, services)
    return state


def stop(services: Services, state: State) -> None:
    arn = record(services, state)["execution_arn"]
    services.workflow.stop_execution(executionArn=arn, error="Stopped", cause="by hand")


def record(services: Services, state: State) -> dict[str, Any]:
    found = services.tasks.get(state.task_id)
    assert found
    return found


def test_sandboxes_of_tasks_that_ended_or_never_were_are_killed_and_others_live(
    reaped: Services, world: World
) -> None:
    alive, over = running(reaped, "alive"), running(reaped, "over")
    kept = reaped.sandboxes.create(alive.name, 1)
    foreign = world.services(sandbox_owner=new_id("other")).sandboxes
    theirs = foreign.create("unknown-to-us-1", 1)
    for name in (over.name, "nobody-1", "nonsense"):
        reaped.sandboxes.create(name, 1)
    reaped.tasks.finish(over.task_id, 1, "FAILED")

    assert reap_sandboxes.run(reaped)["sandboxes"] == 3

    assert reaped.sandboxes.by_attempt() == {alive.name: [kept.sandbox_id]}
    assert foreign.by_attempt() == {"unknown-to-us-1": [theirs.sandbox_id]}
    assert reap_sandboxes.run(reaped)["sandboxes"] == 0
    kept.sandbox.kill()
    theirs.sandbox.kill()


def test_sandboxes_are_found_on_whatever_page_they_are(
    reaped: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e2b.Sandbox, "list", partial(e2b.Sandbox.list, limit=1))
    for number in range(3):
        reaped.sandboxes.create("nobody-1", number)
        reaped.sandboxes.create("nobody-2", number)
    assert reaped.sandboxes.kill_all("nobody-1") == 3
    assert reap_sandboxes.run(reaped)["sandboxes"] == 3
    assert reaped.sandboxes.by_attempt() == {}


def test_slots_of_tasks_that_ended_or_never_were_are_given_back(reaped: Services) -> None:
    alive, over, waits = running(reaped, "runs"), running(reaped, "ended"), queued(reaped, "waits")
    reaped.tasks.take_slot(waits.task_id, 1, 10_000, "arn")
    reaped.tasks.finish(over.task_id, 1, "SUCCEEDED")
    expired = new_id("expired")
    slots = {"task_id": "#slots"}
    reaped.tasks.table.update_item(
        Key=slots,
        UpdateExpression="ADD holders :n",
        ExpressionAttributeValues={":n": {f"{expired}-1"}},
    )

    assert reap_sandboxes.run(reaped)["slots"] >= 2

    holders = reaped.tasks.holders()
    assert not {over.name, f"{expired}-1"} & holders
    assert {alive.name, waits.name} <= holders


def test_a_running_task_whose_execution_was_stopped_fails_with_a_reason(reaped: Services) -> None:
    state, alive = running(reaped, "stopped"), running(reaped, "goes-on")
    reaped.sandboxes.create(state.name, 1)
    stop(reaped, state)

    assert reap_sandboxes.run(reaped)["stranded"] == 0  # it is too early to tell
    assert record(reaped, state)["status"] == "RUNNING"
    reap_sandboxes.run(reaped, NO_QUIET)

    ended = record(reaped, state)
    assert (ended["status"], ended["failure"]["code"]) == ("FAILED", "workflow_ended")
    assert "ABORTED" in ended["failure"]["message"]
    assert ended["failure"]["hint"]
    assert state.name not in reaped.tasks.holders()
    assert state.name not in reaped.sandboxes.by_attempt()
    assert record(reaped, alive)["status"] == "RUNNING"


def test_a_running_task_without_an_execution_fails_with_a_reason(reaped: Services) -> None:
    state = queued(reaped, "no-execution")
    reaped.tasks.running(state.task_id, 1)
    reap_sandboxes.run(reaped, NO_QUIET)
    assert record(reaped, state)["failure"]["message"] == f"There is no execution {state.name}."


def test_a_task_that_ends_while_the_reaper_looks_at_it_keeps_its_end(reaped: Services) -> None:
    state = running(reaped, "photo-finish")
    stop(reaped, state)
    describe = reaped.workflow.describe_execution

    def and_then_it_ends(**arguments: Any) -> Any:
        answer = describe(**arguments)
        reaped.tasks.finish(state.task_id, 1, "SUCCEEDED")
        return answer

    reaped.workflow.describe_execution = and_then_it_ends  # type: ignore[method-assign]
    reap_sandboxes.run(reaped, NO_QUIET)
    ended = record(reaped, state)
    assert ended["status"] == "SUCCEEDED"
    assert "failure" not in ended


def test_a_queued_task_that_dispatch_can_not_see_is_queued_again(reaped: Services) -> None:
    state = queued(reaped, "unseen", priority="high")
    reaped.tasks.table.update_item(
        Key={"task_id": state.task_id},
        UpdateExpression="REMOVE #q",
        ExpressionAttributeNames={"#q": "queue"},
    )
    assert state.task_id not in {task["task_id"] for task in reaped.tasks.waiting()}
    reap_sandboxes.run(reaped, NO_QUIET)
    assert record(reaped, state)["queue"] == "high"
    dispatch_tasks.run(reaped)
    assert record(reaped, state)["status"] == "RUNNING"


def test_an_outage_of_e2b_does_not_keep_slots_and_tasks_from_being_mended(
    reaped: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, state = running(reaped, "held"), running(reaped, "stranded")
    reaped.tasks.finish(over.task_id, 1, "FAILED")
    stop(reaped, state)
    monkeypatch.setenv("E2B_API_URL", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(ExceptionGroup) as raised:
        reap_sandboxes.run(reaped, NO_QUIET)
    assert raised.group_contains(TransientError)
    assert not {over.name, state.name} & reaped.tasks.holders()
    assert record(reaped, state)["status"] == "FAILED"


def test_a_sandbox_without_a_task_s_name_is_killed_too(reaped: Services) -> None:
    owner = {"autocoder_stack": reaped.settings.sandbox_owner}
    box = e2b.Sandbox.create("autocoder", metadata=owner, api_key="e2b_0")
    reap_sandboxes.run(reaped)
    assert not box.is_running()


def detail(state: State, status: str = "TIMED_OUT") -> dict[str, Any]:
    """What Step Functions says of an execution, as far as it is read."""
    return {"name": state.name, "status": status, "error": None, "cause": None}


def test_an_execution_that_timed_out_ends_its_task(reaped: Services) -> None:
    state = running(reaped, "timed-out")
    assert end_stranded_task.run(detail(state), reaped) == "FAILED"
    ended = record(reaped, state)
    assert ended["failure"]["code"] == "workflow_ended"
    assert "TIMED_OUT" in ended["failure"]["message"]
    assert state.name not in reaped.tasks.holders()


def test_an_execution_that_failed_after_the_end_changes_nothing(reaped: Services) -> None:
    state = running(reaped, "ended-before")
    reaped.tasks.finish(state.task_id, 1, "SUCCEEDED")
    before = record(reaped, state)
    reaped.events.emit = Mock()  # type: ignore[method-assign]
    assert end_stranded_task.run(detail(state, "FAILED"), reaped) is None
    assert record(reaped, state) == before
    reaped.events.emit.assert_not_called()


def test_an_execution_of_an_older_attempt_or_a_stranger_changes_nothing(reaped: Services) -> None:
    state = running(reaped, "newer")
    older = state.model_copy(update={"attempt": 2})
    assert end_stranded_task.run(detail(older), reaped) is None
    assert end_stranded_task.run({"name": "by-hand", "status": "ABORTED"}, reaped) is None
    assert end_stranded_task.run({"name": "no-task-7", "status": "ABORTED"}, reaped) is None
    assert record(reaped, state)["status"] == "RUNNING"
