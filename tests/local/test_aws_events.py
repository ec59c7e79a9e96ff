"""EventBridge: rules reach their targets, schedules fire, executions report themselves."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from autocoder.local.aws.events import fill, target_input
from tests.local.aws_lab import Lab, Template, eventually

FORWARD = """
    import boto3, json, os
    def handler(event, context):
        sqs = boto3.client("sqs")
        sqs.send_message(QueueUrl=os.environ["QUEUE"], MessageBody=json.dumps(event))
"""
QUICK = {"StartAt": "End", "States": {"End": {"Type": "Pass", "End": True}}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("events"), env={"AUTOCODER_SCHEDULE_SPEEDUP": "120"})
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, str]:
    template = Template()
    for queue in ("ByLambda", "Direct", "Ticks", "Finished"):
        template.add(queue, "AWS::SQS::Queue")
    template.function("Forward", FORWARD, Environment={"Variables": {"QUEUE": {"Ref": "ByLambda"}}})
    template.function("Tick", FORWARD, Environment={"Variables": {"QUEUE": {"Ref": "Ticks"}}})
    template.machine("Machine", QUICK)
    pattern = {"source": ["autocoder"], "detail-type": [{"prefix": "Task "}]}
    transformer = {
        "InputPathsMap": {"id": "$.detail.task_id", "kind": "$.detail-type"},
        "InputTemplate": '{"task": <id>, "text": "<kind> for <id>"}',
    }
    template.add(
        "Tasks",
        "AWS::Events::Rule",
        EventPattern=pattern,
        Targets=[
            _target("Forward"),
            _target("Direct") | {"InputTransformer": transformer},
        ],
    )
    template.add(
        "Off",
        "AWS::Events::Rule",
        EventPattern=pattern,
        State="DISABLED",
        Targets=[_target("Ticks")],
    )
    template.add(
        "Status",
        "AWS::Events::Rule",
        EventPattern={"source": ["aws.states"], "detail": {"status": ["SUCCEEDED", "FAILED"]}},
        Targets=[_target("Finished")],
    )
    template.add(
        "Minutely",
        "AWS::Events::Rule",
        ScheduleExpression="rate(1 minute)",
        Targets=[_target("Tick")],
    )
    template.add("Nightly", "AWS::Events::Rule", ScheduleExpression="cron(0 3 * * ? *)", Targets=[])
    return lab.deploy(template)


def _target(name: str) -> dict[str, Any]:
    return {"Id": name, "Arn": {"Fn::GetAtt": [name, "Arn"]}}


def receive(lab: Lab, queue: str) -> Any:
    sqs = lab.client("sqs")
    message = eventually(
        lambda: sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20).get("Messages")
    )[0]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return json.loads(message["Body"])


def test_an_event_reaches_functions_and_queues(lab: Lab, names: dict[str, str]) -> None:
    entry = {"Source": "autocoder", "DetailType": "Task Started", "Detail": '{"task_id": "t-1"}'}
    other = {"Source": "autocoder", "DetailType": "Iteration Completed", "Detail": "{}"}
    answer = lab.client("events").put_events(Entries=[other, entry])

    assert answer["FailedEntryCount"] == 0
    event = receive(lab, names["ByLambda"])
    assert event["detail"] == {"task_id": "t-1"}
    assert event["id"] == answer["Entries"][1]["EventId"]
    assert (event["account"], event["region"]) == ("123456789012", "us-east-1")
    assert event["time"].endswith("Z")
    assert receive(lab, names["Direct"]) == {"task": "t-1", "text": "Task Started for t-1"}


def test_a_finished_execution_is_an_event(lab: Lab, names: dict[str, str]) -> None:
    arn = lab.client("stepfunctions").start_execution(
        stateMachineArn=names["Machine"], name="t-1-1", input='{"a": 1}'
    )["executionArn"]

    event = receive(lab, names["Finished"])

    assert event["detail-type"] == "Step Functions Execution Status Change"
    assert event["resources"] == [arn]
    detail = event["detail"]
    assert (detail["executionArn"], detail["name"]) == (arn, "t-1-1")
    assert detail["stateMachineArn"] == names["Machine"]
    assert (detail["status"], detail["input"]) == ("SUCCEEDED", '{"a": 1}')
    assert json.loads(detail["output"]) == {"a": 1}
    assert detail["stopDate"] >= detail["startDate"] > 1_600_000_000_000


def test_a_schedule_fires_again_and_again_and_a_cron_is_only_mentioned(
    lab: Lab, names: dict[str, str]
) -> None:
    ticks = [receive(lab, names["Ticks"]) for _ in range(2)]

    assert {tick["detail-type"] for tick in ticks} == {"Scheduled Event"}
    assert ticks[0]["id"] != ticks[1]["id"]
    assert "cron(0 3 * * ? *) is not fired" in lab.log("aws")


def test_a_delivery_that_fails_is_logged_with_its_reason(lab: Lab, names: dict[str, str]) -> None:
    events = lab.client("events")
    events.put_rule(Name="Lost", EventPattern=json.dumps({"source": ["lost"]}))
    missing = "arn:aws:sqs:us-east-1:123456789012:nowhere"
    events.put_targets(Rule="Lost", Targets=[{"Id": "1", "Arn": missing}])
    events.put_events(Entries=[{"Source": "lost", "DetailType": "x", "Detail": "{}"}])

    eventually(lambda: f"gave up the delivery to {missing}: QueueDoesNotExist" in lab.log("aws"))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('{"a": <x>}', '{"a": {"k": [1]}}'),
        ('"text <s> and <x>"', '"text say \\"hi\\" and {\\"k\\": [1]}"'),
        ("<missing>", "null"),
    ],
)
def test_an_input_template_is_filled(template: str, expected: str) -> None:
    assert fill(template, {"x": {"k": [1]}, "s": 'say "hi"'}) == expected


def test_a_constant_input_and_a_path() -> None:
    event = {"detail": {"a-b": 1}}
    assert target_input({"Input": '{"fixed": 1}'}, event) == '{"fixed": 1}'
    assert target_input({"InputPath": "$.detail.a-b"}, event) == "1"
    assert json.loads(target_input({}, event)) == event
