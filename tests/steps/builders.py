"""Builders for what the steps get."""

import json
import uuid
from typing import Any

from autocoder.services import Services
from autocoder.task import State
from functions import start_task


def new_id(name: str) -> str:
    """A task id that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def take_in(services: Services, body: Any, message_id: str | None = None) -> None:
    """Hand a message to start_task, as SQS would."""
    text = body if isinstance(body, str) else json.dumps(body)
    start_task.run(text, message_id or str(uuid.uuid4()), services)


def queued(services: Services, name: str, **message: Any) -> State:
    """A task that was taken in."""
    task_id = new_id(name)
    body = {"specification": "x", "task_id": task_id, **message}
    take_in(services, body)
    return State(task_id=task_id, attempt=1)
