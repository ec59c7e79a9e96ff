"""Wiring, once: what a function needs, made from its settings when first asked for.

`e2b` and `anthropic` are imported only where they are used: they are most of a cold start.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError
from pydantic import BaseModel

from autocoder.errors import ConfigurationError, TaskCancelled, TransientError
from autocoder.ledger import Ledger
from autocoder.ports.events import Events
from autocoder.ports.objects import Objects
from autocoder.ports.signer import Signer
from autocoder.ports.tasks import Entries, Tasks, now
from autocoder.settings import Settings
from autocoder.task import State

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_stepfunctions import SFNClient

    from autocoder.ports.planner import Planner
    from autocoder.sandbox.client import Sandboxes, SandboxHandle

logger = Logger(service="autocoder")

SECRET_MAX_AGE_S = 300  # a rotated key is seen after this time


class Services:
    """The collaborators of every step."""

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
        return Events(
            boto3.client("events"),
            feed,
            stack=self.settings.stack_name,
            retention_days=self.settings.retention_days,
        )

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
    def signer(self) -> Signer:
        """KMS, with the stack's key."""
        return Signer(boto3.client("kms"), self.settings.evidence_key)

    @property
    def sandboxes(self) -> "Sandboxes":
        """E2B; its key comes from Secrets Manager and is asked for again now and then."""
        from autocoder.sandbox.client import Sandboxes

        return Sandboxes(
            api_key=secret(self.settings.e2b_secret_name, "sandbox_refused"),
            template=self.settings.e2b_template,
            owner=self.settings.sandbox_owner,
            egress=self.settings.egress,
            model_key=lambda: secret(self.settings.anthropic_secret_name, "model_not_configured"),
        )

    @property
    def planner(self) -> "Planner":
        """The model that plans; its key comes from Secrets Manager, as E2B's does."""
        from autocoder.ports.planner import Planner

        key = secret(self.settings.anthropic_secret_name, "planner_key_refused")
        return Planner(api_key=key)


def secret(name: str, code: str) -> str:
    """Read a secret; one that is missing or empty is the operator's to mend."""
    from aws_lambda_powertools.utilities.parameters import get_secret
    from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

    try:
        value = str(get_secret(name, max_age=SECRET_MAX_AGE_S)).strip()
    except GetParameterError as error:
        if "ResourceNotFound" not in str(error):
            message = f"Secrets Manager did not give {name}: {error}"
            raise TransientError("internal_error", message) from error
        value = ""
    if not value:
        raise ConfigurationError(code, f"The secret {name} is missing or empty.")
    return value


@cache
def connected() -> Services:
    """The process's own services, kept between invocations."""
    return Services(Settings.from_environment())


Handler = Callable[[dict[str, Any], LambdaContext], dict[str, Any]]
TimeIsUp = Callable[[], bool]

HANDOVER_MS = 30_000  # how long before Lambda would end it a step that follows a job hands over


def step(run: Callable[[State, Services], BaseModel]) -> Handler:
    """Make a workflow step's handler: state in, its small typed result out."""
    return following_step(lambda state, services, time_is_up: run(state, services))


def following_step(run: Callable[[State, Services, TimeIsUp], BaseModel]) -> Handler:
    """Make the handler of a step that follows a job and is told when it must hand over."""

    @logger.inject_lambda_context(clear_state=True)
    def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        state = State.model_validate(event)
        logger.append_keys(task_id=state.task_id, attempt=state.attempt, iteration=state.iteration)
        logger.info("step begins")

        def time_is_up() -> bool:
            return context.get_remaining_time_in_millis() < HANDOVER_MS

        try:
            result = run(state, connected(), time_is_up)
        except ClientError as error:
            raise_if_transient(error)
            raise
        except (ConnectionError, HTTPClientError) as error:
            raise TransientError("internal_error", f"AWS did not answer: {error}") from error
        return result.model_dump(mode="json", exclude_none=True)

    return handler


PASSING = ("Throttl", "TransactionConflict", "TransactionInProgress", "SlowDown", "RequestTimeout")


def raise_if_transient(error: ClientError) -> None:
    """Have the workflow try again what AWS will do in a moment: two writers met, or it was busy."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or code.startswith(PASSING) or "Throughput" in code:
        raise TransientError("internal_error", f"AWS was busy: {error}") from error


def begin(state: State, services: Services, stage: str) -> dict[str, Any]:
    """Begin a step that follows no job: write its stage, and see whether the task may go on."""
    record = services.tasks.running(state.task_id, state.attempt, stage=stage)
    if record.get("cancel_requested"):
        raise TaskCancelled.before(stage)
    return record


def heartbeat(
    state: State, services: Services, progress: dict[str, Any], entries: Entries | None = None
) -> bool:
    """Write the progress, and into the ledger; say whether the task was cancelled."""
    record = services.tasks.progress(state.task_id, state.attempt, progress, entries)
    return bool(record.get("cancel_requested"))


def make_sandbox(state: State, services: Services, which: int | str) -> "SandboxHandle":
    """Make a sandbox of the attempt's, and note in the ledger since when it costs money."""
    box = services.sandboxes.create(state.name, which)
    size = {
        "cpus": services.settings.sandbox_cpus,
        "memory_mb": services.settings.sandbox_memory_mb,
    }
    made = {"attempt": state.attempt, **size, "started": now()}
    entries: Entries = {("sandboxes", box.sandbox_id): made}
    services.tasks.running(state.task_id, state.attempt, entries)
    return box


def note_lost(state: State, services: Services) -> None:
    """Note that the attempt's only sandbox has vanished: it is not paid for any more."""
    record = services.tasks.running(state.task_id, state.attempt)
    for sandbox_id in Ledger.of(record).open_in(state.attempt):
        services.tasks.release(state.task_id, sandbox_id)


def release_sandbox(state: State, services: Services, sandbox_id: str) -> None:
    """End a sandbox, if it is still there, and note since when it costs no more."""
    services.sandboxes.kill(sandbox_id)
    services.tasks.release(state.task_id, sandbox_id)
