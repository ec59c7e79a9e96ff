"""Scenarios: the format is a contract, and so is its documentation."""

import json
import re
from pathlib import Path

import pytest

from autocoder.local.assembly import ROOT
from autocoder.local.scenario import Scenario, Step, load
from autocoder.message import TaskMessage, parse

SHIPPED = sorted((ROOT / "scenarios").iterdir())


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_a_shipped_scenario_is_valid_and_so_is_its_message(folder: Path) -> None:
    scenario = load(folder)
    assert scenario.name == folder.name
    assert isinstance(parse(scenario.task_message()), TaskMessage)


def test_the_example_in_the_docs_is_valid_and_every_shipped_one_is_named() -> None:
    text = (ROOT / "docs" / "scenarios.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert isinstance(parse(Scenario.model_validate_json(example).task_message()), TaskMessage)
    for folder in SHIPPED:
        assert f"`{folder.name}`" in text


def scenario(*runs: list[Step]) -> Scenario:
    return Scenario(name="x", message={}, runs=list(runs))


def test_a_run_without_a_text_ends_after_its_last_step() -> None:
    script = scenario([Step(tool="Write", input={"file_path": "a"})])
    assert script.step(1, 0).tool == "Write"
    assert script.step(1, 1).text is not None


def test_the_last_run_is_repeated_when_more_are_asked_for() -> None:
    script = scenario([Step(text="one")], [Step(text="two")])
    assert [script.step(run, 0).text for run in (1, 2, 3, 9)] == ["one", "two", "two", "two"]


def test_without_a_plan_the_task_has_none_and_with_one_it_keeps_the_messages_wish() -> None:
    assert scenario([Step(text="x")]).task_message() == {"plan": False}
    planned = Scenario.model_validate_json(
        json.dumps({"name": "x", "message": {}, "plan": {"name": "p"}, "runs": [[{"text": "x"}]]})
    )
    assert planned.task_message() == {}
