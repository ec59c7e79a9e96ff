"""Starting and ending: whatever crashes or is repeated, no slot is lost and no task is doubled."""

from typing import Any
from unittest.mock import Mock

import pytest

from autocoder.errors import TransientError
from autocoder.services import Services
from autocoder.task import Caught, State
from functions import dispatch_tasks, finish_task
from tests.steps.builders import queued
from tests.world import World

MACHINE = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 600, "End": True}}}


@pytest.fixture
def dispatching(world: World) -> Any:
    """Services whose machine only waits, with a slot for every task that comes."""
    import json

    arn = world.client("stepfunctions").create_state_machine(
        name=f"m{id(world)}",
        definition=json.dumps(MACHINE),
        roleArn="arn:aws:iam::123456789012:role/r",
    )["stateMachineArn"]

    def make(max_running: int = 10_000) -> Services:
        return world.services(state_machine_arn=arn, max_running=max_running)

    return make


def executions(services: Services, state: State) -> list[str]:
    found = services.workflow.list_executions(stateMachineArn=services.settings.state_machine_arn)
    return [e["name"] for e in found["executions"] if e["name"] == state.name]


def test_a_waiting_task_is_started_once_however_often_dispatch_runs(dispatching: Any) -> None:
    services = dispatching()
    state = queued(services, "go")
    for _ in range(3):
        dispatch_tasks.run(services)
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "RUNNING"
    assert task["execution_arn"].endswith(f":{state.name}")
    assert executions(services, state) == [state.name]
    assert state.name in services.tasks.holders()


def test_when_slots_are_full_a_task_waits(dispatching: Any) -> None:
    services = dispatching()
    dispatch_tasks.run(services)
    queued(services, "first")
    dispatch_tasks.run(services)
    state = queued(services, "second")
    dispatch_tasks.run(dispatching(max_running=len(services.tasks.holders())))
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "QUEUED"
    assert executions(services, state) == []


def test_waiting_tasks_know_their_place_in_line(dispatching: Any) -> None:
    services = dispatching()
    dispatch_tasks.run(services)
    queued(services, "runs")
    dispatch_tasks.run(services)
    full = dispatching(max_running=len(services.tasks.holders()))
    waiting = [queued(services, "waits", priority=p) for p in ("normal", "normal", "high")]
    dispatch_tasks.run(full)
    assert [services.tasks.get(s.task_id)["queue_position"] for s in waiting] == [2, 3, 1]
    services.tasks.withdraw(waiting[2].task_id, 1)
    dispatch_tasks.run(full)
    assert [services.tasks.get(s.task_id)["queue_position"] for s in waiting[:2]] == [1, 2]
    dispatch_tasks.run(services)
    assert all("queue_position" not in services.tasks.get(s.task_id) for s in waiting)


def test_a_crash_before_the_start_is_mended_by_the_next_dispatch(dispatching: Any) -> None:
    services = dispatching()
    state = queued(services, "crash")
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "taken"  # and then it died
    dispatch_tasks.run(services)
    assert executions(services, state) == [state.name]


def test_a_task_that_a_crash_left_with_the_last_slot_starts_before_a_more_urgent_one(
    dispatching: Any,
) -> None:
    services = dispatching()
    dispatch_tasks.run(services)
    state = queued(services, "has-a-slot")
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "taken"  # and then it died
    urgent = queued(services, "urgent", priority="high")
    dispatch_tasks.run(dispatching(max_running=len(services.tasks.holders())))
    assert executions(services, state) == [state.name]
    assert executions(services, urgent) == []


def test_a_crash_after_the_start_is_mended_by_the_next_dispatch(dispatching: Any) -> None:
    services = dispatching()
    state = queued(services, "noted")
    services.tasks.running = Mock(side_effect=ConnectionError)
    with pytest.raises(ConnectionError):
        dispatch_tasks.run(services)
    services = dispatching()
    dispatch_tasks.run(services)
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "RUNNING"
    assert services.workflow.describe_execution(executionArn=task["execution_arn"])
    assert executions(services, state) == [state.name]


def test_an_execution_that_is_over_is_not_started_again(dispatching: Any) -> None:
    services = dispatching()
    state = queued(services, "over")
    arn = services.settings.execution_arn(state.name)
    assert services.tasks.take_slot(state.task_id, 1, 10_000, arn) == "taken"
    dispatch_tasks.start(state, services)
    services.workflow.stop_execution(executionArn=arn)
    dispatch_tasks.start(state, services)
    assert services.workflow.describe_execution(executionArn=arn)["status"] == "ABORTED"


def test_a_task_that_ends_before_it_is_noted_gives_its_slot_back(dispatching: Any) -> None:
    services = dispatching()
    state = queued(services, "quick")
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "taken"
    services.tasks.finish(state.task_id, 1, "FAILED")
    dispatch_tasks.start(state, services)
    assert state.name not in services.tasks.holders()
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "FAILED"


def test_an_outage_of_e2b_does_not_keep_a_task_from_ending(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = queued(services, "outage").model_copy(update={"error": Caught(Error="X", Cause="y")})
    services.tasks.take_slot(state.task_id, 1, 10_000, "arn")
    with monkeypatch.context() as patch:
        patch.setenv("E2B_API_URL", "http://127.0.0.1:9")  # nobody listens there
        with pytest.raises(TransientError):
            finish_task.run(state, services)
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "FAILED"
    assert state.name not in services.tasks.holders()
    assert finish_task.run(state, services).status == "FAILED"  # the retry, when E2B is back


def test_a_dispatch_that_meets_another_one_leaves_it_the_work(
    dispatching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = dispatching()
    state = queued(services, "contended")
    client = services.tasks.table.meta.client
    reasons = [{"Code": "None"}, {"Code": "TransactionConflict"}]
    conflict = client.exceptions.TransactionCanceledException(
        {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}, "x"
    )
    with monkeypatch.context() as patch:  # the embedded DynamoDB has no conflicts
        patch.setattr(client, "transact_write_items", Mock(side_effect=conflict))
        assert dispatch_tasks.run(services) == 0
    assert dispatch_tasks.run(services) >= 1
    assert executions(services, state) == [state.name]
