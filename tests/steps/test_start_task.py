"""Taking messages in: nothing is lost, nothing is taken twice, no task is touched by another."""

import json
import uuid
from typing import Any

import pytest

from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from tests.steps.builders import new_id, queued, take_in
from tests.world import World


def dead_letters(world: World) -> list[dict[str, Any]]:
    """Take what is in the dead-letter queue."""
    answer = world.client("sqs").receive_message(
        QueueUrl=world.names["TaskDeadLetters"],
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
    )
    return list(answer.get("Messages", []))


def test_a_message_becomes_a_queued_task(services: Services) -> None:
    task_id = new_id("new")
    body = {"specification": "a cli", "task_id": task_id, "metadata": {"team": "a"}}
    take_in(services, body)
    task = services.tasks.get(task_id)
    assert task is not None
    assert (task["status"], task["attempt"], task["metadata"]) == ("QUEUED", 1, {"team": "a"})
    assert services.objects.read_json(TaskFolder(task_id).message) == body


def test_without_an_id_the_task_has_that_of_the_message(services: Services) -> None:
    message_id = str(uuid.uuid4())
    take_in(services, {"specification": "x"}, message_id)
    assert services.tasks.get(message_id)


def test_the_same_message_again_is_the_same_task(services: Services) -> None:
    state = queued(services, "twice", priority="high")
    before = services.tasks.get(state.task_id)
    reordered = {"priority": "high", "task_id": state.task_id, "specification": "x"}
    take_in(services, reordered)
    assert services.tasks.get(state.task_id) == before


def test_the_same_id_with_other_content_is_rejected_and_the_task_untouched(
    services: Services,
) -> None:
    state = queued(services, "conflict")
    before = services.tasks.get(state.task_id)
    message_id = str(uuid.uuid4())
    other = {"specification": "other", "task_id": state.task_id}
    take_in(services, other, message_id)
    assert services.tasks.get(state.task_id) == before
    rejected = services.tasks.get(message_id)
    assert rejected and rejected["status"] == "REJECTED"
    assert rejected["failure"]["code"] == "task_id_taken"
    assert services.objects.read_json(TaskFolder(state.task_id).message)["specification"] == "x"


@pytest.mark.parametrize("body", ["not json", "[]", '{"specification": ""}', "\x00\ufffd", ""])
def test_a_bad_message_is_kept_with_its_reason(services: Services, world: World, body: str) -> None:
    dead_letters(world)
    message_id = str(uuid.uuid4())
    take_in(services, body, message_id)
    task = services.tasks.get(message_id)
    assert task and task["status"] == "REJECTED"
    assert task["failure"]["message"] and task["failure"]["hint"]


def test_a_bad_message_goes_to_the_dead_letters_at_once(services: Services, world: World) -> None:
    dead_letters(world)
    body = json.dumps({"specification": "x", "colour": "blue"})
    take_in(services, body)
    (letter,) = dead_letters(world)
    assert letter["Body"] == body
    assert "colour: is not a known field" in letter["MessageAttributes"]["reason"]["StringValue"]


def test_a_bad_message_with_a_valid_free_id_is_rejected_under_it(services: Services) -> None:
    task_id = new_id("own")
    take_in(services, {"task_id": task_id})
    task = services.tasks.get(task_id)
    assert task and task["status"] == "REJECTED"


def test_a_corrected_message_may_use_its_id_again(services: Services) -> None:
    task_id = new_id("corrected")
    take_in(services, {"task_id": task_id})
    take_in(services, {"task_id": task_id, "specification": "x"})
    task = services.tasks.get(task_id)
    assert task and task["status"] == "QUEUED"
    assert "failure" not in task


def test_another_bad_message_of_the_same_id_is_kept_beside_the_first(services: Services) -> None:
    task_id, message_id = new_id("two-bad"), str(uuid.uuid4())
    take_in(services, {"task_id": task_id, "a": 1})
    take_in(services, {"task_id": task_id, "b": 2}, message_id)
    first, second = services.tasks.get(task_id), services.tasks.get(message_id)
    assert first and "a: is not a known field" in first["failure"]["message"]
    assert second and "b: is not a known field" in second["failure"]["message"]
    kept = services.objects.read_json(TaskFolder(message_id).rejected(message_id))
    assert kept == {"task_id": task_id, "b": 2}


def test_a_bad_message_again_changes_nothing(services: Services) -> None:
    task_id, message_id = new_id("again"), str(uuid.uuid4())
    for _ in range(2):
        take_in(services, {"task_id": task_id}, message_id)
    task = services.tasks.get(task_id)
    assert task and task["status"] == "REJECTED"
    assert services.tasks.get(message_id) is None


def test_a_waiting_task_that_is_cancelled_ends_at_once(services: Services) -> None:
    state = queued(services, "early")
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "taken"  # a dispatch died
    take_in(services, {"task_id": state.task_id, "action": "cancel"})
    task = services.tasks.get(state.task_id)
    assert task and (task["status"], task["failure"]["code"]) == ("CANCELLED", "cancelled")
    assert state.name not in services.tasks.holders()
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "not_queued"


def test_a_running_task_that_is_cancelled_sees_the_flag(services: Services) -> None:
    state = queued(services, "cancel")
    services.tasks.running(state.task_id, 1, stage="coding")
    take_in(services, {"task_id": state.task_id, "action": "cancel"})
    assert services.tasks.progress(state.task_id, 1, {"turn": 1})["cancel_requested"] is True


def test_a_cancel_of_no_task_is_rejected_and_makes_no_task_of_that_name(
    services: Services,
) -> None:
    message_id, nobody = str(uuid.uuid4()), new_id("nobody")
    take_in(services, {"task_id": nobody, "action": "cancel"}, message_id)
    rejected = services.tasks.get(message_id)
    assert rejected and rejected["failure"]["code"] == "task_unknown"
    assert services.tasks.get(nobody) is None


def test_a_cancel_of_a_finished_task_leaves_it_as_it_is(services: Services) -> None:
    state = queued(services, "over")
    services.tasks.finish(state.task_id, 1, "SUCCEEDED")
    before = services.tasks.get(state.task_id)
    take_in(services, {"task_id": state.task_id, "action": "cancel"})
    assert services.tasks.get(state.task_id) == before


def test_an_id_whose_message_the_bucket_has_forgotten_is_still_taken(services: Services) -> None:
    state = queued(services, "forgotten")
    services.objects.delete(TaskFolder(state.task_id).message)
    message_id = str(uuid.uuid4())
    take_in(services, {"task_id": state.task_id, "specification": "another"}, message_id)
    rejected = services.tasks.get(message_id)
    assert rejected and rejected["failure"]["code"] == "task_id_taken"
    kept = services.tasks.get(state.task_id)
    assert kept and kept["status"] == "QUEUED"


def test_the_largest_metadata_fits_an_event(services: Services) -> None:
    metadata = {f"{number:02}" + "\U0001f600" * 98: "\U0001f600" * 1000 for number in range(50)}
    sent: list[bytes] = []
    services.events.bus.meta.events.register(
        "before-call.eventbridge.PutEvents", lambda params, **_: sent.append(params["body"])
    )
    queued(services, "large", metadata=metadata)
    (entry,) = json.loads(sent[0])["Entries"]
    assert len(entry["Detail"].encode()) < 250_000  # of the 256 KB that AWS allows an entry
