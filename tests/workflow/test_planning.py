"""Whole tasks with a planner: the deployed function, its secret, the real SDK."""

import json
from pathlib import Path

from autocoder.local.cloud import LocalCloud
from tests.workflow.support import ended, read, requests, send, shipped, states


def test_a_planned_task_shows_its_plan_and_gives_it_to_the_agent(
    cloud: LocalCloud, scenarios: Path
) -> None:
    scenario = shipped(scenarios / "planned", "with-plan")
    record = ended(cloud, send(cloud, scenario))
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1)
    assert (record["plan"]["status"], record["plan"]["name"]) == ("planned", "roman")
    assert states(cloud, record)[:2] == ["PlanTask", "CreateSandbox"]
    assert json.loads(read(cloud, "with-plan", "plan.json"))["plan"] == scenario.plan
    result = json.loads(read(cloud, "with-plan", "result.json"))
    assert result["plan"] == scenario.plan
    assert result["planning"]["status"] == "planned"
    prompt = read(cloud, "with-plan", "iterations/01/prompt.md").decode()
    assert "compare with to_roman" in prompt
    first, *rest = requests(cloud, "with-plan")
    assert first["user_agent"].startswith("AsyncAnthropic/Python")
    assert all(entry["user_agent"].startswith("claude-cli/") for entry in rest)


def test_the_plans_checks_are_not_those_that_the_service_runs(
    cloud: LocalCloud, scenarios: Path
) -> None:
    scenario = shipped(scenarios / "never-green", "lenient-plan")
    plan = {
        "name": "primes",
        "environment": "node",
        "files": [],
        "checks": [{"name": "test", "command": "true"}],
        "acceptance_criteria": [],
        "risks": [],
    }
    message = {**scenario.message, "limits": {"max_iterations": 1}}
    record = ended(
        cloud, send(cloud, scenario.model_copy(update={"plan": plan, "message": message}))
    )
    assert record["plan"]["environment"] == "node"
    assert (record["status"], record["failure"]["code"]) == ("FAILED", "checks_failed")
    assert record["checks"]["test"]["tests"]["failed"] == 2
    report = json.loads(read(cloud, "lenient-plan", "iterations/01/checks.json"))
    assert report["toolchain"] == "python"


def test_without_a_plan_nobody_is_asked_for_one(cloud: LocalCloud, scenarios: Path) -> None:
    scenario = shipped(scenarios / "planned", "no-plan")
    scenario.message["plan"] = False
    record = ended(cloud, send(cloud, scenario))
    assert (record["status"], record["plan"]["status"]) == ("SUCCEEDED", "skipped")
    assert all(entry["run"] == 1 for entry in requests(cloud, "no-plan"))
    assert "Plan" not in read(cloud, "no-plan", "iterations/01/prompt.md").decode()
    assert json.loads(read(cloud, "no-plan", "result.json"))["plan"] is None


def test_a_task_whose_planner_fails_succeeds_all_the_same(
    cloud: LocalCloud, scenarios: Path
) -> None:
    scenario = shipped(scenarios / "first-try", "outage")
    cloud.add_scenario(scenario, "outage")
    cloud.send(json.dumps({**scenario.message, "plan": True}))  # the scenario has none to give
    record = ended(cloud, "outage")
    assert record["status"] == "SUCCEEDED"
    assert record["plan"]["status"] == "unavailable"
    assert "404" in record["plan"]["reason"]
    planning = json.loads(read(cloud, "outage", "result.json"))["planning"]
    assert planning["reason"] == record["plan"]["reason"]
