"""What each function may do, written out. What it does: test_calls.py."""

import re
from typing import Any

import pytest

from infra.steps import FUNCTIONS

TASKS, FEED, BUS = "StorageTasks", "StorageTaskEvents", "event-bus/default"
BUCKET, FOLDERS, SOURCES = "StorageBucket", "StorageBucket/tasks/*", "StorageBucket/sources/*"
E2B, ANTHROPIC = (f"secret:autocoder/{name}-api-key-??????" for name in ("e2b", "anthropic"))

KEY = "secretsmanager:DescribeSecret secretsmanager:GetSecretValue"
WRITES = "s3:AbortMultipartUpload s3:GetObject s3:PutObject"
STEP = {TASKS: "dynamodb:UpdateItem"}
TELLS = {FEED: "dynamodb:PutItem"}
EMITS = {BUS: "events:PutEvents"}
STORES = {FOLDERS: WRITES, BUCKET: "s3:ListBucket"}
IN_SANDBOX = {**STEP, **TELLS, **STORES, E2B: KEY}
ENDS = {TASKS: "dynamodb:GetItem dynamodb:UpdateItem", **TELLS, **EMITS, E2B: KEY}

MAY = {
    "start_task": {
        TASKS: "dynamodb:GetItem dynamodb:PutItem dynamodb:UpdateItem",
        **TELLS,
        **EMITS,
        **STORES,
        SOURCES: "s3:GetObject",
        "IntakeTaskQueue": "sqs:ChangeMessageVisibility sqs:DeleteMessage sqs:GetQueueAttributes"
        " sqs:GetQueueUrl sqs:ReceiveMessage",
        "IntakeTaskDeadLetters": "sqs:GetQueueAttributes sqs:GetQueueUrl sqs:SendMessage",
    },
    "dispatch_tasks": {
        TASKS: "dynamodb:GetItem dynamodb:UpdateItem",
        f"{TASKS}/index/queue": "dynamodb:Query",
        "WorkflowMachine": "states:StartExecution",
    },
    "plan_task": {**STEP, **TELLS, **EMITS, **STORES, ANTHROPIC: KEY},
    "create_sandbox": {**IN_SANDBOX, SOURCES: "s3:GetObject"},
    "run_claude_code": IN_SANDBOX,
    "test_and_build": IN_SANDBOX,
    "decide_next": {**STEP, **EMITS},
    "verify_clean": IN_SANDBOX,
    "extract_artifacts": {
        **STEP,
        FOLDERS: "s3:AbortMultipartUpload s3:DeleteObject s3:GetObject s3:PutObject",
        BUCKET: "s3:ListBucket",
        "StorageEvidenceKey": "kms:GetPublicKey kms:Sign",
    },
    "finish_task": ENDS,
    "end_stranded_task": ENDS,
    "reap_sandboxes": {
        **ENDS,
        f"{TASKS}/index/by_status": "dynamodb:Query",
        f"{TASKS}/index/queue": "dynamodb:Query",
        "execution:WorkflowMachine:*": "states:DescribeExecution",
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_this_and_nothing_else(resources: dict[str, Any], name: str) -> None:
    id = "".join(part.capitalize() for part in name.split("_"))
    always = {
        "*": "xray:PutTelemetryRecords xray:PutTraceSegments",
        f"Steps{id}Logs": "logs:CreateLogStream logs:PutLogEvents",
    }
    assert granted(resources, f"Steps{id}Role") == {**always, **MAY[name]}


def granted(resources: dict[str, Any], role: str) -> dict[str, str]:
    """What the policies of a role allow: resource → its actions, in order."""
    found: dict[str, set[str]] = {}
    for resource in resources.values():
        if resource["Type"] != "AWS::IAM::Policy" or role not in str(
            resource["Properties"]["Roles"]
        ):
            continue
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            for where in listed(statement["Resource"]):
                found.setdefault(plain(where), set()).update(listed(statement["Action"]))
    return {where: " ".join(sorted(actions)) for where, actions in found.items()}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def plain(resource: Any) -> str:
    """A resource by its logical name without its hash, or by the end of its ARN."""
    if isinstance(resource, dict):
        ((how, what),) = resource.items()
        if how == "Fn::Join":
            resource = "".join(plain(part) for part in what[1])
        else:
            resource = re.sub(r"[0-9A-F]{8}$", "", what if how == "Ref" else what[0])
    return re.sub(r"^arn:AWS::Partition:\w+:AWS::Region:AWS::AccountId:", "", resource)
