"""What each function calls of AWS in a task's life is what it may, and it needs all of that."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aws_lambda_powertools.utilities import parameters
from botocore.client import BaseClient

from autocoder.archive import pack
from autocoder.services import Services
from functions import (
    create_sandbox,
    decide_next,
    dispatch_tasks,
    end_stranded_task,
    extract_artifacts,
    finish_task,
    plan_task,
    reap_sandboxes,
    run_claude_code,
    test_and_build,
    verify_clean,
)
from tests.infra.test_permissions import ANTHROPIC, BUCKET, BUS, E2B, FEED, MAY, TASKS
from tests.steps.builders import new_id, queued, take_in
from tests.world import ANTHROPIC_SECRET, E2B_SECRET, World, never

# What AWS asks for where it is not called as the operation is.
ASKED_FOR = {
    "HeadObject": "GetObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "TransactWriteItems": "UpdateItem",  # nothing else is in ours
}
# What no good task needs: Lambda's own part with the queue, a 404 in place of a 403, an upload of
# many parts that fails, and what comes with CDK's grants.
NEVER_CALLED = {
    "s3:AbortMultipartUpload",
    "s3:ListBucket",
    "secretsmanager:DescribeSecret",
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
}
WRITE_GREEN = [
    {"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): pass\n"}}
]
WAITS = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 600, "End": True}}}


class Calls:
    """What was called of AWS, function by function."""

    def __init__(self, world: World, machine: str) -> None:
        self.function: str | None = None
        self.made: dict[str, set[str]] = {}
        self.names = {
            world.names["Tasks"]: TASKS,
            world.names["TaskEvents"]: FEED,
            world.names["Bucket"]: BUCKET,
            world.names["TaskDeadLetters"]: "IntakeTaskDeadLetters",
            machine: "WorkflowMachine",
            E2B_SECRET: E2B,
            ANTHROPIC_SECRET: ANTHROPIC,
        }

    def by(self, function: str | None) -> None:
        """What comes now is called by this function; None: by somebody else."""
        forget_secrets()  # or it would not ask for them
        self.function = function

    def note(self, service: str, operation: str, given: dict[str, Any]) -> None:
        if self.function:
            action = ASKED_FOR.get(operation, operation)
            prefix = {"stepfunctions": "states"}.get(service, service)
            made = self.made.setdefault(self.function, set())
            made.add(f"{prefix}:{action} {self.where(operation, given)}")

    def where(self, operation: str, given: dict[str, Any]) -> str:
        """The resource, as the policies name it."""
        if operation == "PutEvents":
            return BUS
        if operation == "DescribeExecution":
            return "execution:WorkflowMachine:*"
        if operation == "TransactWriteItems":
            (table,) = {item["Update"]["TableName"] for item in given["TransactItems"]}
            return self.names[table]
        if operation in ("Sign", "GetPublicKey"):
            return "StorageEvidenceKey"
        keys = ("TableName", "Bucket", "QueueUrl", "stateMachineArn", "SecretId")
        (name,) = (self.names[given[key]] for key in keys if key in given)
        folder = f"/{given['Key'].partition('/')[0]}/*" if "Bucket" in given else ""
        index = f"/index/{given['IndexName']}" if "IndexName" in given else ""
        return f"{name}{folder}{index}"


@pytest.fixture
def machine_arn(world: World) -> str:
    made = world.client("stepfunctions").create_state_machine(
        name=new_id("permitted"),
        definition=json.dumps(WAITS),
        roleArn="arn:aws:iam::123456789012:role/r",
    )
    return str(made["stateMachineArn"])


@pytest.fixture
def calls(world: World, machine_arn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Everything that boto3 sends in this process is noted."""
    noted, send = Calls(world, machine_arn), BaseClient._make_api_call  # type: ignore[attr-defined]

    def note_and_send(client: Any, operation: str, given: dict[str, Any]) -> Any:
        noted.note(client.meta.service_model.service_name, operation, given)
        return send(client, operation, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", note_and_send)
    yield noted
    forget_secrets()


def forget_secrets() -> None:
    parameters.clear_caches()  # type: ignore[no-untyped-call]


def test_the_functions_call_what_they_may_and_need_all_that_they_may(
    world: World, machine_arn: str, calls: Calls
) -> None:
    services = world.services(
        state_machine_arn=machine_arn, max_running=10_000, sandbox_owner=new_id("permitted")
    )
    source = f"sources/{new_id('s')}.tar.gz"
    services.objects.write(source, pack({"README.md": "x"}))
    intake(services, calls, f"s3://{services.objects.bucket}/{source}")
    whole_task(world, services, calls, f"s3://{services.objects.bucket}/{source}")
    upkeep(services, calls)
    allowed = {
        name: {f"{action} {where}" for where, actions in may.items() for action in actions.split()}
        for name, may in MAY.items()
    }
    assert {name: made - allowed[name] for name, made in calls.made.items()} == {
        name: set() for name in MAY
    }
    unused = {name: allowed[name] - made for name, made in calls.made.items()}
    assert {call.split()[0] for left in unused.values() for call in left} == NEVER_CALLED, unused


def intake(services: Services, calls: Calls, source: str) -> None:
    """Messages that are taken, come twice, are bad, and cancel."""
    calls.by("start_task")
    state = queued(services, "taken", source={"s3": source})
    take_in(services, {"specification": "another", "task_id": state.task_id})
    take_in(services, {"task_id": state.task_id, "action": "cancel"})


def whole_task(world: World, services: Services, calls: Calls, source: str) -> None:
    """A task from its start to its end, and its end once more."""
    calls.by("start_task")
    state = queued(services, "permitted", source={"s3": source})
    plan = {"name": "p", "environment": "python", "files": [], "checks": []}
    plan |= {"acceptance_criteria": [], "risks": []}
    world.add_scenario(state.task_id, [WRITE_GREEN], plan)
    calls.by("dispatch_tasks")
    assert dispatch_tasks.run(services)
    steps: dict[str, tuple[str, Callable[[], Any]]] = {
        "plan_task": ("plan", lambda: plan_task.run(state, services)),
        "create_sandbox": ("sandbox", lambda: create_sandbox.run(state, services)),
        "run_claude_code": ("run", lambda: run_claude_code.run(state, services, never)),
        "test_and_build": ("checks", lambda: test_and_build.run(state, services, never)),
        "verify_clean": ("clean", lambda: verify_clean.run(state, services, never)),
        "decide_next": ("decision", lambda: decide_next.run(state, services)),
        "extract_artifacts": ("result", lambda: extract_artifacts.run(state, services)),
    }
    for name, (part, run) in steps.items():
        calls.by(name)
        state = state.model_copy(update={part: run()})
    calls.by("finish_task")
    for _ in range(2):
        assert finish_task.run(state, services).status == "SUCCEEDED"


def upkeep(services: Services, calls: Calls) -> None:
    """Executions that ended badly, one of which was noticed by the clock only."""
    calls.by("start_task")
    noticed, missed = queued(services, "noticed"), queued(services, "missed")
    calls.by("dispatch_tasks")
    dispatch_tasks.run(services)
    calls.by("end_stranded_task")
    end_stranded_task.run({"name": noticed.name, "status": "ABORTED"}, services)
    calls.by(None)
    arn = services.settings.execution_arn(missed.name)
    services.workflow.stop_execution(executionArn=arn)
    calls.by("reap_sandboxes")
    reap_sandboxes.run(services, reap_sandboxes.QUIET * 0)
    record = services.tasks.get(missed.task_id)
    assert record and record["failure"]["code"] == "workflow_ended"
