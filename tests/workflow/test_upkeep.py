"""Tasks that the workflow could not end are ended all the same, on the deployed stack."""

import json
import time
from pathlib import Path
from typing import Any

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from tests.workflow.support import ended, function, send, shipped, task


def coding(cloud: LocalCloud, scenarios: Path, task_id: str) -> dict[str, Any]:
    """A task whose agent is at work, and stays so."""
    slow = shipped(scenarios / "first-try", task_id).model_dump()
    slow["runs"][0][0]["delay_s"] = 60
    send(cloud, Scenario.model_validate(slow))
    while (record := task(cloud, task_id) or {}).get("stage") != "coding":
        time.sleep(0.1)
    return record


def test_a_task_whose_execution_is_stopped_ends_and_nothing_is_held(
    cloud: LocalCloud, scenarios: Path
) -> None:
    record = coding(cloud, scenarios, "stopped-by-hand")
    cloud.client("stepfunctions").stop_execution(
        executionArn=record["execution_arn"], error="Stopped", cause="by an operator"
    )
    over = ended(cloud, "stopped-by-hand")
    assert (over["status"], over["failure"]["code"]) == ("FAILED", "workflow_ended")
    assert "ABORTED" in over["failure"]["message"]
    while "stopped-by-hand-1" in holders(cloud):
        time.sleep(0.1)


def test_the_reaper_runs_where_it_is_deployed_and_leaves_a_running_task_alone(
    cloud: LocalCloud, scenarios: Path
) -> None:
    coding(cloud, scenarios, "left-alone")
    slots = cloud.table("TasksTable")
    slots.update_item(
        Key={"task_id": "#slots"},
        UpdateExpression="ADD holders :n",
        ExpressionAttributeValues={":n": {"long-gone-1"}},
    )
    answer = cloud.client("lambda").invoke(FunctionName=function(cloud, "ReapSandboxes"))
    assert json.loads(answer["Payload"].read())["slots"] == 1
    assert "FunctionError" not in answer
    assert (task(cloud, "left-alone") or {})["status"] == "RUNNING"
    assert "left-alone-1" in holders(cloud)
    cloud.send(json.dumps({"task_id": "left-alone", "action": "cancel"}))
    assert ended(cloud, "left-alone")["status"] == "CANCELLED"


def test_the_workflow_calls_versions_that_a_deploy_does_not_change(cloud: LocalCloud) -> None:
    machine = cloud.client("stepfunctions").describe_state_machine(
        stateMachineArn=cloud.outputs["StateMachineArn"]
    )
    states = json.loads(machine["definition"])["States"].values()
    called = [state["Resource"] for state in states if state["Type"] == "Task"]
    assert called
    assert all(arn.split(":")[5] == "function" and arn.split(":")[-1].isdecimal() for arn in called)


def holders(cloud: LocalCloud) -> set[str]:
    """The attempts that hold a slot."""
    item = cloud.table("TasksTable").get_item(Key={"task_id": "#slots"}).get("Item", {})
    return set(item.get("holders", set()))
