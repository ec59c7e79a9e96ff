"""What a task cost: every run once, every sandbox as long as it was there."""

import pytest

from autocoder.claude import Outcome
from autocoder.ledger import Ledger, Spent, Used
from autocoder.prices import AS_OF, Tokens, sandbox_usd

MODEL, OTHER = "claude-sonnet-5-5", "claude-haiku-4-5"
NOW = "2026-01-01T01:00:00.000Z"


def at(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00.000Z"


def spent(output: int, session: str | None = "s", **fields: int | bool) -> Spent:
    given = {"attempt": 1, "iteration": 1, "ended": True, **fields}
    return Spent.model_validate(
        {**given, "models": {MODEL: Tokens(output=output)}, "session_id": session}
    )


def says(session: int, own: int, *, of: str = "s") -> Outcome:
    """What a transcript's result says: the session's count, and the run's own."""
    counts = {"session": {MODEL: Tokens(output=session)}, "own": {MODEL: Tokens(output=own)}}
    return Outcome(session_id=of, **counts)


def box(began: int, ended: int | None, attempt: int = 1) -> Used:
    times = {"started": at(began), "ended": None if ended is None else at(ended)}
    return Used.model_validate({"attempt": attempt, "cpus": 2, "memory_mb": 4096, **times})


def took(ledger: Ledger, outcome: Outcome) -> int:
    return ledger.took("new", outcome)[MODEL].output


def test_a_resumed_session_is_not_counted_twice() -> None:
    ledger = Ledger(runs={"1-1-1": spent(100), "1-2-1": spent(50)})
    assert took(ledger, says(180, 30)) == 30
    assert took(ledger, says(190, 30)) == 40  # 10 of them a subagent's
    assert took(ledger, says(30, 0, of="another")) == 30
    assert took(Ledger(runs={**ledger.runs, "new": spent(7)}), says(180, 0)) == 30  # again


def test_a_killed_run_is_counted_once_whether_the_session_counts_it_or_not() -> None:
    ledger = Ledger(runs={"1-1-1": spent(100), "1-2-1": spent(40)})  # 40 by its messages
    assert took(ledger, says(100 + 45 + 30, 30)) == 35  # it was, and took 5 more than was heard
    assert took(ledger, says(100 + 30, 30)) == 30  # it was not


def test_a_run_that_was_lost_with_its_sandbox_is_in_no_session() -> None:
    lost = spent(40, session=None, ended=False)
    ledger = Ledger(runs={"1-1-1": spent(100), "1-2-1": lost})
    assert took(ledger, says(130, 0)) == 30
    assert ledger.cost(NOW).models[MODEL].output == 140


def test_every_model_and_the_plan_have_their_price_and_the_estimate_is_in_no_sum() -> None:
    dear = Spent(attempt=1, iteration=1, models={MODEL: Tokens(output=100_000)}, estimate_usd=9)
    cheap = Spent(attempt=1, iteration=2, models={OTHER: Tokens(input=1_000_000)}, estimate_usd=1)
    plan = Spent(attempt=1, iteration=0, models={MODEL: Tokens(input=500_000)})
    ledger = Ledger(runs={"1-1-1": dear, "1-2-1": cheap, "plan": plan})
    cost = ledger.cost(NOW)
    assert cost.model_usd == cost.total_usd == pytest.approx(1 + 1 + 1)
    assert cost.estimate_usd == 10
    assert cost.prices_as_of == AS_OF
    assert cost.models == {MODEL: Tokens(input=500_000, output=100_000), OTHER: cheap.models[OTHER]}
    assert ledger.of_iteration(2, NOW).model_usd == pytest.approx(1)


def test_the_estimate_of_a_resumed_session_is_not_summed_twice() -> None:
    first = spent(1).model_copy(update={"estimate_usd": 0.5})
    ledger = Ledger(runs={"1-1-1": first})
    assert ledger.estimate("1-2-1", Outcome(session_id="s", cost_usd=0.8)) == pytest.approx(0.3)
    assert ledger.estimate("1-2-1", Outcome(session_id="t", cost_usd=0.8)) == pytest.approx(0.8)
    assert ledger.estimate("1-2-1", Outcome(session_id="s", cost_usd=0.1)) == 0
    assert ledger.estimate("1-1-1", Outcome(session_id="s", cost_usd=0.5)) == 0.5  # settled again


def test_a_run_under_way_is_not_taken_off_the_session() -> None:
    ledger = Ledger(runs={"1-1-1": spent(100), "1-2-2": spent(40, ended=False)})
    assert took(ledger, says(130, 0)) == 30


def test_sandboxes_cost_by_size_and_by_how_long_they_are_there() -> None:
    ledger = Ledger(sandboxes={"a": box(0, 10), "b": box(50, None)})
    cost = ledger.cost(NOW)  # an hour after the first began
    assert cost.sandbox_seconds == 20 * 60
    assert cost.sandbox_usd == cost.total_usd == pytest.approx(sandbox_usd(20 * 60, 2, 4096))
    assert sandbox_usd(1, 2, 4096) == pytest.approx(2 * 0.000014 + 4 * 0.0000045)
    assert ledger.open_in(1) == ["b"]
    assert ledger.open_in(2) == []


def test_iterations_share_a_sandbox_by_time_and_add_up_to_the_task_over_two_attempts() -> None:
    ledger = Ledger(
        runs={
            "1-1-1": spent(1),
            "1-2-1": spent(2, iteration=2),
            "1-3-2": spent(4, iteration=3, ended=False),  # cut short: nothing was decided
            "2-4-1": spent(8, "t", iteration=4, attempt=2),
        },
        sandboxes={"a": box(0, 12), "b": box(20, 25), "c": box(30, 40, attempt=2)},
        iterations={
            "1": at(5),
            "2": at(10),
            "4": at(39),
        },
    )
    parts = [ledger.of_iteration(number, NOW) for number in (1, 2, 3, 4)]
    assert [part.sandbox_seconds / 60 for part in parts] == [5, 5, 2 + 5, 9]
    assert [part.models[MODEL].output for part in parts] == [1, 2, 4, 8]
    whole = ledger.cost(NOW)
    assert whole.sandbox_seconds / 60 == 12 + 5 + 10
    assert whole.models[MODEL].output == 15
    assert ledger.of_iteration(9, NOW).total_usd == 0


def test_a_budget_is_for_one_attempt_with_its_plan() -> None:
    plan = Spent(attempt=1, iteration=0, models={MODEL: Tokens(output=100_000)})
    first, second = spent(100_000), spent(300_000, "t", attempt=2, iteration=2)
    ledger = Ledger(runs={"plan": plan, "1-1-1": first, "2-2-1": second})
    assert ledger.model_usd(1) == pytest.approx(2)
    assert ledger.model_usd(2) == pytest.approx(3)
