"""Queue → here → Tasks row QUEUED → dispatch_tasks. Records what was sent; starts nothing.

A message that is not accepted gets a REJECTED record and goes to the dead-letter queue at once.
Everything is safe to repeat: SQS delivers at least once.
"""

import hashlib
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from autocoder.errors import InputError, TransientError
from autocoder.ledger import EMPTY
from autocoder.message import ControlMessage, TaskMessage, canonical, decode, own_id, parse
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services, connected, logger
from autocoder.task import RETRYABLE, Failure, Resumes, State
from autocoder.text import printable

SQS_MESSAGE_BYTES = 1024 * 1024
ATTRIBUTES_BYTES = 5000  # more than `reason` (1,000 characters of up to 4 bytes) and `task_id` take

# Why a task of this status can't be retried.
NOT_NOW = {
    "QUEUED": "waits to be started; there is nothing to retry yet.",
    "RUNNING": "is running; wait for its end, or cancel it first.",
    "WAITING": "is waiting; wait for its end, or cancel it first.",
    "REJECTED": "was rejected and never began; correct its message and send that.",
    "SUCCEEDED": "has succeeded; send what is to be different as a new task.",
}


def run(body: str, message_id: str, services: Services) -> None:
    """Take in one message; `message_id` is SQS's, which has the form of a task's."""
    content: dict[str, Any] = {}
    try:
        content = decode(body)
        message = parse(content)
        if isinstance(message, ControlMessage):
            act(message, message_id, services)
        else:
            accept(message, content, message_id, services)
    except InputError as error:
        logger.info("rejected", extra={"message_id": message_id, "reason": error.message})
        reject(body, content, message_id, error, services)


def accept(
    message: TaskMessage, content: dict[str, Any], message_id: str, services: Services
) -> None:
    """Record the task; the same message again is the same task."""
    task_id = message.task_id or message_id
    if message.source:
        find_source(message.source.s3, services)
    stored = canonical({**content, "task_id": task_id})  # sent again with its id, it is the same
    if not services.objects.claim(TaskFolder(task_id).message, stored):
        raise taken(task_id)
    sha256 = hashlib.sha256(stored).hexdigest()
    made = services.tasks.create(
        task_id,
        "QUEUED",
        stage="queued",
        attempt=1,
        iteration=0,
        queue=message.priority,
        priority=message.priority,
        limits=message.limits.model_dump(),
        project={"name": message.project.name},
        metadata=message.metadata,
        message_sha256=sha256,
        ledger=EMPTY,
    )
    # The bucket may forget a message a little sooner than the table does its task.
    if not made and (services.tasks.get(task_id) or {}).get("message_sha256", sha256) != sha256:
        raise taken(task_id)
    state = State(task_id=task_id, attempt=1)
    services.events.note(state, "queued", "queued", priority=message.priority)
    record = {"task_id": task_id, "attempt": 1, "metadata": message.metadata}
    services.events.emit("Task Queued", record)


def find_source(url: str, services: Services) -> None:
    """Refuse a source that can't be read: it must be there before the message is."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if bucket != services.objects.bucket:
        reason = f"lies in another bucket; put it into s3://{services.objects.bucket}/sources/."
        raise InputError("source_missing", f"source.s3: {reason}")
    if not services.objects.exists(key):
        raise InputError("source_missing", f"source.s3: there is no {key}; put it there first.")


def taken(task_id: str) -> InputError:
    """Say that the id is another task's."""
    return InputError("task_id_taken", f"task_id: {task_id} belongs to another message already.")


def reject(
    body: str, content: dict[str, Any], message_id: str, error: InputError, services: Services
) -> None:
    """Keep the message and the reason: under its own id if that is free, else under SQS's."""
    failure = Failure.of(error.code, error.message).model_dump()
    fields = {"attempt": 1, "iteration": 0, "failure": failure, "message_id": message_id}
    for task_id in filter(None, (own_id(content) if "action" not in content else None, message_id)):
        made = services.tasks.create(task_id, "REJECTED", stage="finished", **fields)
        if made or rejected_before(task_id, message_id, services):
            break
    services.objects.write(TaskFolder(task_id).rejected(message_id), body)
    services.events.emit("Task Rejected", {"task_id": task_id, "attempt": 1}, failure=failure)
    attributes = {"reason": printable(f"{error.message} {error.hint}")[:1000], "task_id": task_id}
    if len(body.encode()) > SQS_MESSAGE_BYTES - ATTRIBUTES_BYTES:
        attributes = {}  # they count, and the body leaves them no room; the record has the reason
    services.sqs.send_message(
        QueueUrl=services.settings.dead_letters_url,
        MessageBody=body,
        MessageAttributes={
            name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()
        },
    )


