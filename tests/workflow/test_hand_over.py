"""A job that outlives its function is handed over to the next call, on the deployed stack."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from autocoder.services import HANDOVER_MS
from tests.workflow.support import asked, ended, feed, send, shipped, states

FOLLOWING = ("RunClaudeCode", "TestAndBuild", "VerifyClean")
AT_A_TIME_S = 2


@pytest.fixture
def short_functions(cloud: LocalCloud) -> Iterator[None]:
    """The functions that follow a job have two seconds until they must hand over."""
    machine = cloud.client("stepfunctions").describe_state_machine(
        stateMachineArn=cloud.outputs["StateMachineArn"]
    )
    called = json.loads(machine["definition"])["States"]
    functions = cloud.client("lambda")
    before = {}
    for arn in (called[step]["Resource"] for step in FOLLOWING):
        before[arn] = functions.get_function_configuration(FunctionName=arn)["Timeout"]
        seconds = HANDOVER_MS // 1000 + AT_A_TIME_S
        functions.update_function_configuration(FunctionName=arn, Timeout=seconds)
    yield
    for arn, seconds in before.items():
        functions.update_function_configuration(FunctionName=arn, Timeout=seconds)


@pytest.mark.usefixtures("short_functions")
def test_a_task_goes_through_many_calls_of_a_step_and_does_everything_once(
    cloud: LocalCloud, scenarios: Path
) -> None:
    slow = shipped(scenarios / "first-try", "handed-over").model_dump()
    for step in slow["runs"][0]:
        step["delay_s"] = AT_A_TIME_S + 1
    slow["message"]["checks"] = {"slow": f"sleep {3 * AT_A_TIME_S}; echo x >> ../ran; cat ../ran"}
    task_id = send(cloud, Scenario.model_validate(slow))
    record = ended(cloud, task_id)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)
    entered = Counter(states(cloud, record))
    assert all(entered[step] >= 3 for step in FOLLOWING), entered
    assert (entered["CreateSandbox"], entered["DecideNext"]) == (1, 2)
    assert asked(cloud, task_id) == [(1, 0), (1, 1), (1, 2)]
    told = Counter(entry["kind"] for entry in feed(cloud, task_id))
    assert (told["tool"], told["agent_ended"], told["checks_ended"]) == (2, 1, 1)
