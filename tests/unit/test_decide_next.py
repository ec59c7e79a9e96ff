"""The service decides: by the checks and the limits."""

from typing import Any

import pytest

from autocoder.message import Limits
from autocoder.task import AgentRun, Caught, ChecksRun, Decision, State, Status, verdict
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


def test_green_finishes_whatever_was_spent() -> None:
    decision = decide(state(green=True, iteration=3, cost=9), LIMITS, -1)
    assert decision.next == "finish"


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


FINISH = Decision(next="finish", iteration=1, reason="")
GIVE_UP = Decision(next="give_up", iteration=1, reason="red", code="checks_failed")
OURS = Caught(
    Error="AgentError",
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
        ({}, "FAILED", "internal_error"),
    ],
)
def test_the_verdict(fields: dict[str, Any], status: Status, code: str | None) -> None:
    ended, failure = verdict(State(task_id="t", attempt=1, **fields))
    assert ended == status
    assert (failure.code if failure else None) == code
    assert failure is None or failure.hint
