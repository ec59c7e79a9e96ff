"""The synthesized template: what a reader of the design may rely on."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.assembly import ROOT, synthesize
from autocoder.message import TaskMessage
from infra.settings import Settings
from infra.steps import FUNCTIONS


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    (file,) = synthesize(lambda line: None).glob("*.template.json")
    found: dict[str, Any] = json.loads(file.read_text())["Resources"]
    return found


@pytest.fixture(scope="module")
def machine(resources: dict[str, Any]) -> dict[str, Any]:
    (found,) = of_type(resources, "AWS::StepFunctions::StateMachine")
    parts = found["DefinitionString"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "x" for part in parts)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def of_type(resources: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in resources.values() if r["Type"] == kind]


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
    assert machine["StartAt"] == "CreateSandbox"


def test_every_arrow_of_the_workflow_leads_to_a_state(machine: dict[str, Any]) -> None:
    states = machine["States"]
    reached = {machine["StartAt"]}
    for state in states.values():
        choices = [*state.get("Choices", []), *state.get("Catch", [])]
        reached |= {c["Next"] for c in choices} | {state.get("Next"), state.get("Default")}
    assert reached - {None} == set(states)


def test_every_step_is_retried_caught_and_bounded_in_time(machine: dict[str, Any]) -> None:
    steps = {name: s for name, s in machine["States"].items() if s["Type"] == "Task"}
    for name, step in steps.items():
        assert step["TimeoutSeconds"] > 0
        assert step["Retry"][0]["JitterStrategy"] == "FULL"
        assert "TransientError" in step["Retry"][0]["ErrorEquals"]
        if name != "FinishTask":
            assert step["Catch"][-1] == {
                "ErrorEquals": ["States.ALL"],
                "Next": "FinishTask",
                "ResultPath": "$.error",
            }
    for name in ("RunClaudeCode", "TestAndBuild"):
        assert steps[name]["Catch"][0]["ErrorEquals"] == ["SandboxLost"]
        assert steps[name]["Catch"][0]["Next"] == "CreateSandbox"


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


def test_only_functions_that_use_a_sandbox_carry_its_sdk_and_may_read_its_key(
    resources: dict[str, Any],
) -> None:
    for function in of_type(resources, "AWS::Lambda::Function"):
        name = function["Handler"].removesuffix(".handler")
        sandbox = FUNCTIONS[name].sandbox
        assert len(function["Layers"]) == (3 if sandbox else 2)
        assert ("E2B_SECRET_NAME" in function["Environment"]["Variables"]) == sandbox
    readers = [
        p for p in of_type(resources, "AWS::IAM::Policy") if "secretsmanager" in json.dumps(p)
    ]
    assert len(readers) == sum(spec.sandbox for spec in FUNCTIONS.values())


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


def test_the_reference_names_every_field_of_the_message() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for field in TaskMessage.model_fields:
        assert f"`{field}`" in text
