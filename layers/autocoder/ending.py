"""Ending a task: release what it held, write the end, tell of it.

Everything is safe to repeat, and everything is tried: an E2B outage must not keep a task from being
recorded. What failed is raised at the end, so that the caller is retried.
"""

from typing import Any

from autocoder.errors import AutocoderError, TaskClosed, TransientError
from autocoder.ledger import Ledger
from autocoder.model import Frozen
from autocoder.ports.tasks import Entries, now
from autocoder.services import Services, logger
from autocoder.task import Failure, State, Status, verdict


class Finished(Frozen):
    """How the task ended."""

    status: Status


def end(state: State, services: Services, stranded: Failure | None = None) -> Finished:
    """End the sandbox, write the record, give the slot back, tell of it: in this order.

    Who hears of the end finds the slot free. `stranded` is why a task ends that the workflow can't.
    """
    status, failure = ("FAILED", stranded) if stranded else verdict(state)
    unreleased = release_sandboxes(state, services)
    record = write_end(state, status, failure, services)
    services.tasks.release_slot(state.task_id, state.attempt)
    if record:
        tell(state, record, services)
    if unreleased:
        raise unreleased
    return Finished(status=record["status"] if record else status)


def release_sandboxes(state: State, services: Services) -> AutocoderError | None:
    """End every sandbox of the attempt; give back, not raise, what went wrong, whatever it is."""
    try:
        services.sandboxes.kill_all(state.name)
    except AutocoderError as error:
        logger.exception("sandboxes not released")
        return error
    except Exception as error:
        logger.exception("sandboxes not released")
        message = f"The sandboxes of {state.name} could not be ended: {error}"
        return TransientError("sandbox_unavailable", message)
    return None


def write_end(
    state: State, status: Status, failure: Failure | None, services: Services
) -> dict[str, Any] | None:
    """Write the end; None where another attempt has taken over: that is left as it is."""
    ledger, at = Ledger.of(services.tasks.get(state.task_id) or {}), now()
    fields = {
        "failure": failure.model_dump() if failure else None,
        "result": state.result.model_dump() if state.result else None,
        "cost": ledger.cost(at).model_dump(),
    }
    written = {key: value for key, value in fields.items() if value is not None}
    released: Entries = {("sandboxes", id, "ended"): at for id in ledger.open_in(state.attempt)}
    try:
        return services.tasks.finish(state.task_id, state.attempt, status, released, **written)
    except TaskClosed:
        logger.warning("another attempt has taken over", extra={"attempt": state.attempt})
        return None


def tell(state: State, record: dict[str, Any], services: Services) -> None:
    """Note the end in the feed, and put it on EventBridge."""
    cost = record.get("cost")
    services.events.note(state, "finished", "finished", status=record["status"], cost=cost)
    detail = {key: record[key] for key in ("failure", "result", "cost") if key in record}
    services.events.emit(f"Task {record['status'].capitalize()}", record, **detail)


def end_stranded(task_id: str, attempt: int, reason: str, services: Services) -> Finished:
    """End a task as FAILED whose execution is over; one that has ended stays as it is."""
    logger.warning("stranded", extra={"task_id": task_id, "attempt": attempt, "reason": reason})
    state = State(task_id=task_id, attempt=attempt)
    return end(state, services, stranded=Failure.of("workflow_ended", reason))
