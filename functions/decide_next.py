"""Workflow: TestAndBuild → here → fix, finish or give up. The service decides, never the agent."""

from typing import Any

from autocoder.services import Services, step
from autocoder.task import Decision, State, seconds_left


def run(state: State, services: Services) -> Decision:
    """Decide by the checks and the task's limits."""
    record = services.tasks.running(state.task_id, state.attempt, stage="deciding")
    return decide(state, record["limits"], seconds_left(record))


def decide(state: State, limits: dict[str, Any], left_s: float) -> Decision:
    """Green finishes; red is fixed as long as iterations, money and time are left."""
    assert state.checks and state.run  # noqa: S101 - those steps come before
    at = state.iteration
    if state.checks.green:
        return Decision(next="finish", iteration=at, reason="Every check passed.")
    red = f"Not passed after iteration {at}: {', '.join(state.checks.failed)}."
    if left_s <= 0:
        minutes = limits["timeout_minutes"]
        return give_up(at, "deadline_exceeded", f"{red} The task's time is over ({minutes} min).")
    if state.run.cost_usd >= limits["budget_usd"]:
        spent = f"{state.run.cost_usd:.2f} of {limits['budget_usd']:.2f} USD"
        return give_up(at, "budget_exceeded", f"{red} The budget is used up: {spent}.")
    if at >= limits["max_iterations"]:
        return give_up(at, "checks_failed", f"{red} No iteration is left.")
    return Decision(next="fix", iteration=at + 1, reason=red)


def give_up(iteration: int, code: str, reason: str) -> Decision:
    """End the task with what is there."""
    return Decision(next="give_up", iteration=iteration, code=code, reason=reason)


handler = step(run)
