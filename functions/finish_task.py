"""Workflow: the last step of every task, however it went. Releases what it held, writes the end.

Everything is safe to repeat, and everything is tried: an E2B outage must not keep a task from being
recorded. What failed is raised at the end, so that the step is retried.
"""

from pydantic import BaseModel

from autocoder.errors import AutocoderError, TaskClosed
from autocoder.services import Services, logger, step
from autocoder.task import State, Status, verdict


class Finished(BaseModel):
    """How the task ended."""

    status: Status


def run(state: State, services: Services) -> Finished:
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
    cost = state.run.cost_usd if state.run else 0.0
    fields = {
        "failure": failure.model_dump() if failure else None,
        "result": state.result.model_dump() if state.result else None,
        "cost": {"model_usd": cost},
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


handler = step(run)
