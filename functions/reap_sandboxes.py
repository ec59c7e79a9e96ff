"""Every ten minutes → here: ends what was left behind, sandboxes first of all, for they cost money.

    a sandbox or a slot whose attempt is over or unknown    is released
    a RUNNING task whose execution is over or missing       is ended as FAILED
    a QUEUED task that dispatch does not see                is put back into its index

Everything is idempotent, and conditional on the record: a task that ends at the same moment wins.
One thing that can't be mended does not keep the others from it.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from autocoder.ending import end_stranded
from autocoder.services import Services, connected, logger
from autocoder.task import State, Status, attempt_of, is_over

# A task whose record is younger is left alone: Step Functions and the indexes may lag behind, and
# the rule for executions that ended comes first. A task that runs writes every few seconds.
QUIET = timedelta(minutes=5)

Mend = Callable[[], object]


def run(services: Services, quiet: timedelta = QUIET) -> dict[str, int]:
    """Mend everything; say how many of each kind. What failed is raised at the end."""
    before = (datetime.now(UTC) - quiet).isoformat()
    kinds: dict[str, Callable[[], Iterator[Mend]]] = {
        "sandboxes": lambda: left_sandboxes(services),
        "slots": lambda: left_slots(services),
        "stranded": lambda: stranded_tasks(services, before),
        "requeued": lambda: lost_tasks(services, before),
    }
    mended, failed = dict.fromkeys(kinds, 0), []
    for kind, find in kinds.items():
        try:
            for mend in find():
                try:
                    mend()
                    mended[kind] += 1
                except Exception as error:
                    logger.exception("not mended", extra={"kind": kind})
                    failed.append(error)
        except Exception as error:
            logger.exception("not looked for", extra={"kind": kind})
            failed.append(error)
    logger.info("mended", extra=mended)
    if failed:
        raise ExceptionGroup("Not everything that was left behind could be mended.", failed)
    return mended


def left_sandboxes(services: Services) -> Iterator[Mend]:
    """Sandboxes of attempts that are over, or that no record knows."""
    sandboxes = services.sandboxes
    for name, sandbox_ids in sandboxes.by_attempt().items():
        if is_over(name, services.tasks.get):
            for sandbox_id in sandbox_ids:
                logger.warning("sandbox", extra={"attempt": name, "sandbox_id": sandbox_id})
                yield partial(sandboxes.kill, sandbox_id)


def left_slots(services: Services) -> Iterator[Mend]:
    """Slots of attempts that are over; those of QUEUED tasks are dispatch's."""
    for name in sorted(services.tasks.holders()):
        attempt = attempt_of(name)
        if attempt and is_over(name, services.tasks.get):
            logger.warning("slot", extra={"attempt": name})
            yield partial(services.tasks.release_slot, *attempt)


def stranded_tasks(services: Services, before: str) -> Iterator[Mend]:
    """RUNNING tasks whose execution does not run."""
    for task_id in quiet_tasks("RUNNING", services, before):
        record = services.tasks.get(task_id)
        if record and record["status"] == "RUNNING":
            state = State(task_id=task_id, attempt=record["attempt"])
            if reason := why_not_running(state, services):
                yield partial(end_stranded, task_id, state.attempt, reason, services)


def why_not_running(state: State, services: Services) -> str | None:
    """Say what became of the attempt's execution; None if it runs."""
    client = services.workflow
    try:
        arn = services.settings.execution_arn(state.name)
        execution = client.describe_execution(executionArn=arn)
    except client.exceptions.ExecutionDoesNotExist:
        return f"There is no execution {state.name}."
    if execution["status"] in ("RUNNING", "PENDING_REDRIVE"):
        return None
    return f"The execution ended as {execution['status']} before the task did."


def lost_tasks(services: Services, before: str) -> Iterator[Mend]:
    """QUEUED tasks that are not in the index that dispatch reads."""
    seen = {task["task_id"] for task in services.tasks.waiting()}
    for task_id in quiet_tasks("QUEUED", services, before):
        record = services.tasks.get(task_id) if task_id not in seen else None
        if record and record["status"] == "QUEUED" and "queue" not in record:
            logger.warning("lost from the queue", extra={"task_id": task_id})
            priority = record.get("priority", "normal")
            yield partial(services.tasks.queue_again, task_id, record["attempt"], priority)


def quiet_tasks(status: Status, services: Services, before: str) -> list[str]:
    """The tasks of a status whose records have not changed since."""
    found = services.tasks.with_status(status)
    return [t["task_id"] for t in found if t.get("updated_at", t["created_at"]) < before]


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Run for the schedule."""
    return run(connected())
