"""What the tests stand on: an embedded AWS with the stack's own tables, and real sandboxes.

`World` has the storage of the synthesized template but none of its functions, so a test may call a
step by hand and nothing else moves. Whole tasks run on a LocalCloud (tests/workflow).
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key

from autocoder.local.assembly import synthesize
from autocoder.local.cloud import REGION, child, ready
from autocoder.local.scenario import Scenario, dump
from autocoder.ports.events import Events
from autocoder.ports.objects import Objects
from autocoder.ports.tasks import Tasks
from autocoder.sandbox.client import Sandboxes
from autocoder.services import Services
from autocoder.settings import Settings

STORAGE = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue")


class World:
    """Services as the functions have them, against local servers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Start the servers and create the template's tables, queues and bucket."""
        self.folder = folder
        folder.chmod(0o711)
        (folder / "scenarios").mkdir()
        aws = stack.enter_context(child("autocoder.local.aws", folder))
        sandboxes = stack.enter_context(child("autocoder.local.sandboxes", folder))
        self.endpoint = ready(aws, "embedded AWS", folder)["endpoint"]
        self.sandbox_urls = ready(sandboxes, "sandbox server", folder)
        self.session: Any = boto3.session.Session("local", "local", region_name=REGION)
        self.names = self._create_storage()

    def client(self, service: str) -> Any:
        """A boto3 client."""
        return self.session.client(service, endpoint_url=self.endpoint)

    def services(self, **changes: Any) -> Services:
        """The collaborators of a step; `changes` are settings."""
        tasks, events = self.names["Tasks"], self.names["TaskEvents"]
        settings = Settings(
            stack_name="Test",
            bucket_name=self.names["Bucket"],
            tasks_table=tasks,
            events_table=events,
            retention_days=1,
            dead_letters_url=self.names["TaskDeadLetters"],
            e2b_template="autocoder",
            model="claude-sonnet-5-5",
        ).model_copy(update=changes)
        dynamodb = self.session.resource("dynamodb", endpoint_url=self.endpoint)
        made = Services(settings)
        made.__dict__.update(
            tasks=Tasks(dynamodb.Table(tasks), 1),
            events=Events(self.client("events"), dynamodb.Table(events), 1),
            objects=Objects(self.client("s3"), settings.bucket_name),
            sqs=self.client("sqs"),
            workflow=self.client("stepfunctions"),
            sandboxes=Sandboxes(api_key="e2b_0", template="autocoder", stack="test", lease_s=60),
        )
        return made

    def feed(self, task_id: str) -> list[dict[str, Any]]:
        """The task's live feed."""
        table = self.session.resource("dynamodb", endpoint_url=self.endpoint).Table(
            self.names["TaskEvents"]
        )
        condition = Key("task_id").eq(task_id)
        return list(table.query(KeyConditionExpression=condition)["Items"])

    def add_scenario(self, task_id: str, runs: list[list[dict[str, Any]]]) -> None:
        """Let the gateway answer for a task."""
        scenario = Scenario.model_validate({"name": task_id, "message": {}, "runs": runs})
        (self.folder / "scenarios" / f"{task_id}.json").write_text(dump(scenario))

    def model_requests(self, task_id: str) -> list[dict[str, Any]]:
        """What Claude Code asked the gateway for."""
        log = self.folder / "gateway.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [entry for entry in map(json.loads, lines) if entry.get("task") == task_id]

    def _create_storage(self) -> dict[str, str]:
        """Create what stores something, from the very template; give its physical names."""
        (file,) = synthesize(lambda line: None).glob("*.template.json")
        resources = {
            name: resource
            for name, resource in json.loads(file.read_text())["Resources"].items()
            if resource["Type"] in STORAGE
        }
        formation = self.client("cloudformation")
        formation.create_stack(
            StackName="Storage", TemplateBody=json.dumps({"Resources": resources})
        )
        made = formation.describe_stack_resources(StackName="Storage")["StackResources"]
        wanted = ("TaskEvents", "Tasks", "Bucket", "TaskDeadLetters", "TaskQueue")
        return {
            next(key for key in wanted if key in row["LogicalResourceId"]): row[
                "PhysicalResourceId"
            ]
            for row in made
        }


def never() -> bool:
    """A deadline that does not come."""
    return False


def at_once() -> bool:
    """A deadline that is there already."""
    return True
