"""The Tasks table: fenced writes, absorbing ends, and slots that can't drift."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from autocoder.errors import TaskClosed
from autocoder.services import Services
from tests.steps.builders import queued


def test_a_step_of_another_attempt_can_write_nothing(services: Services) -> None:
    state = queued(services, "fence")
    with pytest.raises(TaskClosed):
        services.tasks.running(state.task_id, 2, stage="coding")
    with pytest.raises(TaskClosed):
        services.tasks.progress(state.task_id, 1, {"turn": 1})  # it is not RUNNING yet
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "QUEUED"


def test_an_end_absorbs(services: Services) -> None:
    state = queued(services, "end")
    first = services.tasks.finish(state.task_id, 1, "SUCCEEDED")
    assert state.task_id not in [task["task_id"] for task in services.tasks.waiting()]
    again = services.tasks.finish(state.task_id, 1, "FAILED", failure={"code": "x"})
    assert again == first
    with pytest.raises(TaskClosed):
        services.tasks.running(state.task_id, 1, stage="coding")
    with pytest.raises(TaskClosed):
        services.tasks.finish(state.task_id, 2, "FAILED")


def test_a_running_task_waits_no_more_and_keeps_its_start(services: Services) -> None:
    state = queued(services, "start")
    first = services.tasks.running(state.task_id, 1, stage="coding")
    second = services.tasks.running(state.task_id, 1, stage="checking")
    assert first["started_at"] == second["started_at"]
    assert state.task_id not in [task["task_id"] for task in services.tasks.waiting()]


def test_slots_never_exceed_their_limit_and_are_given_back_once(services: Services) -> None:
    states = [queued(services, "slot") for _ in range(8)]
    before = services.tasks.holders()
    limit = len(before) + 3

    def take(task_id: str) -> str:
        return services.tasks.take_slot(task_id, 1, limit, "arn")

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, [state.task_id for state in states]))
    assert taken.count("taken") == 3
    assert taken.count("full") == 5
    holders = services.tasks.holders() - before
    assert holders == {s.name for s, got in zip(states, taken, strict=True) if got == "taken"}
    mine = next(s for s, got in zip(states, taken, strict=True) if got == "taken")
    assert take(mine.task_id) == "taken"  # asked again, it still holds its one slot
    for state in states:
        for _ in range(2):
            services.tasks.release_slot(state.task_id, 1)
    assert services.tasks.holders() == before


def test_a_task_that_is_not_queued_gets_no_slot(services: Services) -> None:
    state = queued(services, "gone")
    services.tasks.finish(state.task_id, 1, "CANCELLED")
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "not_queued"
    assert state.name not in services.tasks.holders()


def test_high_priority_goes_first_then_age(services: Services) -> None:
    ids = [queued(services, "p", priority=p).task_id for p in ("normal", "high", "normal", "high")]
    order = [task["task_id"] for task in services.tasks.waiting() if task["task_id"] in ids]
    assert order == [ids[1], ids[3], ids[0], ids[2]]


def test_a_record_lives_on_from_its_last_change(services: Services) -> None:
    state = queued(services, "renewed")
    table = services.tasks.table
    table.update_item(
        Key={"task_id": state.task_id},
        UpdateExpression="SET expires_at = :soon",
        ExpressionAttributeValues={":soon": 1},
    )
    record = services.tasks.running(state.task_id, 1, stage="planning")
    assert record["expires_at"] > time.time()
