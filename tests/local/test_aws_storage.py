"""Conditional writes hold under concurrency; secrets are kept; the deployment says what failed."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from autocoder.local.aws.deploy import DeployError, package
from tests.local.aws_lab import Lab, Template

SLOTS = 3


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, str]:
    template = Template()
    template.add("Bucket", "AWS::S3::Bucket")
    template.add(
        "Table",
        "AWS::DynamoDB::Table",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    template.add("Secret", "AWS::SecretsManager::Secret", SecretString="s3cret")
    generated = {"SecretStringTemplate": '{"user": "me"}', "GenerateStringKey": "password"}
    template.add("Generated", "AWS::SecretsManager::Secret", GenerateSecretString=generated)
    template.add("Alarm", "AWS::CloudWatch::Alarm", MetricName="Failures")
    template.outputs["AlarmArn"] = {"Value": {"Fn::GetAtt": ["Alarm", "Arn"]}}
    return lab.deploy(template)


def test_one_of_many_conditional_puts_wins(lab: Lab, names: dict[str, str]) -> None:
    s3 = lab.client("s3")

    def put(writer: int) -> str:
        try:
            s3.put_object(
                Bucket=names["Bucket"], Key="lease", Body=str(writer).encode(), IfNoneMatch="*"
            )
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412
            return str(error.response["Error"]["Code"])
        return f"won by {writer}"

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(put, range(16)))

    winner = s3.get_object(Bucket=names["Bucket"], Key="lease")["Body"].read().decode()
    assert sorted(results) == ["PreconditionFailed"] * 15 + [f"won by {winner}"]


def test_a_slot_set_never_exceeds_its_maximum(lab: Lab, names: dict[str, str]) -> None:
    dynamodb = lab.client("dynamodb")
    key = {"id": {"S": "slots"}}

    def holders() -> set[str]:
        item = dynamodb.get_item(TableName=names["Table"], Key=key, ConsistentRead=True)
        return set(item.get("Item", {}).get("holders", {}).get("SS", []))

    def take(task: str) -> bool:
        try:
            dynamodb.update_item(
                TableName=names["Table"],
                Key=key,
                UpdateExpression="ADD holders :me",
                ConditionExpression=(
                    "attribute_not_exists(holders) OR size(holders) < :max"
                    " OR contains(holders, :task)"
                ),
                ExpressionAttributeValues={
                    ":me": {"SS": [task]},
                    ":task": {"S": task},
                    ":max": {"N": str(SLOTS)},
                },
            )
        except dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def work(thread: int) -> int:
        highest = 0
        for turn in range(10):
            task = f"task-{thread}-{turn}"
            if take(task):
                assert take(task), "taking twice is taking once"
                highest = max(highest, len(holders()))
                dynamodb.update_item(
                    TableName=names["Table"],
                    Key=key,
                    UpdateExpression="DELETE holders :me",
                    ExpressionAttributeValues={":me": {"SS": [task]}},
                )
        return highest

    with ThreadPoolExecutor(8) as threads:
        highest = max(threads.map(work, range(8)))

    assert 1 <= highest <= SLOTS
    assert holders() == set()


def test_a_transaction_is_all_or_nothing(lab: Lab, names: dict[str, str]) -> None:
    dynamodb = lab.client("dynamodb")
    table = names["Table"]
    dynamodb.put_item(TableName=table, Item={"id": {"S": "counter"}, "n": {"N": "0"}})
    dynamodb.put_item(TableName=table, Item={"id": {"S": "gate"}, "open": {"BOOL": True}})

    def increment(n: int) -> str:
        gate = {
            "TableName": table,
            "Key": {"id": {"S": "gate"}},
            "ConditionExpression": "#open = :yes",
            "ExpressionAttributeNames": {"#open": "open"},
            "ExpressionAttributeValues": {":yes": {"BOOL": True}},
        }
        update = {
            "TableName": table,
            "Key": {"id": {"S": "counter"}},
            "UpdateExpression": "ADD n :one",
            "ConditionExpression": "n < :max",
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":max": {"N": "5"}},
        }
        try:
            dynamodb.transact_write_items(
                TransactItems=[
                    {"Put": {"TableName": table, "Item": {"id": {"S": f"mark-{n}"}}}},
                    {"ConditionCheck": gate},
                    {"Update": update},
                ]
            )
        except dynamodb.exceptions.TransactionCanceledException as error:
            reasons = error.response["CancellationReasons"]
            return str([reason["Code"] for reason in reasons])
        return "written"

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(increment, range(16)))

    assert results.count("written") == 5
    assert results.count("['None', 'None', 'ConditionalCheckFailed']") == 11
    marks = [item for item in dynamodb.scan(TableName=table)["Items"] if "mark" in item["id"]["S"]]
    assert len(marks) == 5


def test_a_cancelled_transaction_takes_back_its_updates(lab: Lab, names: dict[str, str]) -> None:
    dynamodb = lab.client("dynamodb")
    table, key = names["Table"], {"id": {"S": "kept"}}
    item = {**key, "n": {"N": "1"}, "tags": {"SS": ["a"]}}
    dynamodb.put_item(TableName=table, Item=item)
    update = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "ADD n :one, tags :b",
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":b": {"SS": ["b"]}},
    }
    check = {
        "TableName": table,
        "Key": {"id": {"S": "absent"}},
        "ConditionExpression": "attribute_exists(id)",
    }

    with pytest.raises(dynamodb.exceptions.TransactionCanceledException):
        dynamodb.transact_write_items(TransactItems=[{"Update": update}, {"ConditionCheck": check}])
    assert dynamodb.get_item(TableName=table, Key=key)["Item"] == item

    dynamodb.transact_write_items(TransactItems=[{"Update": update}])
    assert dynamodb.get_item(TableName=table, Key=key)["Item"]["n"] == {"N": "2"}


def test_secrets_of_the_template_and_of_the_user(lab: Lab, names: dict[str, str]) -> None:
    secrets = lab.client("secretsmanager")
    secrets.create_secret(Name="mine", SecretString="x")

    assert secrets.get_secret_value(SecretId="mine")["SecretString"] == "x"
    assert secrets.get_secret_value(SecretId=names["Secret"])["SecretString"] == "s3cret"
    generated = secrets.get_secret_value(SecretId=names["Generated"])["SecretString"]
    assert len(json.loads(generated)["password"]) == 32
    assert names["Secret"].startswith("arn:aws:secretsmanager:")


def test_what_has_no_part_locally_is_named_in_the_log(lab: Lab, names: dict[str, str]) -> None:
    assert names["AlarmArn"].startswith("arn:")
    assert "Alarm (AWS::CloudWatch::Alarm) has no part in the local cloud" in lab.log("aws")


def test_a_failed_deployment_names_the_resource_and_the_reason(lab: Lab) -> None:
    template = Template()
    template.machine("Machine", {"StartAt": "Nowhere", "States": {"A": {"Type": "Oops"}}})

    with pytest.raises(DeployError, match=r"Machine \(AWS::StepFunctions::StateMachine\)"):
        lab.deploy(template)


def test_a_folder_always_becomes_the_same_zip(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        for file in ("b.py", "a.py", "sub/c.py") if name == "one" else ("sub/c.py", "a.py", "b.py"):
            (tmp_path / name / file).write_text("pass")

    assert package(tmp_path / "one", "zip") == package(tmp_path / "two", "zip")
