"""However a run of Claude Code ends, the task goes on or ends with a code that says why."""

import json
from typing import Any

import pytest

from autocoder import claude
from autocoder.checks import CheckReport
from autocoder.ledger import Ledger
from autocoder.ports.objects import TaskFolder
from autocoder.ports.tasks import now
from autocoder.sandbox.runner import is_result
from autocoder.services import Services
from autocoder.task import Decision, State
from functions import decide_next, extract_artifacts, finish_task, run_claude_code, test_and_build
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
        ([INIT, {**RESULT, "subtype": "error_max_turns", "num_turns": 9}, {**RESULT,
          "num_turns": 4}], "exit 0", "success"),
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
    assert run.turns == events[-1].get("num_turns", 0)
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


def test_what_was_spent_is_taken_from_the_next_runs_budget(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun("spent", [[{"text": ""}]], limits={"budget_usd": 2})
    monkeypatch.setattr(claude, "PROGRAM", stand_in.PROGRAM)
    # The CLI counts on as long as its session is resumed, then begins anew.
    runs = [
        ("s-1", 50_000, 0.5, "2.0000"),
        ("s-1", 80_000, 0.8, "1.5000"),
        ("s-2", 30_000, 1.1, "1.2000"),
    ]
    for number, (session, says, spent, budget) in enumerate(runs, start=1):
        decision = Decision(next="fix", iteration=number, reason="red")
        state = state.model_copy(update={"decision": decision})
        used = {"claude-sonnet-5-5": {"outputTokens": says}}
        end = {**RESULT, "session_id": session, "modelUsage": used, "total_cost_usd": says / 1e6}
        stand_in.install(services, state, {**INIT, "session_id": session}, end, then="exit 0")
        state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
        assert state.run and state.run.cost_usd == pytest.approx(spent)
        assert option(services, state, "--max-budget-usd") == budget
        key = TaskFolder(state.task_id).checks(number)
        services.objects.write_json(key, CheckReport(toolchain=None, checks=[]).model_dump())
    assert option(services, state, "--resume") == "s-1"
    cost = Ledger.of(services.tasks.get(state.task_id) or {}).cost(now())
    assert cost.model_usd == pytest.approx(1.1)
    assert cost.estimate_usd == pytest.approx(0.11)  # the CLI's figure, summed once


def option(services: Services, state: State, name: str) -> str:
    """An option that the newest run was called with."""
    assert state.sandbox
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    spec = json.loads(box.read(f".autocoder/jobs/claude-{state.iteration}/spec.json"))
    argv: list[str] = spec["commands"][0]["argv"]
    return argv[argv.index(name) + 1]


def test_a_run_that_uses_up_the_budget_ends_the_task_with_what_it_wrote(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun("used-up", [[{"text": ""}]], limits={"budget_usd": 0.5})
    monkeypatch.setattr(claude, "PROGRAM", stand_in.PROGRAM)
    over = {**RESULT, "subtype": "error_max_budget_usd", "is_error": True}
    stand_in.install(services, state, INIT, over, then="echo 'A = 1' > a.py; exit 1")
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    state = state.model_copy(update={"checks": test_and_build.run(state, services, never)})
    state = state.model_copy(update={"decision": decide_next.run(state, services)})
    assert extract_artifacts.run(state, services).files == 1
    assert finish_task.run(state, services).status == "FAILED"
    record = services.tasks.get(state.task_id)
    assert record and record["failure"]["code"] == "budget_exceeded"
    assert (record["cost"]["model_usd"], record["cost"]["estimate_usd"]) == (0.5, 0.4)


def test_a_run_that_was_killed_costs_what_its_messages_say(
    services: Services, begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun("killed-dear", [[{"text": ""}]])
    monkeypatch.setattr(claude, "PROGRAM", stand_in.PROGRAM)
    usage = {"input_tokens": 100_000, "output_tokens": 1}
    block = {"type": "text", "text": "x" * 2998}
    said = {"id": "m", "model": "claude-sonnet-5-5", "usage": usage, "content": [block]}
    message = {"type": "assistant", "session_id": "s-1", "message": said}
    stand_in.install(services, state, INIT, message, message, then="kill -9 $$")
    run = run_claude_code.run(state, services, never)
    assert run.outcome == "killed"
    assert run.cost_usd == pytest.approx(0.2 + 2 * 1000 * 10 / 1e6)  # its input once, all words
