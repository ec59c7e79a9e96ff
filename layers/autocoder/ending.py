"""Ending a task: release what it held, write the end, tell of it.

Everything is safe to repeat, and everything is tried: an E2B outage must not keep a task from being
recorded. What failed is raised at the end, so that the caller is retried.
"""

import json

from autocoder.errors import AutocoderError, TaskClosed
from autocoder.model import Frozen
from autocoder.services import Services, logger
from autocoder.task import Caught, Failure, State, Status, verdict


class Finished(Frozen):
    """How the task ended."""

    status: Status


def end(state: State, services: Services) -> Finished:
    """End the sandbox, write the record, give the slot back, tell of it."""
    unreleased = release_sandboxes(state, services)
    finished = record_end(state, services)
    services.tasks.release_slot(state.task_id, state.attempt)
    if unreleased:
        raise unreleased
    return finished


def release_sandboxes(state: State, services: Services) -> AutocoderError | None:
    """End every sandbox of the attempt; give back, not raise, what went wrong."""
    try:
        services.sandboxes.kill_all(state.name)
    except AutocoderError as error:
        logger.exception("sandboxes not released")
        return error
    return None


def record_end(state: State, services: Services) -> Finished:
    """Write the end and emit its event; a task that was overtaken is left as it is."""
    status, failure = verdict(state)
    fields = {
        "failure": failure.model_dump() if failure else None,
        "result": state.result.model_dump() if state.result else None,
        "cost": {"model_usd": state.run.cost_usd} if state.run else None,
    }
    try:
        record = services.tasks.finish(
            state.task_id,
            state.attempt,
            status,
            **{key: value for key, value in fields.items() if value is not None},
        )
    except TaskClosed:
        logger.warning("another attempt has taken over", extra={"attempt": state.attempt})
        return Finished(status=status)
    services.events.note(state, "finished", "finished", status=record["status"])
    detail = {key: record[key] for key in ("failure", "result") if key in record}
    services.events.emit(f"Task {record['status'].capitalize()}", record, **detail)
    return Finished(status=record["status"])


def end_stranded(task_id: str, attempt: int, reason: str, services: Services) -> Finished:
    """End a task as FAILED whose execution is over; one that has ended stays as it is."""
    failure = Failure.of("workflow_ended", reason)
    cause = json.dumps({"errorMessage": failure.model_dump_json()})
    state = State(task_id=task_id, attempt=attempt, error=Caught(Error="Stranded", Cause=cause))
    logger.warning("stranded", extra={"task_id": task_id, "attempt": attempt, "reason": reason})
    return end(state, services)
