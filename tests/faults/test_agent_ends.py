"""However a run of Claude Code ends, the task goes on or ends with a code that says why."""

import json
from typing import Any

import pytest

from autocoder import claude
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.runner import is_result
from autocoder.services import Services
from functions import run_claude_code
from tests.faults import stand_in
from tests.faults.conftest import Begin
from tests.faults.stand_in import INIT, RESULT
from tests.world import never


@pytest.fixture(autouse=True)
def quick_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude, "SILENCE_S", 3)
    monkeypatch.setattr(claude, "LINGER_S", 1)


@pytest.mark.parametrize(
    ("events", "then", "outcome"),
    [
        ([INIT, RESULT, {**RESULT, "num_turns": 4}], "exit 0", "success"),
        ([INIT, RESULT], "sleep 600", "success"),
        ([INIT], "sleep 600", "silent"),
        ([INIT, {**RESULT, "result": ""}], "exit 0", "success"),
        ([INIT, {**RESULT, "subtype": "error_max_turns", "is_error": True}], "exit 1",
         "error_max_turns"),
        ([INIT, {**RESULT, "subtype": "error_max_budget_usd"}], "exit 1", "error_max_budget_usd"),
        ([INIT], "kill -9 $$", "killed"),
    ],
    ids=["two results", "hang after the result", "silence", "empty answer", "turns", "budget",
         "killed"],
)  # fmt: skip
def test_what_the_checks_can_judge_is_left_to_them(
    services: Services,
    begun: Begin,
    monkeypatch: pytest.MonkeyPatch,
    events: list[dict[str, Any]],
    then: str,
    outcome: str,
) -> None:
    state = begun("end", [[{"text": ""}]])
    monkeypatch.setattr(claude, "PROGRAM", stand_in.PROGRAM)
    stand_in.install(services, state, *events, then=then)
    run = run_claude_code.run(state, services, never)
    assert (run.status, run.outcome, run.session_id) == ("done", outcome, "s-1")
    assert run.checkpoint


API_ERROR = {**RESULT, "is_error": True, "result": "why"}


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([INIT, {**API_ERROR, "api_error_status": 529}], "model_unavailable"),
        ([INIT, {**API_ERROR, "api_error_status": 401}], "model_refused"),
        ([INIT, {**API_ERROR, "api_error_status": 402}], "budget_exceeded"),
        ([INIT, {**API_ERROR, "stop_reason": "refusal"}], "agent_refused"),
        ([INIT], "agent_failed"),
    ],
    ids=["overloaded", "key", "no money", "refusal", "no result"],
)
def test_what_would_end_the_same_way_again_ends_the_task_with_its_code(
    services: Services,
    begun: Begin,
    monkeypatch: pytest.MonkeyPatch,
    events: list[dict[str, Any]],
    code: str,
) -> None:
    state = begun("hopeless", [[{"text": ""}]])
    monkeypatch.setattr(claude, "PROGRAM", stand_in.PROGRAM)
    stand_in.install(services, state, *events, then="exit 1")
    run = run_claude_code.run(state, services, never)
    assert run.failure and (run.status, run.failure.code) == ("failed", code)
    assert run.checkpoint  # what it wrote is kept all the same


def test_the_stand_in_speaks_as_the_real_cli_does(services: Services, begun: Begin) -> None:
    state = begun("real", [[{"text": "Done."}]])
    run_claude_code.run(state, services, never)
    lines = services.objects.read(TaskFolder(state.task_id).transcript(1)).splitlines()
    events = [json.loads(line) for line in lines]
    assert [is_result(line) for line in lines][-1]  # what the runner looks for
    for stood_in in (INIT, RESULT):
        kind = (stood_in["type"], stood_in["subtype"])
        (real,) = [e for e in events if (e["type"], e.get("subtype")) == kind]
        for name, value in stood_in.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            assert isinstance(real[name], (int, float) if number else type(value)), name
