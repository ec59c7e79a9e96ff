"""The service decides: by the checks and the limits."""

from typing import Any

import pytest

from autocoder.message import Limits
from autocoder.task import (
    AgentRun,
    Caught,
    ChecksRun,
    CleanRun,
    Decision,
    Failure,
    State,
    Status,
    verdict,
)
from functions.decide_next import decide

LIMITS = Limits(max_iterations=3, budget_usd=1.0, timeout_minutes=10).model_dump()


def state(*, green: bool, iteration: int = 1, cost: float = 0.0, **fields: Any) -> State:
    return State(
        task_id="t",
        attempt=1,
        run=AgentRun(iteration=iteration, status="done", cost_usd=cost),
        checks=ChecksRun(
            iteration=iteration, status="done", green=green, failed=[] if green else ["test"]
        ),
        decision=Decision(next="fix", iteration=iteration, reason="") if iteration > 1 else None,
        **fields,
    )


def test_green_is_verified_whatever_was_spent_and_then_finishes() -> None:
    green = state(green=True, iteration=3, cost=9)
    assert decide(green, LIMITS, -1).next == "verify"
    clean = CleanRun(iteration=3, status="done", green=True)
    assert decide(green.model_copy(update={"clean": clean}), LIMITS, -1).next == "finish"


def test_a_clean_room_of_an_earlier_iteration_proves_nothing() -> None:
    clean = CleanRun(iteration=1, status="done", green=True)
    assert decide(state(green=True, iteration=2, clean=clean), LIMITS, 60).next == "verify"


def test_red_in_the_clean_room_is_fixed_in_a_new_sandbox_and_has_the_same_limits() -> None:
    clean = CleanRun(iteration=2, status="done", failed=["acceptance"], signature="s")
    decision = decide(state(green=True, iteration=2, clean=clean), LIMITS, 60)
    assert (decision.next, decision.iteration) == ("fix_anew", 3)
    assert "clean room" in decision.reason
    clean = clean.model_copy(update={"iteration": 3})
    decision = decide(state(green=True, iteration=3, clean=clean), LIMITS, 60)
    assert (decision.next, decision.code) == ("give_up", "checks_failed")
    assert decision.hint and decision.hint.startswith("Read iterations/03/clean-room.json; ")


def test_a_task_that_is_given_up_with_a_rule_broken_ends_with_the_rules_code() -> None:
    red = state(green=False, iteration=3)
    assert red.checks
    red = red.model_copy(
        update={
            "checks": red.checks.model_copy(update={"tampered": ["tests_deleted", "tests_fewer"]})
        }
    )
    decision = decide(red, LIMITS, 60)
    assert (decision.next, decision.code) == ("give_up", "tests_deleted")
    assert "The rules tests_deleted and tests_fewer were broken." in decision.reason
    failure = verdict(red.model_copy(update={"decision": decision}))[1]
    assert failure and failure.hint == (
        "Read `findings` in iterations/03/checks.json. If it may be so, add to `allow` in the "
        'message: `"allow": ["tests_deleted", "tests_fewer"]`.'
    )
    assert decide(red, LIMITS, -1).code == "deadline_exceeded"


def test_a_clean_room_that_lacked_something_is_repeated_once() -> None:
    clean = CleanRun(iteration=1, status="done", failed=["test"], signature="s", broken="disk")
    first = decide(state(green=True, clean=clean), LIMITS, 60)
    assert (first.next, first.repeats) == ("verify", True)
    again = state(green=True, clean=clean).model_copy(update={"decision": first})
    assert decide(again, LIMITS, 60).next == "fix_anew"


def test_the_same_red_in_the_clean_room_again_and_again_is_no_progress() -> None:
    before, clean = None, CleanRun(iteration=1, status="done", failed=["t"], signature="s")
    for at in (1, 2, 3):
        now = state(green=True, iteration=at).model_copy(update={"decision": before})
        verify = decide(now, PATIENT, 60)
        assert verify.next == "verify"
        found = {"clean": clean.model_copy(update={"iteration": at}), "decision": verify}
        before = decide(now.model_copy(update=found), PATIENT, 60)
    assert before and before.code == "no_progress"


