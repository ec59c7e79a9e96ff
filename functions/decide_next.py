"""Workflow: TestAndBuild or VerifyClean → here → fix, verify, finish or give up.

The service decides, never the agent.
"""

from typing import Any, TypedDict

from autocoder.errors import hint
from autocoder.ledger import Ledger
from autocoder.ports.tasks import Entries, now
from autocoder.services import Services, begin, step
from autocoder.task import Decision, Next, State, seconds_left

# So many iterations in a row that end with the same failures: the agent is going round in circles.
NO_PROGRESS = 3


class Seen(TypedDict, total=False):
    """What a decision carries on, so that the next one can tell whether anything changed."""

    signature: str
    alike: int


def run(state: State, services: Services) -> Decision:
    """Decide by the checks and the task's limits."""
    record = begin(state, services, "deciding")
    decision = decide(state, record["limits"], seconds_left(record))
    completed = decision.next not in ("recheck", "verify")
    ended: Entries = {("iterations", str(state.iteration)): now()}
    cost = record_cost(state, services, ended if completed else {})
    if completed:
        found = {"green": state.judged.green, "failed": state.judged.failed, **cost}
        services.events.emit("Iteration Completed", record, iteration=state.iteration, **found)
    return decision


def record_cost(state: State, services: Services, entries: Entries) -> dict[str, Any]:
    """Bring the record's cost up to date; give the task's and the iteration's, for the event."""
    ledger = Ledger.of(services.tasks.running(state.task_id, state.attempt, entries))
    at = now()
    cost = ledger.cost(at).model_dump()
    services.tasks.running(state.task_id, state.attempt, cost=cost)
    return {"cost": cost, "iteration_cost": ledger.of_iteration(state.iteration, at).model_dump()}


def decide(state: State, limits: dict[str, Any], left_s: float) -> Decision:
    """Green afresh finishes; red is fixed as long as iterations, money and time are left."""
    at, judged, before = state.iteration, state.judged, state.decision
    cleanly = judged is state.clean
    if judged.green and cleanly:
        return Decision(next="finish", iteration=at, reason="Every check passed, also afresh.")
    if judged.green:
        last = Seen(signature=before.signature, alike=before.alike) if before else Seen()
        return Decision(next="verify", iteration=at, reason="Every check passed.", **last)
    where = " in the clean room" if cleanly else ""
    red = f"Not passed{where} after iteration {at}: {', '.join(judged.failed)}."
    repeated = before is not None and before.repeats
    alike = 1
    if before and before.signature == judged.signature:
        alike = before.alike + (not repeated)  # the same iteration, checked again, counts once
    seen = Seen(signature=judged.signature, alike=alike)
    if judged.broken and not repeated and left_s > 0:
        reason = f"{red} The sandbox lacked {judged.broken}: they are run again in a fresh one."
        again: Next = "verify" if cleanly else "recheck"
        return Decision(next=again, iteration=at, reason=reason, repeats=True, **seen)
    if judged.broken == "network":
        reason = f"{red} No package registry could be reached, from two sandboxes."
        return give_up(at, "registry_unreachable", reason)
    if limit := reached(state, limits, left_s, alike):
        code, reason = limit
        if judged.tampered and code in ("checks_failed", "no_progress"):
            code, reason = judged.tampered[0], f"{reason} {broken(judged.tampered)}"
        report = f"iterations/{at:02}/{'clean-room' if cleanly else 'checks'}.json"
        return give_up(at, code, f"{red} {reason}", hint(code, report, judged.tampered))
    fix: Next = "fix_anew" if cleanly else "fix"
    return Decision(next=fix, iteration=at + 1, reason=red, **seen)


def reached(
    state: State, limits: dict[str, Any], left_s: float, alike: int
) -> tuple[str, str] | None:
    """Give the code and the sentence of the limit that ends a red task; None if none does."""
    assert state.run  # noqa: S101 - that step comes before
    if left_s <= 0:
        return "deadline_exceeded", f"The task's time is over ({limits['timeout_minutes']} min)."
    budget, spent = limits["budget_usd"], state.run.cost_usd
    if spent >= budget or state.run.outcome == "error_max_budget_usd":
        return "budget_exceeded", f"The budget is used up: {spent:.2f} of {budget:.2f} USD."
    if state.iteration - state.before >= limits["max_iterations"]:
        return "checks_failed", "No iteration is left."
    if alike >= NO_PROGRESS:
        return "no_progress", f"The last {alike} iterations failed in the same way."
    return None


def broken(rules: list[str]) -> str:
    """Name the rules that were broken."""
    if len(rules) == 1:
        return f"The rule {rules[0]} was broken."
    return f"The rules {', '.join(rules[:-1])} and {rules[-1]} were broken."


def give_up(iteration: int, code: str, reason: str, hint: str | None = None) -> Decision:
    """End the task with what is there."""
    return Decision(next="give_up", iteration=iteration, code=code, reason=reason, hint=hint)


handler = step(run)