def rejected_before(task_id: str, message_id: str, services: Services) -> bool:
    """Whether this very delivery was recorded under the id, and comes again."""
    record = services.tasks.get(task_id) or {}
    return record.get("message_id") == message_id


def act(message: ControlMessage, message_id: str, services: Services) -> None:
    """Do what a control message asks for."""
    if message.action == "cancel":
        cancel(message, message_id, services)
    else:
        retry(message.task_id, message_id, services)


def cancel(message: ControlMessage, message_id: str, services: Services) -> None:
    """Raise the flag, which a running task sees at its next heartbeat; end one that waits."""
    record = services.tasks.ask_cancel(message.task_id, message_id)
    if record is None:
        raise InputError("task_unknown", f"task_id: there is no task {message.task_id} to cancel.")
    if message_id in record.get("cancels", []) and not record.get("cancel_requested"):
        logger.info("came again, after a retry", extra={"task_id": message.task_id})
        return
    logger.info("cancel", extra={"task_id": message.task_id, "status": record["status"]})
    failure = Failure.of("cancelled", "The task was cancelled before it started.").model_dump()
    if services.tasks.withdraw(message.task_id, record["attempt"], failure=failure):
        record = {**record, "status": "CANCELLED", "failure": failure}
    if record["status"] == "CANCELLED":  # also when it comes again: the first may have died here
        services.tasks.release_slot(message.task_id, record["attempt"])
        services.events.emit("Task Cancelled", record, failure=record["failure"])


def retry(task_id: str, message_id: str, services: Services) -> None:
    """Put a task that ended without success back into line, from its last checkpoint on.

    A message that comes again is known by its id, and only told of again: the first delivery may
    have died before it did.
    """
    record = services.tasks.get(task_id)
    if record is None:
        raise InputError("task_unknown", f"task_id: there is no task {task_id} to retry.")
    if message_id not in record.get("retries", []):
        if record["status"] not in RETRYABLE:
            raise InputError("not_retryable", f"task_id: {task_id} {NOT_NOW[record['status']]}")
        folder = TaskFolder(task_id)
        if not services.objects.renew(folder.message):
            gone = f"task_id: what {task_id} was sent with has expired; send it as a new task."
            raise InputError("not_retryable", gone)
        resumes = left_by(record, services)
        for key in filter(None, (folder.plan, resumes.checkpoint, resumes.report)):
            services.objects.renew(key)
        fields = {"resumes": resumes.model_dump(), "queue": record["priority"]}
        if not services.tasks.retry(task_id, record["attempt"], message_id, **fields):
            raise TransientError("internal_error", f"Task {task_id} changed at the same moment.")
        record = services.tasks.get(task_id) or record
        logger.info("retry", extra={"task_id": task_id, "attempt": record["attempt"]})
    if record["status"] == "QUEUED":
        state = State(task_id=task_id, attempt=record["attempt"])
        services.events.note(state, "queued", "queued", priority=record["priority"])
        services.events.emit("Task Queued", record)


def left_by(record: dict[str, Any], services: Services) -> Resumes:
    """Find what a task's attempts left: the newest checkpoint, and what its checks found."""
    folder, objects, last = TaskFolder(record["task_id"]), services.objects, record["iteration"]
    kept = next((n for n in range(last, 0, -1) if objects.exists(folder.checkpoint(n))), None)
    if kept is None:
        return Resumes(iteration=last)
    reports = {key: objects.report(key) for key in (folder.checks(kept), folder.clean_room(kept))}
    red = next((key for key, report in reports.items() if report and not report.green), None)
    return Resumes(iteration=last, checkpoint=folder.checkpoint(kept), report=red)


processor = BatchProcessor(event_type=EventType.SQS)


def take_in(record: SQSRecord) -> None:
    """Take in one record of the batch."""
    run(record.body, record.message_id.lower(), connected())


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Take in a batch; only the messages that failed come again."""
    return process_partial_response(
        event=event, record_handler=take_in, processor=processor, context=context
    )