def test_red_is_fixed_in_the_next_iteration() -> None:
    decision = decide(state(green=False, iteration=2), LIMITS, 60)
    assert (decision.next, decision.iteration) == ("fix", 3)
    assert "test" in decision.reason


@pytest.mark.parametrize(
    ("iteration", "cost", "left", "code"),
    [
        (3, 0.0, 60.0, "checks_failed"),
        (1, 1.0, 60.0, "budget_exceeded"),
        (1, 0.0, 0.0, "deadline_exceeded"),
    ],
)
def test_a_limit_ends_it(iteration: int, cost: float, left: float, code: str) -> None:
    decision = decide(state(green=False, iteration=iteration, cost=cost), LIMITS, left)
    assert (decision.next, decision.code) == ("give_up", code)


def red(signature: str, before: Decision | None, **checks: Any) -> State:
    at = before.iteration if before else 1
    run = AgentRun(iteration=at, status="done")
    found = ChecksRun(iteration=at, status="done", failed=["test"], signature=signature, **checks)
    return State(task_id="t", attempt=1, run=run, checks=found, decision=before)


PATIENT = {**LIMITS, "max_iterations": 10}


def test_three_iterations_that_fail_in_the_same_way_are_enough() -> None:
    first = decide(red("a", None), PATIENT, 60)
    second = decide(red("a", first), PATIENT, 60)
    third = decide(red("a", second), PATIENT, 60)
    assert [d.next for d in (first, second, third)] == ["fix", "fix", "give_up"]
    assert third.code == "no_progress"


def test_a_change_in_what_fails_is_progress() -> None:
    decision: Decision | None = None
    for signature in ("a", "a", "b", "b", "a", "a"):
        decision = decide(red(signature, decision), PATIENT, 60)
        assert decision.next == "fix"


@pytest.mark.parametrize(
    ("lacked", "then", "code"),
    [
        ("memory", "fix", None),
        ("disk", "fix", None),
        ("network", "give_up", "registry_unreachable"),
    ],
)
def test_what_the_sandbox_lacked_is_checked_again_once_and_costs_no_iteration(
    lacked: str, then: str, code: str | None
) -> None:
    first = decide(red("a", None, broken=lacked), LIMITS, 60)
    assert (first.next, first.iteration) == ("recheck", 1)
    again = decide(red("a", first, broken=lacked), LIMITS, 60)
    assert (again.next, again.code) == (then, code)
    assert again.alike == (1 if then == "fix" else 0)


def test_a_run_that_hit_the_budget_ends_a_red_task_whatever_its_own_figure() -> None:
    at = red("a", None)
    run = AgentRun(iteration=1, status="done", outcome="error_max_budget_usd", cost_usd=0.99)
    decision = decide(at.model_copy(update={"run": run}), LIMITS, 60)
    assert (decision.next, decision.code) == ("give_up", "budget_exceeded")


FINISH = Decision(next="finish", iteration=1, reason="")
GIVE_UP = Decision(next="give_up", iteration=1, reason="red", code="checks_failed")
DECLINED = Failure.of("agent_refused", "The model declined.")
REFUSED = AgentRun(iteration=1, status="failed", failure=DECLINED)
OURS = Caught(
    Error="InputError",
    Cause='{"errorMessage": "{\\"code\\": \\"model_refused\\", \\"message\\": \\"m\\",'
    ' \\"hint\\": \\"h\\"}"}',
)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"decision": FINISH}, "SUCCEEDED", None),
        ({"decision": GIVE_UP}, "FAILED", "checks_failed"),
        ({"decision": FINISH, "error": OURS}, "FAILED", "model_refused"),
        ({"error": Caught(Error="Sandbox.Timedout", Cause="x")}, "FAILED", "internal_error"),
        ({"error": Caught(Error="KeyError", Cause="[1]")}, "FAILED", "internal_error"),
        ({"run": AgentRun(iteration=1, status="cancelled")}, "CANCELLED", "cancelled"),
        ({"run": REFUSED}, "FAILED", "agent_refused"),
        ({}, "FAILED", "internal_error"),
    ],
)
def test_the_verdict(fields: dict[str, Any], status: Status, code: str | None) -> None:
    ended, failure = verdict(State(task_id="t", attempt=1, **fields))
    assert ended == status
    assert (failure.code if failure else None) == code
    assert failure is None or failure.hint
