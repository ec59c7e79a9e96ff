"""Queue → here → Tasks row QUEUED → dispatch_tasks. Records what was sent; starts nothing.

A message that is not accepted gets a REJECTED record and goes to the dead-letter queue at once.
Everything is safe to repeat: SQS delivers at least once.
"""

import json
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from autocoder.errors import InputError
from autocoder.message import CancelMessage, TaskMessage, decode, parse
from autocoder.ports.events import place
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services, logger, services
from autocoder.task import Failure


def run(record: dict[str, Any], services: Services) -> None:
    """Take in one message."""
    body, message_id = record["body"], record["messageId"].lower()
    try:
        message = parse(body)
        if isinstance(message, CancelMessage):
            cancel(message, services)
        else:
            accept(message, body, message_id, services)
    except InputError as error:
        logger.info("rejected", extra={"message_id": message_id, "reason": error.message})
        reject(body, message_id, error, services)


def accept(message: TaskMessage, body: str, message_id: str, services: Services) -> None:
    """Record the task; the same message again is the same task."""
    task_id = message.task_id or message_id
    if not services.objects.claim(TaskFolder(task_id).message, canonical(body)):
        raise InputError("task_id_taken", f"task_id: {task_id} belongs to another message already.")
    services.tasks.create(
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
    )
    services.events.note(task_id, place(1, 0, "queued"), "queued", priority=message.priority)
    services.events.emit("Task Queued", task_id, 1, metadata=message.metadata)


def reject(body: str, message_id: str, error: InputError, services: Services) -> None:
    """Keep the message and the reason: under its own id if that is free, else under SQS's."""
    task_id = message_id
    wanted = own_id(body)
    if wanted and services.objects.claim(TaskFolder(wanted).message, canonical(body)):
        record = services.tasks.get(wanted)
        if record is None or record["status"] == "REJECTED":
            task_id = wanted
    services.objects.claim(TaskFolder(task_id).message, canonical(body))
    failure = Failure.of(error.code, error.message).model_dump()
    services.tasks.create(
        task_id, "REJECTED", stage="finished", attempt=1, iteration=0, failure=failure
    )
    services.events.emit("Task Rejected", task_id, 1, failure=failure)
    reason = f"{error.message} {error.hint}"
    services.sqs.send_message(
        QueueUrl=services.settings.dead_letters_url,
        MessageBody=body,
        MessageAttributes={
            "reason": {"DataType": "String", "StringValue": printable(reason)},
            "task_id": {"DataType": "String", "StringValue": task_id},
        },
    )


def cancel(message: CancelMessage, services: Services) -> None:
    """Raise the flag, which a running task sees at its next heartbeat; end one that waits."""
    record = services.tasks.ask_cancel(message.task_id)
    if record is None:
        raise InputError("task_unknown", f"task_id: there is no task {message.task_id} to cancel.")
    logger.info("cancel", extra={"task_id": message.task_id, "status": record["status"]})
    failure = Failure.of("cancelled", "The task was cancelled before it started.").model_dump()
    if services.tasks.withdraw(message.task_id, record["attempt"], failure=failure):
        services.events.emit("Task Cancelled", message.task_id, record["attempt"], failure=failure)


def own_id(body: str) -> str | None:
    """The task_id of a message that was not accepted, if it has a valid one."""
    try:
        content = decode(body)
        probe = {"specification": "x", "task_id": content.get("task_id")}
        found = parse(json.dumps(probe))
    except InputError:
        return None
    return None if "action" in content else found.task_id


def canonical(body: str) -> bytes:
    """The message as stored: the order of its fields makes no other message of it."""
    try:
        return json.dumps(decode(body), sort_keys=True, ensure_ascii=False).encode()
    except InputError:
        return body.encode(errors="backslashreplace")


def printable(text: str) -> str:
    """What an SQS attribute may hold."""
    return "".join(char if char.isprintable() else "?" for char in text)[:1000]


processor = BatchProcessor(event_type=EventType.SQS)


def handler(event: dict[str, Any], context: Any) -> Any:
    """Take in a batch; only the messages that failed come again."""
    return process_partial_response(
        event=event,
        record_handler=lambda record: run(record.raw_event, services()),
        processor=processor,
        context=context,
    )
