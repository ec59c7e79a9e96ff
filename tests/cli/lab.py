"""A place of its own in the shared local cloud: queues, a table and sandboxes that no task uses."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autocoder.cli.service import LocalService
from autocoder.local.cloud import LocalCloud, local_egress
from autocoder.local.running import Running, owner
from autocoder.ports.tasks import to_item
from autocoder.sandbox.client import Sandboxes
from tests.cli.conftest import Caller

RECEIVES = 3


class Lab:
    """The cloud as a service of its own; `outputs` are what its stack would say."""

    def __init__(self, cloud: LocalCloud, folder: Path) -> None:
        """Make queues and a table under names that nobody else has."""
        self.cloud, self.folder, name = cloud, folder, f"lab-{uuid.uuid4().hex[:8]}"
        self.sqs = cloud.client("sqs")
        dead = self.sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
        policy = {
            "deadLetterTargetArn": arn["Attributes"]["QueueArn"],
            "maxReceiveCount": RECEIVES,
        }
        attributes = {"RedrivePolicy": json.dumps(policy)}
        queue = self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        cloud.client("dynamodb").create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "task_id", "KeyType": "HASH"}],
            AttributeDefinitions=[
                {"AttributeName": field, "AttributeType": "S"}
                for field in ("task_id", "status", "created_at")
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_status",
                    "KeySchema": [
                        {"AttributeName": "status", "KeyType": "HASH"},
                        {"AttributeName": "created_at", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        )
        mine = {"TaskQueueUrl": queue, "DeadLettersUrl": dead, "TasksTable": name}
        self.outputs = {**cloud.outputs, **mine, "SandboxOwner": name}
        self.table = cloud.session.resource("dynamodb", endpoint_url=cloud.endpoint).Table(name)
        self.service = LocalService(cloud.endpoint, self.outputs, cloud.sandboxes)

    def sandboxes(self, owner: str | None = None) -> Sandboxes:
        """E2B, as the functions of this stack have it; or of another."""
        return Sandboxes(
            api_key="any",
            template="autocoder",
            owner=owner or self.outputs["SandboxOwner"],
            egress=local_egress(self.cloud.sandboxes),
            model_key=str,
        )

    def put(self, task_id: str, status: str, created_at: str, **fields: Any) -> None:
        """Write a record."""
        item = {"task_id": task_id, "status": status, "created_at": created_at, "attempt": 1}
        self.table.put_item(Item=to_item({**item, **fields}))

    def dead(self, body: str, **attributes: str) -> str:
        """Put a dead letter there; give its id."""
        notes = {n: {"DataType": "String", "StringValue": t} for n, t in attributes.items()}
        queue = self.outputs["DeadLettersUrl"]
        sent = self.sqs.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=notes)
        return str(sent["MessageId"])

    def counted(self) -> int:
        """How many dead letters there are, hidden or not."""
        kinds = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        queue = self.outputs["DeadLettersUrl"]
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=kinds)
        return sum(int(found["Attributes"][kind]) for kind in kinds)

    def bodies(self, output: str) -> list[str]:
        """Take everything from a queue that can be received at this moment."""
        found = []
        while batch := self.sqs.receive_message(
            QueueUrl=self.outputs[output], MaxNumberOfMessages=10
        ).get("Messages"):
            found += [message["Body"] for message in batch]
        return found

    @contextmanager
    def caller(
        self,
        outputs: dict[str, str] | None = None,
        sandboxes: dict[str, str] | None = None,
        *,
        only_scenarios: bool = False,
    ) -> Iterator[Caller]:
        """Somebody for whom this is the local cloud; with some of it broken, if need be."""
        state = self.folder / uuid.uuid4().hex
        running = Running.of(self.cloud, "", only_scenarios=only_scenarios)
        running = replace(
            running,
            outputs={**self.outputs, **(outputs or {})},
            sandboxes={**self.cloud.sandboxes, **(sandboxes or {})},
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(state))
            held = owner()
            write = held.__enter__()
            write(running)
        try:
            yield Caller(state)
        finally:
            held.__exit__(None, None, None)
