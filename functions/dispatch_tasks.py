"""Tasks row QUEUED → here → StartExecution. Runs after intake, after every finish, every minute.

It takes a slot for the oldest waiting task and starts its execution, until slots or tasks run out.
A crash at any point is mended by the next run: both acts are idempotent.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from autocoder.errors import TaskClosed
from autocoder.services import Services, connected, logger
from autocoder.task import State, attempt_of

# So many places in line are written in one run; those behind them wait for long anyway.
PLACES = 100


def run(services: Services) -> int:
    """Start what may start, and note the others' places in line; say how many were started."""
    started = 0
    waiting = chain(half_started(services), services.tasks.waiting())
    for task in waiting:
        state = begins_with(task, services)
        limit = services.settings.max_running
        arn = services.settings.execution_arn(state.name)
        slot = services.tasks.take_slot(state.task_id, state.attempt, limit, arn)
        if slot == "busy":  # another dispatch is at it; what it leaves, the next minute takes
            logger.info("another dispatch is at it")
            break
        if slot == "full":
            logger.info("all slots are taken", extra={"limit": limit})
            note_places(chain([task], waiting), services)
            break
        if slot == "taken":
            start(state, services)
            started += 1
    return started


def half_started(services: Services) -> Iterator[dict[str, Any]]:
    """Those that a crash left with a slot and without an execution.

    They come first: when all slots are taken, they would wait behind others for ever.
    """
    for name in services.tasks.holders():
        task_id, attempt = attempt_of(name) or ("", 0)
        record = services.tasks.get(task_id) if task_id else None
        if record and (record["status"], record["attempt"]) == ("QUEUED", attempt):
            yield record


def note_places(waiting: Iterable[dict[str, Any]], services: Services) -> None:
    """Write the places that have changed."""
    for position, task in enumerate(islice(waiting, PLACES), start=1):
        if task.get("queue_position") != position:
            services.tasks.place(task["task_id"], task["attempt"], position)


def begins_with(task: dict[str, Any], services: Services) -> State:
    """Say what an attempt begins with: a further one with what the one before left.

    The index does not hold that, and the record does not change it while the attempt lasts.
    """
    task_id, attempt = task["task_id"], task["attempt"]
    record = services.tasks.get(task_id) if attempt > 1 else None
    return State(task_id=task_id, attempt=attempt, resumes=(record or {}).get("resumes"))


def start(state: State, services: Services) -> None:
    """Start the execution, whose input is the same however often it is started."""
    machine = services.settings.state_machine_arn
    client = services.workflow
    content = state.model_dump_json(exclude_none=True)
    try:
        client.start_execution(stateMachineArn=machine, name=state.name, input=content)
    except client.exceptions.ExecutionAlreadyExists:
        logger.info("started before", extra={"execution": state.name})
    try:
        services.tasks.running(state.task_id, state.attempt)
    except TaskClosed:
        logger.info("ended before it was noted", extra={"execution": state.name})
        services.tasks.release_slot(state.task_id, state.attempt)


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Run for whatever event it was."""
    return {"started": run(connected())}
