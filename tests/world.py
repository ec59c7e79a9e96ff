"""What the tests stand on: an embedded AWS with the stack's own tables, and real sandboxes.

`World` has the storage of the synthesized template but none of its functions, so a test may call a
step by hand and nothing else moves. Whole tasks run on a LocalCloud (tests/workflow).
"""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key

from autocoder.local.assembly import synthesize
from autocoder.local.cloud import AWS, SANDBOXES, child, local_egress, ready
from autocoder.local.gateway.asker import PLANNER_FILE
from autocoder.local.scenario import Scenario, dump
from autocoder.local.state import REGION
from autocoder.services import Services
from autocoder.settings import Settings

# Names of their own: what a process read from Secrets Manager it keeps for minutes, by the name.
E2B_SECRET, ANTHROPIC_SECRET = "world/e2b-api-key", "world/anthropic-api-key"
STORAGE = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::KMS::Key")


class World:
    """Services as the functions have them, against local servers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Start the servers and create the template's tables, queues and bucket."""
        self.folder = folder
        folder.chmod(0o711)
        (folder / "scenarios").mkdir()
        aws = stack.enter_context(child(AWS, folder))
        sandboxes = stack.enter_context(child(SANDBOXES, folder))
        self.endpoint = ready(aws, AWS, folder)["endpoint"]
        self.sandbox_urls = ready(sandboxes, SANDBOXES, folder)
        self.session: Any = boto3.session.Session("local", "local", region_name=REGION)
        self.names = self._create_storage()
        secrets = self.client("secretsmanager")
        secrets.create_secret(Name=E2B_SECRET, SecretString="e2b_0")
        token = (folder / PLANNER_FILE).read_text()
        secrets.create_secret(Name=ANTHROPIC_SECRET, SecretString=token)

    def client(self, service: str) -> Any:
        """A boto3 client."""
        return self.session.client(service, endpoint_url=self.endpoint)

    def services(self, **changes: Any) -> Services:
        """The collaborators of a step; `changes` are settings."""
        settings = Settings(
            stack_name="Test",
            bucket_name=self.names["Bucket"],
            tasks_table=self.names["Tasks"],
            events_table=self.names["TaskEvents"],
            retention_days=1,
            dead_letters_url=self.names["TaskDeadLetters"],
            sandbox_owner="Test",
            evidence_key=self.names["EvidenceKey"],
            e2b_secret_name=E2B_SECRET,
            e2b_template="autocoder",
            sandbox_cpus=2,
            sandbox_memory_mb=4096,
            anthropic_secret_name=ANTHROPIC_SECRET,
            model="claude-sonnet-5-5",
            egress=local_egress(self.sandbox_urls),
        )
        return Services(settings.model_copy(update=changes))

    def environment(self) -> dict[str, str]:
        """What makes boto3, e2b and anthropic reach these servers."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "E2B_API_URL": self.sandbox_urls["api_url"],
            "E2B_SANDBOX_URL": self.sandbox_urls["sandbox_url"],
            "ANTHROPIC_BASE_URL": self.sandbox_urls["gateway_url"],
        }

    def feed(self, task_id: str) -> list[dict[str, Any]]:
        """The task's live feed."""
        table = self.session.resource("dynamodb", endpoint_url=self.endpoint).Table(
            self.names["TaskEvents"]
        )
        condition = Key("task_id").eq(task_id)
        return list(table.query(KeyConditionExpression=condition)["Items"])

    def add_scenario(
        self,
        task_id: str,
        runs: list[list[dict[str, Any]]],
        plan: dict[str, Any] | None = None,
    ) -> None:
        """Let the gateway answer for a task."""
        scenario = Scenario.model_validate(
            {"name": task_id, "message": {}, "plan": plan, "runs": runs}
        )
        (self.folder / "scenarios" / f"{task_id}.json").write_text(dump(scenario))

    def model_requests(self, task_id: str) -> list[dict[str, Any]]:
        """What Claude Code and the planner asked the gateway for."""
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
        wanted = ("TaskEvents", "Tasks", "Bucket", "TaskDeadLetters", "TaskQueue", "EvidenceKey")
        return {
            key: row["PhysicalResourceId"]
            for row in made
            for key in wanted
            if re.fullmatch(rf"(Storage|Intake){key}[0-9A-F]{{8}}", row["LogicalResourceId"])
        }


def never() -> bool:
    """A deadline that does not come."""
    return False


def at_once() -> bool:
    """A deadline that is there already."""
    return True
