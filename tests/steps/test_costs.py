"""What a task cost is in its record, however it went."""

from collections.abc import Callable
from typing import Any

import pytest

from autocoder.errors import SandboxLost
from autocoder.ledger import Ledger
from autocoder.sandbox.client import SandboxHandle
from autocoder.services import Services, release_sandbox
from autocoder.task import Caught, State
from functions import create_sandbox, decide_next, finish_task, run_claude_code, test_and_build
from tests.world import World, never

Begin = Callable[..., State]
WRITE = {"tool": "Write", "input": {"file_path": "a.py", "content": "A = 1\n"}}


def record_of(services: Services, state: State) -> dict[str, Any]:
    record = services.tasks.get(state.task_id)
    assert record
    return record


def ledger_of(services: Services, state: State) -> Ledger:
    return Ledger.of(record_of(services, state))


def test_a_sandbox_costs_from_when_it_was_made_to_when_it_was_released(
    services: Services, begun: Begin
) -> None:
    state = begun("boxes", [[WRITE]])
    assert state.sandbox
    (first,) = ledger_of(services, state).sandboxes.values()
    assert (first.cpus, first.memory_mb, first.ended) == (2, 4096, None)
    create_sandbox.run(state.model_copy(update={"sandbox": None}), services)  # the step, retried
    assert list(ledger_of(services, state).sandboxes.values()) == [first]

    lost = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    ended, there = ledger_of(services, state).sandboxes.values()
    assert (ended.ended is None, there.ended) == (False, None)
    release_sandbox(lost, services, state.sandbox.sandbox_id)  # again: the first time counts
    assert ledger_of(services, state).sandboxes[state.sandbox.sandbox_id] == ended

    finish_task.run(state, services)
    ledger, record = ledger_of(services, state), record_of(services, state)
    assert ledger.open_in(1) == []
    assert record["cost"] == ledger.cost(record["finished_at"]).model_dump()
    finish_task.run(state, services)
    assert record_of(services, state) == record


def test_a_sandbox_that_vanishes_while_it_is_filled_is_paid_for_no_longer(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanished: list[str] = []
    prepare = SandboxHandle.prepare

    def vanish_once(box: SandboxHandle) -> None:
        if not vanished:
            vanished.append(box.sandbox_id)
            raise SandboxLost.because("the test says so")
        prepare(box)

    monkeypatch.setattr(SandboxHandle, "prepare", vanish_once)
    state = begun("vanishing", [[WRITE]])
    assert state.sandbox
    boxes = ledger_of(services, state).sandboxes
    assert set(boxes) == {*vanished, state.sandbox.sandbox_id}
    assert boxes[vanished[0]].ended
    assert not boxes[state.sandbox.sandbox_id].ended


def test_a_task_that_an_error_ends_has_its_cost(services: Services, begun: Begin) -> None:
    state = begun("erring", [[WRITE]])
    services.tasks.running(
        state.task_id,
        1,
        {("runs", "1-1-1"): {"attempt": 1, "iteration": 1, "models": {"x": {"output": 1000}}}},
    )
    error = Caught(Error="Boom", Cause="{}")
    finish_task.run(state.model_copy(update={"error": error}), services)
    cost = record_of(services, state)["cost"]
    assert cost["model_usd"] > 0  # of a run that was lost, as it was last heard
    assert cost["total_usd"] == pytest.approx(cost["model_usd"] + cost["sandbox_usd"])


def test_the_record_has_the_cost_after_every_iteration(
    world: World, services: Services, begun: Begin
) -> None:
    state = begun("running", [[WRITE]])
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    state = state.model_copy(update={"checks": test_and_build.run(state, services, never)})
    assert decide_next.run(state, services).next == "fix"
    record = record_of(services, state)
    assert record["cost"]["sandbox_usd"] > 0
    at = record["ledger"]["iterations"]["1"]
    decide_next.run(state, services)  # retried: the first time counts
    assert record_of(services, state)["ledger"]["iterations"]["1"] == at
