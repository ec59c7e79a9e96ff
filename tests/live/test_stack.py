"""A deployed stack: one whole task, from the queue to the files in S3."""

import json
import time
import uuid
from typing import Any

import boto3
import pytest

from autocoder.task import TERMINAL
from tests.live.conftest import needed

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

SPECIFICATION = "A Python module calc.py with add(a, b), and a pytest test for it. Nothing else."


@pytest.fixture(scope="module")
def aws() -> boto3.session.Session:
    return boto3.session.Session(region_name=needed("AWS_REGION"))


@pytest.fixture(scope="module")
def outputs(aws: boto3.session.Session) -> dict[str, str]:
    name = needed("AUTOCODER_STACK")
    stack = aws.client("cloudformation").describe_stacks(StackName=name)
    return {o["OutputKey"]: o["OutputValue"] for o in stack["Stacks"][0].get("Outputs", [])}


def test_a_message_becomes_a_tested_project(
    aws: boto3.session.Session, outputs: dict[str, str]
) -> None:
    task_id = f"live-{uuid.uuid4().hex[:8]}"
    message = {"task_id": task_id, "specification": SPECIFICATION, "limits": {"budget_usd": 1}}
    aws.client("sqs").send_message(
        QueueUrl=outputs["TaskQueueUrl"], MessageBody=json.dumps(message)
    )
    record = ended(aws, outputs["TasksTable"], task_id)
    assert record["status"] == "SUCCEEDED", record
    key = f"tasks/{task_id}/files/calc.py"
    body = aws.client("s3").get_object(Bucket=outputs["BucketName"], Key=key)["Body"].read()
    assert b"def add" in body


def ended(aws: boto3.session.Session, table: str, task_id: str) -> dict[str, Any]:
    """Wait for the task's end; the test's own time-out bounds it."""
    tasks = aws.resource("dynamodb").Table(table)
    while True:
        record = tasks.get_item(Key={"task_id": task_id}, ConsistentRead=True).get("Item")
        if record and record["status"] in TERMINAL:
            return dict(record)
        time.sleep(5)
