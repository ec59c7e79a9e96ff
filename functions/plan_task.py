"""Workflow: the first step → CreateSandbox. Asks a model for a plan, which the agent is then given.

A plan is advice: without one the task runs all the same, and its record and feed say so. Asked
again, it finds the plan that was stored, and pays for no second one.
"""

from typing import Any

from autocoder import prompts
from autocoder.errors import TaskCancelled
from autocoder.ledger import PLAN, Ledger, Spent
from autocoder.message import TaskMessage
from autocoder.plan import PlannerUnavailable, StoredPlan, Usage
from autocoder.ports.objects import TaskFolder
from autocoder.ports.tasks import Entries
from autocoder.prices import Tokens
from autocoder.services import Services, begin, heartbeat, logger, step
from autocoder.task import Planning, State, seconds_left

MAY_TAKE_S = 90.0  # a try: there are two, and time to wait between them, in the function's time


def run(state: State, services: Services) -> Planning:
    """Make the plan, unless the sender wants none or there is one."""
    record = begin(state, services, "planning")
    services.events.emit("Task Started", record, execution_arn=record.get("execution_arn"))
    message = services.objects.message(state.task_id)
    if not message.plan:
        return tell(state, services, Planning(status="skipped"), {}, {})
    stored = services.objects.plan(state.task_id)
    model = message.model or services.settings.model
    if stored is None:
        try:
            stored = ask(state, message, record, model, services)
        except PlannerUnavailable as outage:
            logger.warning("no plan", extra={"reason": outage.reason}, exc_info=True)
            without = Planning(status="unavailable", reason=outage.reason, usage=outage.usage)
            spent: Entries = {("runs", f"{PLAN}-{state.attempt}"): paid(state, model, outage.usage)}
            return tell(state, services, without, {}, spent)
        key = TaskFolder(state.task_id).plan
        services.objects.write_json(key, stored.model_dump(mode="json"))
    planned = Planning(status="planned", usage=stored.usage)
    spent = {}
    if PLAN not in Ledger.of(record).runs:  # an earlier attempt may have paid for it
        spent = {("runs", PLAN): paid(state, stored.model, stored.usage)}
    return tell(state, services, planned, stored.plan.summary(), spent)


def ask(
    state: State, message: TaskMessage, record: dict[str, Any], model: str, services: Services
) -> StoredPlan:
    """Ask for the plan; a task that has little time spends most of it on the work itself."""

    def go_on() -> None:
        if heartbeat(state, services, {}):
            raise TaskCancelled.before("planning")

    return services.planner.plan(
        prompts.plan_prompt(state.task_id, message),
        model=model,
        timeout_s=max(min(MAY_TAKE_S, seconds_left(record) / 4), 1.0),
        go_on=go_on,
    )


def paid(state: State, model: str, usage: Usage) -> dict[str, Any]:
    """Say what the plan took, for the ledger."""
    took = {model: Tokens.of(usage.model_dump())}
    return Spent(attempt=state.attempt, iteration=0, models=took, ended=True).as_entry()


def tell(
    state: State,
    services: Services,
    planning: Planning,
    summary: dict[str, Any],
    spent: Entries,
) -> Planning:
    """Say in the record and the feed what came of it."""
    shown = {**planning.model_dump(exclude_none=True), **summary}
    services.tasks.running(state.task_id, state.attempt, spent, plan=shown)
    services.events.note(state, "planning", "planned", **shown)
    return planning


handler = step(run)
