"""State machines run as on Step Functions, and their names are used once."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws_lab import Lab, Template, eventually

TERMINAL = {"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"}

FLAKY = """
    import boto3, os
    class TransientError(Exception): pass
    class SandboxLost(Exception): pass
    def handler(event, context):
        if event.get("lost"): raise SandboxLost("at once")
        if event["key"] == "explode": raise ValueError("unexpected")
        update = boto3.client("dynamodb").update_item(
            TableName=os.environ["TABLE"], Key={"id": {"S": event["key"]}},
            UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": {"N": "1"}},
            ReturnValues="UPDATED_NEW")
        attempt = int(update["Attributes"]["n"]["N"])
        if attempt < 3: raise TransientError(f"attempt {attempt}")
        return {"attempts": attempt, "name": event["name"], "state": event["state"]}
"""
CONTEXT = {
    "key.$": "$.key",
    "lost.$": "$.lost",
    "name.$": "$$.Execution.Name",
    "state.$": "$$.State.Name",
}
MACHINE: dict[str, Any] = {
    "StartAt": "Direct",
    "States": {
        "Direct": {
            "Type": "Task",
            "Resource": "${FlakyVersion}",
            "Parameters": CONTEXT,
            "ResultPath": "$.direct",
            "Retry": [
                {
                    "ErrorEquals": ["TransientError"],
                    "IntervalSeconds": 1,
                    "MaxAttempts": 3,
                    "BackoffRate": 2,
                    "MaxDelaySeconds": 1,
                    "JitterStrategy": "FULL",
                }
            ],
            "Catch": [
                {"ErrorEquals": ["SandboxLost"], "ResultPath": "$.error", "Next": "Recovered"}
            ],
            "Next": "Optimized",
        },
        "Optimized": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"FunctionName": "${FlakyVersion}", "Payload": CONTEXT},
            "ResultSelector": {"attempts.$": "$.Payload.attempts"},
            "ResultPath": "$.optimized",
            "Next": "Enough",
        },
        "Enough": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.optimized.attempts", "NumericEquals": 4, "Next": "Done"}],
            "Default": "Recovered",
        },
        "Recovered": {"Type": "Pass", "Result": "recovered", "ResultPath": "$.way", "End": True},
        "Done": {"Type": "Succeed"},
    },
}
WAITING = {
    "StartAt": "Wait",
    "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}},
}


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, str]:
    template = Template()
    template.add(
        "Table",
        "AWS::DynamoDB::Table",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    template.function("Flaky", FLAKY, Environment={"Variables": {"TABLE": {"Ref": "Table"}}})
    template.add("FlakyVersion", "AWS::Lambda::Version", FunctionName={"Ref": "Flaky"})
    template.machine("Machine", MACHINE)
    template.machine("Waiting", WAITING)
    return lab.deploy(template)


def run(lab: Lab, machine: str, **event: Any) -> dict[str, Any]:
    states = lab.client("stepfunctions")
    arn = states.start_execution(stateMachineArn=machine, input=json.dumps(event))["executionArn"]

    def finished() -> dict[str, Any] | None:
        execution: dict[str, Any] = states.describe_execution(executionArn=arn)
        return execution if execution["status"] in TERMINAL else None

    return eventually(finished)


def test_retry_context_version_arn_selector_and_choice(lab: Lab, names: dict[str, str]) -> None:
    execution = run(lab, names["Machine"], key="retry", lost=False)

    assert execution["status"] == "SUCCEEDED", execution
    output = json.loads(execution["output"])
    assert output["direct"] == {"attempts": 3, "name": execution["name"], "state": "Direct"}
    assert output["optimized"] == {"attempts": 4}
    assert "way" not in output
    assert names["FlakyVersion"].endswith(":1")


def test_an_exception_is_caught_by_its_class_name(lab: Lab, names: dict[str, str]) -> None:
    execution = run(lab, names["Machine"], key="catch", lost=True)

    output = json.loads(execution["output"])
    assert output["error"]["Error"] == "SandboxLost"
    assert json.loads(output["error"]["Cause"])["errorMessage"] == "at once"
    assert (output["key"], output["way"]) == ("catch", "recovered")


def test_a_failure_that_nobody_catches_fails_the_execution(lab: Lab, names: dict[str, str]) -> None:
    execution = run(lab, names["Machine"], key="explode", lost=False)

    assert (execution["status"], execution["error"]) == ("FAILED", "ValueError")
    assert json.loads(execution["cause"])["errorMessage"] == "unexpected"


def test_the_same_name_and_input_is_the_same_execution_while_it_runs(
    lab: Lab, names: dict[str, str]
) -> None:
    states = lab.client("stepfunctions")

    def start(text: str) -> str:
        answer = states.start_execution(
            stateMachineArn=names["Waiting"], name="task-1", input=json.dumps({"a": text})
        )
        return str(answer["executionArn"])

    with ThreadPoolExecutor(8) as threads:
        arns = set(threads.map(start, ["same"] * 8))
    assert len(arns) == 1
    assert len(states.list_executions(stateMachineArn=names["Waiting"])["executions"]) == 1

    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        start("other")

    (arn,) = arns
    states.stop_execution(executionArn=arn, error="Cancelled", cause="by hand")
    stopped = eventually(
        lambda: _with_status(states.describe_execution(executionArn=arn), "ABORTED")
    )
    assert (stopped["error"], stopped["cause"]) == ("Cancelled", "by hand")
    with pytest.raises(ClientError, match="ExecutionAlreadyExists"):
        start("same")


def test_executions_without_a_name_are_distinct(lab: Lab, names: dict[str, str]) -> None:
    states = lab.client("stepfunctions")
    arns = {
        states.start_execution(stateMachineArn=names["Waiting"])["executionArn"] for _ in range(2)
    }
    assert len(arns) == 2


def _with_status(execution: dict[str, Any], status: str) -> dict[str, Any] | None:
    return execution if execution["status"] == status else None
