"""Wiring, once: what a function needs, made from its settings when first asked for.

`e2b` and boto3 are imported only where they are used: they are most of a cold start.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger
from pydantic import BaseModel

from autocoder.ports.events import Events
from autocoder.ports.objects import Objects
from autocoder.ports.tasks import Tasks
from autocoder.settings import Settings
from autocoder.task import State

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

    from autocoder.sandbox.client import Sandboxes

logger = Logger(service="autocoder")


class Services:
    """The collaborators of every step; tests make one with other settings or replace a part."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is connected yet."""
        self.settings = settings

    @cached_property
    def tasks(self) -> Tasks:
        """The Tasks table."""
        table = boto3.resource("dynamodb").Table(self.settings.tasks_table)
        return Tasks(table, self.settings.retention_days)

    @cached_property
    def events(self) -> Events:
        """EventBridge and the TaskEvents table."""
        feed = boto3.resource("dynamodb").Table(self.settings.events_table)
        return Events(boto3.client("events"), feed, self.settings.retention_days)

    @cached_property
    def objects(self) -> Objects:
        """The bucket."""
        return Objects(boto3.client("s3"), self.settings.bucket_name)

    @cached_property
    def sqs(self) -> "SQSClient":
        """The queues."""
        return boto3.client("sqs")

    @cached_property
    def workflow(self) -> "SFNClient":
        """Step Functions."""
        return boto3.client("stepfunctions")

    @cached_property
    def sandboxes(self) -> "Sandboxes":
        """E2B; its key comes from Secrets Manager."""
        from autocoder.sandbox.client import Sandboxes

        secrets = boto3.client("secretsmanager")
        key = secrets.get_secret_value(SecretId=self.settings.e2b_secret_name)["SecretString"]
        return Sandboxes(
            api_key=key,
            template=self.settings.e2b_template,
            stack=self.settings.stack_name,
            lease_s=self.settings.sandbox_lease_s,
        )


@cache
def services() -> Services:
    """The process's own services, kept between invocations."""
    return Services(Settings.from_environment())


Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
TimeIsUp = Callable[[], bool]

HANDOVER_MS = 30_000  # how long before Lambda would end it a step that follows a job hands over


def step(run: Callable[[State, Services], BaseModel]) -> Handler:
    """Make a workflow step's handler: state in, its small typed result out."""
    return following_step(lambda state, services, time_is_up: run(state, services))


def following_step(run: Callable[[State, Services, TimeIsUp], BaseModel]) -> Handler:
    """Make the handler of a step that follows a job and is told when it must hand over."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        state = State.model_validate(event)
        logger.set_correlation_id(state.name)
        logger.info("step", extra={"iteration": state.iteration})

        def time_is_up() -> bool:
            return bool(context.get_remaining_time_in_millis() < HANDOVER_MS)

        return run(state, services(), time_is_up).model_dump(mode="json", exclude_none=True)

    return handler
