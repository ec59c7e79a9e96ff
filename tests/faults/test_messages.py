"""Messages that can't be taken as they are, and an intake that dies on the way.

What is wrong with a message, field by field, is in tests/unit/test_message.py; what becomes of it
in tests/steps/test_start_task.py; any message at all in test_any_message.py.
"""

import json
import uuid
from typing import Any
from unittest.mock import Mock

import pytest

from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from functions import start_task
from tests.faults.support import dead_letters
from tests.steps.builders import new_id, queued, take_in
from tests.world import World


def a_message(**fields: Any) -> str:
    return json.dumps({"specification": "x", **fields})


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ('{"specification": ', "message_not_json", "not valid JSON"),
        (a_message(colour="blue"), "message_invalid", "colour: is not a known field"),
        (a_message(specification=""), "message_invalid", "specification: "),
        (a_message(specification="x" * 300 * 1024), "message_invalid", "307200 bytes"),
        (a_message(task_id="No Such Id"), "message_invalid", "task_id: "),
        (a_message(metadata={"k": "v" * 450_000}), "message_invalid", "metadata.k: "),
        (a_message(limits={"budget_usd": 5e-324}), "message_invalid", "limits.budget_usd: "),
    ],
    ids=["not JSON", "unknown field", "empty", "300 KiB", "bad id", "large metadata", "no money"],
)
def test_a_message_that_is_refused_is_kept_whole_with_its_reason(
    world: World, body: str, code: str, says: str
) -> None:
    services, message_id = world.services(), str(uuid.uuid4())
    dead_letters(services)
    take_in(services, body, message_id)
    record = services.tasks.get(message_id)
    assert record and (record["status"], record["failure"]["code"]) == ("REJECTED", code)
    assert says in record["failure"]["message"]
    assert services.objects.read(TaskFolder(message_id).rejected(message_id)).decode() == body
    (letter,) = dead_letters(services)
    assert letter["Body"] == body
    assert letter["MessageAttributes"]["task_id"]["StringValue"] == message_id


def test_a_message_as_large_as_sqs_takes_them_still_reaches_the_dead_letters(world: World) -> None:
    services, message_id = world.services(), str(uuid.uuid4())
    dead_letters(services)
    body = "x" * 1024 * 1024
    take_in(services, body, message_id)
    assert [letter["Body"] for letter in dead_letters(services)] == [body]
    assert services.tasks.get(message_id)


def test_the_same_id_with_other_content_does_not_reach_the_first_task(world: World) -> None:
    services, message_id = world.services(), str(uuid.uuid4())
    first = queued(services, "first")
    before = services.tasks.get(first.task_id)
    dead_letters(services)
    take_in(services, a_message(task_id=first.task_id, priority="high"), message_id)
    assert services.tasks.get(first.task_id) == before
    (letter,) = dead_letters(services)
    assert letter["MessageAttributes"]["task_id"]["StringValue"] == message_id
    assert "belongs to another message" in letter["MessageAttributes"]["reason"]["StringValue"]


# Where the intake can die, each between two of its writes: a port that fails, and what was done.
DEATHS = ["tasks.create", "events.note", "events.emit"]


@pytest.mark.parametrize("port", DEATHS)
def test_an_intake_that_dies_half_way_is_completed_when_the_message_comes_again(
    world: World, port: str
) -> None:
    dying, task_id, message_id = world.services(), new_id("half"), str(uuid.uuid4())
    body = a_message(task_id=task_id)
    collaborator, call = port.split(".")
    setattr(getattr(dying, collaborator), call, Mock(side_effect=ConnectionError("it died")))
    with pytest.raises(ConnectionError):
        start_task.run(body, message_id, dying)
    told: list[str] = []
    services = world.services()
    telling(services, told)
    start_task.run(body, message_id, services)
    record = services.tasks.get(task_id)
    assert record and record["status"] == "QUEUED"
    assert told == ["Task Queued"]
    assert [entry["kind"] for entry in world.feed(task_id)] == ["queued"]


@pytest.mark.parametrize("port", ["objects.write", "events.emit", "sqs.send_message"])
def test_a_rejection_that_dies_half_way_is_completed_when_the_message_comes_again(
    world: World, port: str
) -> None:
    dying, task_id, message_id = world.services(), new_id("bad"), str(uuid.uuid4())
    dead_letters(dying)
    body = json.dumps({"task_id": task_id})
    collaborator, call = port.split(".")
    setattr(getattr(dying, collaborator), call, Mock(side_effect=ConnectionError("it died")))
    with pytest.raises(ConnectionError):
        start_task.run(body, message_id, dying)
    services = world.services()
    start_task.run(body, message_id, services)
    assert services.objects.read(TaskFolder(task_id).rejected(message_id)).decode() == body
    assert [letter["Body"] for letter in dead_letters(services)] == [body]
    assert services.tasks.get(message_id) is None


def test_a_cancel_that_dies_before_it_is_told_is_told_when_it_comes_again(world: World) -> None:
    dying = world.services()
    state = queued(dying, "cancel")
    body = json.dumps({"task_id": state.task_id, "action": "cancel"})
    dying.events.emit = Mock(side_effect=ConnectionError("it died"))  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        take_in(dying, body)
    told: list[str] = []
    services = world.services()
    telling(services, told)
    take_in(services, body)
    record = services.tasks.get(state.task_id)
    assert record and record["status"] == "CANCELLED"
    assert told == ["Task Cancelled"]


def telling(services: Services, told: list[str]) -> None:
    """Note the events that go out, and let them go out."""
    emit = services.events.emit

    def note(kind: str, record: dict[str, Any], **detail: Any) -> None:
        told.append(kind)
        emit(kind, record, **detail)

    services.events.emit = note  # type: ignore[method-assign]
