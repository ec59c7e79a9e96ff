"""Handlers as Lambda calls them: when a step hands over, what the workflow is to repeat."""

import json
import uuid
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from autocoder import services as wiring
from autocoder.errors import TransientError
from autocoder.services import HANDOVER_MS, Handler, Services, TimeIsUp, following_step
from autocoder.task import Planning, State
from functions import start_task
from tests.steps.builders import new_id
from tests.world import World

EVENT = {"task_id": "t", "attempt": 1}


def context(left_ms: int = 900_000) -> Any:
    """What Lambda tells a function of its invocation."""
    return SimpleNamespace(
        function_name="f",
        memory_limit_in_mb=512,
        invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:f",
        aws_request_id="r",
        get_remaining_time_in_millis=lambda: left_ms,
    )


@pytest.fixture
def connected(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions' own services are those of the world."""
    monkeypatch.setattr(wiring, "connected", lambda: services)


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(("left_ms", "up"), [(HANDOVER_MS, False), (HANDOVER_MS - 1, True)])
def test_a_step_hands_over_shortly_before_lambda_would_end_it(left_ms: int, up: bool) -> None:
    def run(state: State, services: Services, time_is_up: TimeIsUp) -> Planning:
        return Planning(status="skipped", reason=str(time_is_up()))

    assert following_step(run)(EVENT, context(left_ms))["reason"] == str(up)


def that_raises(error: Exception) -> Handler:
    """A step that fails."""

    def run(state: State, services: Services, time_is_up: TimeIsUp) -> Planning:
        raise error

    return following_step(run)


def refusal(code: str, status: int = 400) -> ClientError:
    """An answer of AWS's that is an error."""
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "UpdateItem")


def no_connection() -> BotoCoreError:
    """What botocore raises where nobody listens."""
    once = Config(retries={"total_max_attempts": 1})
    with pytest.raises(BotoCoreError) as failed:
        boto3.client("sqs", endpoint_url="http://127.0.0.1:9", config=once).list_queues()
    return failed.value


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(
    "error",
    [
        refusal("ThrottlingException"),
        refusal("ProvisionedThroughputExceededException"),
        refusal("TransactionConflictException"),
        refusal("TransactionInProgressException"),
        refusal("SlowDown"),
        refusal("RequestTimeout"),
        refusal("InternalError", 500),
        ReadTimeoutError(endpoint_url="x"),
        None,
    ],
    ids=lambda error: error.response["Error"]["Code"] if isinstance(error, ClientError) else None,
)
def test_what_aws_will_do_in_a_moment_is_tried_again_by_the_workflow(
    world: World, error: Exception | None
) -> None:
    with pytest.raises(TransientError):
        that_raises(error or no_connection())(EVENT, context())


@pytest.mark.usefixtures("connected")
def test_what_aws_will_never_do_is_not_tried_again() -> None:
    with pytest.raises(ClientError):
        that_raises(refusal("AccessDeniedException", 403))(EVENT, context())


def test_of_a_batch_the_message_whose_event_was_not_taken_comes_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_task, "connected", lambda: services)
    put_events = services.events.bus.put_events
    good, bad = new_id("good"), new_id("bad")

    def not_of_the_bad(Entries: list[Any]) -> Any:  # noqa: N803 - it is AWS's word
        if bad in Entries[0]["Detail"]:
            return {"FailedEntryCount": 1, "Entries": [{"ErrorMessage": "busy"}]}
        return put_events(Entries=Entries)

    monkeypatch.setattr(services.events.bus, "put_events", not_of_the_bad)
    messages = {task_id: str(uuid.uuid4()) for task_id in (good, bad)}
    records = [
        {
            "messageId": message_id,
            "body": json.dumps({"specification": "x", "task_id": task_id}),
            "eventSource": "aws:sqs",
        }
        for task_id, message_id in messages.items()
    ]
    answer = start_task.handler({"Records": records}, context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": messages[bad]}]}
    assert services.tasks.get(good)
