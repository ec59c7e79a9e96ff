"""The synthesized template: what a reader of the design may rely on."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.assembly import ROOT, synthesize
from infra.layers import compiler
from infra.settings import Settings
from infra.steps import FUNCTIONS
from infra.storage import log_retention
from tests.infra.conftest import of_type

MAGIC_OF_3_13 = b"\xf3\r\r\n"
BUCKET = "AWS::S3::Bucket"


def test_every_file_in_functions_is_a_function_and_no_other(resources: dict[str, Any]) -> None:
    files = {path.stem for path in (ROOT / "functions").glob("*.py")} - {"__init__"}
    handlers = {f["Handler"] for f in of_type(resources, "AWS::Lambda::Function")}
    assert files == set(FUNCTIONS)
    assert handlers == {f"{name}.handler" for name in files}


def test_no_step_imports_another_and_the_domain_neither_aws_nor_e2b() -> None:
    for path in (ROOT / "functions").glob("*.py"):
        assert not any(name.startswith("functions") for name in imports(path)), path
    for path in (ROOT / "layers" / "autocoder").glob("*.py"):
        if path.name != "services.py":
            heavy = {"boto3", "botocore", "e2b", "anthropic"} & {
                n.split(".")[0] for n in imports(path)
            }
            assert not heavy, path


def imports(path: Path) -> set[str]:
    found = set()
    for entry in ast.walk(ast.parse(path.read_text())):
        if isinstance(entry, ast.Import):
            found |= {alias.name for alias in entry.names}
        elif isinstance(entry, ast.ImportFrom):
            found.add(entry.module or "")
    return found


def test_the_workflow_is_jsonpath_and_fits_on_a_screen(machine: dict[str, Any]) -> None:
    assert machine.get("QueryLanguage", "JSONPath") == "JSONPath"
    assert len((ROOT / "infra" / "workflow.py").read_text().splitlines()) <= 160


def test_every_arrow_of_the_workflow_leads_to_a_state(machine: dict[str, Any]) -> None:
    states = machine["States"]
    reached = {machine["StartAt"]}
    for state in states.values():
        choices = [*state.get("Choices", []), *state.get("Catch", [])]
        reached |= {c["Next"] for c in choices} | {state.get("Next"), state.get("Default")}
    assert reached - {None} == set(states)


def test_every_step_has_time_to_hand_over_before_the_workflow_gives_it_up(
    machine: dict[str, Any], resources: dict[str, Any]
) -> None:
    takes = {f["Handler"]: f["Timeout"] for f in of_type(resources, "AWS::Lambda::Function")}
    for name, step in machine["States"].items():
        if step["Type"] == "Task":
            file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            assert step["TimeoutSeconds"] == takes[f"{file}.handler"] + 30


def test_a_message_is_hidden_six_times_as_long_as_its_function_may_take(
    resources: dict[str, Any],
) -> None:
    queue = next(q for q in of_type(resources, "AWS::SQS::Queue") if "RedrivePolicy" in q)
    assert queue["VisibilityTimeout"] >= 6 * FUNCTIONS["start_task"].timeout_s
    (source,) = of_type(resources, "AWS::Lambda::EventSourceMapping")
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_no_secret_value_is_in_the_template(resources: dict[str, Any]) -> None:
    text = json.dumps(resources)
    assert not re.search(r"sk-ant-|e2b_[0-9a-f]{8}", text)
    assert "AWS::SecretsManager::Secret" not in {r["Type"] for r in resources.values()}


def test_only_functions_that_use_a_service_carry_its_sdk_and_may_read_its_key(
    resources: dict[str, Any],
) -> None:
    for function in of_type(resources, "AWS::Lambda::Function"):
        name = function["Handler"].removesuffix(".handler")
        spec, variables = FUNCTIONS[name], function["Environment"]["Variables"]
        assert len(function["Layers"]) == 2 + spec.sandbox + spec.planner
        assert ("E2B_SECRET_NAME" in variables) == spec.sandbox
        assert ("ANTHROPIC_SECRET_NAME" in variables) == spec.planner
    readers = [
        p for p in of_type(resources, "AWS::IAM::Policy") if "secretsmanager" in json.dumps(p)
    ]
    assert len(readers) == sum(spec.sandbox + spec.planner for spec in FUNCTIONS.values())


def test_one_function_alone_may_sign_evidence_and_with_that_key_only(
    resources: dict[str, Any],
) -> None:
    ((key, made),) = [(id, r) for id, r in resources.items() if r["Type"] == "AWS::KMS::Key"]
    assert made["DeletionPolicy"] == "Retain"
    assert made["Properties"]["KeySpec"] == "ECC_NIST_P256"
    assert made["Properties"]["KeyUsage"] == "SIGN_VERIFY"
    (signer,) = [p for p in of_type(resources, "AWS::IAM::Policy") if "kms:" in json.dumps(p)]
    (statement,) = [s for s in signer["PolicyDocument"]["Statement"] if "kms:" in json.dumps(s)]
    assert set(statement["Action"]) == {"kms:Sign", "kms:GetPublicKey"}
    assert statement["Resource"] == {"Fn::GetAtt": [key, "Arn"]}
    assert "ExtractArtifacts" in json.dumps(signer["Roles"])
    named = [f for f in of_type(resources, "AWS::Lambda::Function") if key in json.dumps(f)]
    assert [function["Handler"] for function in named] == ["extract_artifacts.handler"]


def test_the_index_that_dispatch_reads_is_sparse_and_small(resources: dict[str, Any]) -> None:
    indexes = {
        index["IndexName"]: index
        for table in of_type(resources, "AWS::DynamoDB::Table")
        for index in table.get("GlobalSecondaryIndexes", [])
    }
    assert set(indexes) == {"queue", "by_status"}
    assert indexes["queue"]["Projection"]["NonKeyAttributes"] == ["attempt", "queue_position"]


def test_cdk_json_holds_every_setting_and_no_unknown_one() -> None:
    chosen = json.loads((ROOT / "cdk.json").read_text())["context"]["autocoder"]
    assert set(chosen) == set(Settings.model_fields)
    assert Settings.model_validate(chosen)


def test_the_cdk_app_runs_with_the_projects_own_python() -> None:
    assert json.loads((ROOT / "cdk.json").read_text())["app"] == ".venv/bin/python app.py"


def test_two_stages_are_two_stacks() -> None:
    assert {Settings.load(stage).stack_name for stage in ("main", "test")} == {
        "Autocoder-main",
        "Autocoder-test",
    }


def test_no_resource_has_a_name_that_a_second_stack_would_want_too(
    resources: dict[str, Any],
) -> None:
    names = ("TableName", "BucketName", "QueueName", "FunctionName", "StateMachineName", "RoleName")
    for resource in resources.values():
        if resource["Type"] not in ("AWS::Lambda::Version", "AWS::Lambda::Permission"):
            given = {n: v for n, v in resource.get("Properties", {}).items() if n in names}
            assert all(isinstance(value, dict) for value in given.values()), resource


def test_a_deploy_keeps_the_versions_that_running_tasks_call(
    resources: dict[str, Any], machine: dict[str, Any]
) -> None:
    versions = [r for r in resources.values() if r["Type"] == "AWS::Lambda::Version"]
    steps = [s for s in machine["States"].values() if s["Type"] == "Task"]
    assert len(versions) == len(steps)
    assert {v["DeletionPolicy"] for v in versions} == {"Retain"}


def test_everything_is_traced_and_logged_without_what_senders_sent(
    resources: dict[str, Any],
) -> None:
    (found,) = of_type(resources, "AWS::StepFunctions::StateMachine")
    assert found["LoggingConfiguration"]["IncludeExecutionData"] is False
    assert found["LoggingConfiguration"]["Level"] == "ALL"
    assert found["TracingConfiguration"] == {"Enabled": True}
    for function in of_type(resources, "AWS::Lambda::Function"):
        assert function["TracingConfig"] == {"Mode": "Active"}
        assert function["Timeout"] > 0
    for group in of_type(resources, "AWS::Logs::LogGroup"):
        assert group["RetentionInDays"] == 90


@pytest.mark.parametrize(
    ("days", "term"), [(1, "ONE_DAY"), (8, "TWO_WEEKS"), (90, "THREE_MONTHS"), (9999, "TEN_YEARS")]
)
def test_logs_stay_at_least_as_long_as_records(days: int, term: str) -> None:
    assert log_retention(days).name == term


def test_every_function_has_a_role_of_its_own_and_no_managed_policy(
    resources: dict[str, Any],
) -> None:
    functions = of_type(resources, "AWS::Lambda::Function")
    assert len({json.dumps(f["Role"]) for f in functions}) == len(functions)
    assert not any("ManagedPolicyArns" in role for role in of_type(resources, "AWS::IAM::Role"))


OWN = ["Autocoder-main"]
OURS = ["Task Queued", "Task Succeeded", "Task Failed", "Task Cancelled"]
ENDED_BADLY = ["FAILED", "TIMED_OUT", "ABORTED"]


def test_each_function_that_is_not_called_by_the_workflow_hears_of_what_it_acts_on(
    resources: dict[str, Any],
) -> None:
    heard = {}
    for name, rule in resources.items():
        if rule["Type"] == "AWS::Events::Rule":
            properties = rule["Properties"]
            assert properties["State"] == "ENABLED"
            (target,) = properties["Targets"]
            what = properties.get("EventPattern") or properties["ScheduleExpression"]
            heard[name[:-8]] = (target["Arn"]["Fn::GetAtt"][0][:-8], what)
    (arn,) = [n for n, r in resources.items() if r["Type"] == "AWS::StepFunctions::StateMachine"]
    ours = {"source": ["autocoder"], "detail-type": OURS, "detail": {"stack": OWN}}
    badly = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"stateMachineArn": [{"Ref": arn}], "status": ENDED_BADLY},
    }
    assert heard == {
        "IntakeOnRoomOrWork": ("StepsDispatchTasks", ours),
        "IntakeEveryMinute": ("StepsDispatchTasks", "rate(1 minute)"),
        "UpkeepOnExecutionEndedBadly": ("StepsEndStrandedTask", badly),
        "UpkeepEveryTenMinutes": ("StepsReapSandboxes", "rate(10 minutes)"),
    }


def test_what_is_stored_outlives_the_stack_and_expires_together(
    resources: dict[str, Any],
) -> None:
    stores = [r for r in resources.values() if r["Type"] in ("AWS::DynamoDB::Table", BUCKET)]
    assert len(stores) == 4
    for store in stores:
        assert (store["DeletionPolicy"], store["UpdateReplacePolicy"]) == ("Retain", "Retain")
        if store["Type"] == BUCKET:
            (rule,) = store["Properties"]["LifecycleConfiguration"]["Rules"]
            assert (rule["ExpirationInDays"], rule["Status"]) == (90, "Enabled")
            assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
        else:
            expiry = {"AttributeName": "expires_at", "Enabled": True}
            assert store["Properties"]["TimeToLiveSpecification"] == expiry
    days = {f["Environment"]["Variables"]["RETENTION_DAYS"] for f in functions(resources)}
    assert days == {"90"}


def test_sandboxes_of_stacks_that_share_an_e2b_team_are_told_apart(
    resources: dict[str, Any],
) -> None:
    name = ["Autocoder-main-", {"Ref": "AWS::AccountId"}, "-", {"Ref": "AWS::Region"}]
    for function in functions(resources):
        spec = FUNCTIONS[function["Handler"].removesuffix(".handler")]
        owner = function["Environment"]["Variables"].get("SANDBOX_OWNER")
        assert owner == ({"Fn::Join": ["", name]} if spec.sandbox else None)


def functions(resources: dict[str, Any]) -> list[dict[str, Any]]:
    return of_type(resources, "AWS::Lambda::Function")


def test_records_can_be_restored_and_results_are_reached_by_tls_only(
    resources: dict[str, Any],
) -> None:
    for table in of_type(resources, "AWS::DynamoDB::Table"):
        assert table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    policies = of_type(resources, "AWS::S3::BucketPolicy") + of_type(
        resources, "AWS::SQS::QueuePolicy"
    )
    assert len(policies) == 4
    assert all("aws:SecureTransport" in json.dumps(policy) for policy in policies)


def test_bytecode_in_the_layers_is_for_lambdas_python() -> None:
    modules = [*synthesize(lambda line: None).glob("asset.*/python/**/*.pyc")]
    assert bool(modules) == bool(compiler())
    assert {file.read_bytes()[:4] for file in modules} <= {MAGIC_OF_3_13}


def test_the_docs_name_the_stack_and_its_outputs_as_they_are_called() -> None:
    (file,) = synthesize(lambda line: None).glob("*.template.json")
    text = (ROOT / "docs" / "deploying.md").read_text()
    named = re.findall(r"(?:--stack-name |AUTOCODER_STACK=)(\S+)", text)
    assert len(named) >= 2 and set(named) == {Settings.load().stack_name}
    outputs = set(json.loads(file.read_text())["Outputs"])
    assert {name for name in outputs if f"`{name}`" not in text} == set()
    assert set(re.findall(r"\(output (\w+)\)", text)) <= outputs


def test_the_docs_say_what_outlives_the_stack(resources: dict[str, Any]) -> None:
    data = ("AWS::DynamoDB::Table", "AWS::S3::Bucket")
    kept = [r["Type"] for r in resources.values() if r.get("DeletionPolicy") == "Retain"]
    assert sorted(kind for kind in kept if kind in data) == sorted(data * 2)
    assert kept.count("AWS::KMS::Key") == 1
    text = (ROOT / "docs" / "deploying.md").read_text()
    assert "two tables (tasks, feed), two buckets (results, access logs) and the key" in text


def test_a_message_survives_an_outage_of_two_hours(resources: dict[str, Any]) -> None:
    dead, tasks = sorted(
        of_type(resources, "AWS::SQS::Queue"), key=lambda queue: "RedrivePolicy" in queue
    )
    receives = tasks["RedrivePolicy"]["maxReceiveCount"]
    assert receives * tasks["VisibilityTimeout"] >= 2 * 3600
    assert dead["MessageRetentionPeriod"] > tasks["MessageRetentionPeriod"]


def test_sandboxes_are_made_from_the_very_template_of_this_deployment(
    resources: dict[str, Any],
) -> None:
    names = {
        f["Environment"]["Variables"].get("E2B_TEMPLATE")
        for f in of_type(resources, "AWS::Lambda::Function")
    }
    (name,) = names - {None}
    assert re.fullmatch(r"autocoder:autocoder-[0-9a-f]{12}", name)
