"""SQS event sources: batches, partial failures, redrive, concurrency."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.local.aws_lab import Lab, Template, eventually

RECORDER = """
    import boto3, json, os
    s3 = boto3.client("s3")
    def handler(event, context):
        key = f"{os.environ['PREFIX']}/{context.aws_request_id}"
        s3.put_object(Bucket=os.environ["BUCKET"], Key=key, Body=json.dumps(event))
        %s
"""
REPORT = """return {"batchItemFailures": [{"itemIdentifier": r["messageId"]}
            for r in event["Records"] if r["body"] == "bad"]}"""
RAISE = "raise RuntimeError('no')"
SLOW = "import time; time.sleep(0.3)"


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, str]:
    template = Template()
    template.add("Bucket", "AWS::S3::Bucket")
    template.add("DeadLetters", "AWS::SQS::Queue")
    redrive = {
        "deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetters", "Arn"]},
        "maxReceiveCount": 2,
    }
    report = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
    window = {"MaximumBatchingWindowInSeconds": 1, "BatchSize": 5}
    for name, ending, visibility, settings in (
        ("Partial", REPORT, 5, {**report, **window}),
        ("Raising", RAISE, 5, {}),
        ("Narrow", SLOW, 60, {"BatchSize": 1, "ScalingConfig": {"MaximumConcurrency": 2}}),
    ):
        code = RECORDER % ending
        variables = {"BUCKET": {"Ref": "Bucket"}, "PREFIX": name}
        template.function(name, code, Environment={"Variables": variables})
        template.add(
            f"{name}Queue", "AWS::SQS::Queue", VisibilityTimeout=visibility, RedrivePolicy=redrive
        )
        template.add(
            f"{name}Source",
            "AWS::Lambda::EventSourceMapping",
            EventSourceArn={"Fn::GetAtt": [f"{name}Queue", "Arn"]},
            FunctionName={"Ref": name},
            **settings,
        )
    return lab.deploy(template)


def recorded(lab: Lab, names: dict[str, str], prefix: str) -> list[list[dict[str, Any]]]:
    """The records of each invocation so far, in order."""
    s3, bucket = lab.client("s3"), names["Bucket"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", [])
    keys = [item["Key"] for item in sorted(listed, key=lambda item: item["LastModified"])]
    bodies = [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]
    return [json.loads(body)["Records"] for body in bodies]


def test_only_the_message_that_failed_comes_back_and_then_goes_to_the_dead_letters(
    lab: Lab, names: dict[str, str]
) -> None:
    sqs = lab.client("sqs")
    kind = {"kind": {"DataType": "String", "StringValue": "task"}}
    sqs.send_message_batch(
        QueueUrl=names["PartialQueue"],
        Entries=[
            {"Id": str(n), "MessageBody": body, "MessageAttributes": kind}
            for n, body in enumerate(["good", "bad", "good"])
        ],
    )

    dead = eventually(
        lambda: sqs.receive_message(
            QueueUrl=names["DeadLetters"], MessageAttributeNames=["All"], WaitTimeSeconds=5
        ).get("Messages")
    )

    assert [message["Body"] for message in dead] == ["bad"]
    assert dead[0]["MessageAttributes"] == kind
    sqs.delete_message(QueueUrl=names["DeadLetters"], ReceiptHandle=dead[0]["ReceiptHandle"])
    batches = recorded(lab, names, "Partial")
    assert [[record["body"] for record in batch] for batch in batches] == [
        ["good", "bad", "good"],
        ["bad"],
    ]
    record = batches[1][0]
    assert record["attributes"]["ApproximateReceiveCount"] == "2"
    assert record["messageAttributes"]["kind"]["stringValue"] == "task"
    assert record["messageAttributes"]["kind"]["dataType"] == "String"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"].endswith(names["PartialQueue"].rsplit("/", 1)[1])
    assert record["awsRegion"] == "us-east-1"
    assert {"messageId", "receiptHandle", "md5OfBody"} < set(record)


def test_a_batch_that_raises_is_redelivered_and_redriven(lab: Lab, names: dict[str, str]) -> None:
    sqs = lab.client("sqs")
    sqs.send_message(QueueUrl=names["RaisingQueue"], MessageBody="poison")

    dead = eventually(
        lambda: sqs.receive_message(QueueUrl=names["DeadLetters"], WaitTimeSeconds=5).get(
            "Messages"
        )
    )

    assert [message["Body"] for message in dead] == ["poison"]
    assert len(recorded(lab, names, "Raising")) == 2


def test_every_message_is_delivered_once_within_the_maximum_concurrency(
    lab: Lab, names: dict[str, str]
) -> None:
    sqs = lab.client("sqs")
    bodies = {str(n) for n in range(12)}
    with ThreadPoolExecutor(6) as threads:
        list(
            threads.map(
                lambda body: sqs.send_message(QueueUrl=names["NarrowQueue"], MessageBody=body),
                bodies,
            )
        )

    def all_done() -> bool:
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = sqs.get_queue_attributes(QueueUrl=names["NarrowQueue"], AttributeNames=wanted)
        return all(count == "0" for count in left["Attributes"].values())

    eventually(all_done)
    received = [batch[0]["body"] for batch in recorded(lab, names, "Narrow")]
    assert sorted(received) == sorted(bodies)
