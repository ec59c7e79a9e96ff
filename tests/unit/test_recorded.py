"""A recording becomes a scenario: what the agent did, in the order in which it did it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.gateway.asker import Asker
from autocoder.local.gateway.recorder import Recorder, recordings
from autocoder.local.gateway.replay import moved
from autocoder.local.recorded import scenario_of
from autocoder.local.scenario import Scenario, ScenarioError
from tests.model import Block, events, message, text, tool

TOKEN = "local-" + "0123456789abcdef" * 3


class Tape:
    """A recording that is written as the gateway writes it."""

    def __init__(self, **message: Any) -> None:
        self.recorder = Recorder(recordings() / "task", {"specification": "x", **message})

    def add(self, *blocks: Block, status: int = 200, complete: bool = True, **asker: Any) -> None:
        """An exchange of the agent's; streamed, unless it failed."""
        given = {"sandbox_id": "i1", "home": "/home/user", "run": 1, **asker}
        exchange = self.recorder.begin(Asker(TOKEN, **given), f'{{"said": "{TOKEN}"}}'.encode())
        for event in streamed(list(blocks)):
            exchange.answer(event)
        exchange.end(
            model="m", priced_as="m", status=status, complete=complete and status == 200, usd=0.0
        )

    def scenario(self) -> Scenario:
        return scenario_of("task", "mine")


def streamed(blocks: list[Block]) -> list[bytes]:
    async def collect() -> list[bytes]:
        usage = {"output_tokens": 1}
        return [event async for event in events(message(blocks, "m", usage))]

    return asyncio.run(collect())


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def steps(scenario: Scenario) -> list[list[Any]]:
    return [[step.input.get("command") or step.text for step in run] for run in scenario.runs]


def bash(command: str) -> Block:
    return tool("Bash", command=command)


def test_tools_of_one_answer_and_of_a_subagent_follow_each_other() -> None:
    tape = Tape()
    tape.add(text("I begin."), bash("a"), bash("b"))
    tape.add(tool("Agent", prompt="do it"))
    tape.add(bash("c"), run=None)
    tape.add(text("The subagent is done."), run=None)
    tape.add(text("All is "), text("done."))
    tape.add(bash("d"), run=2)
    assert steps(tape.scenario()) == [["a", "b", "c", "All is done."], ["d"]]


def test_a_run_that_began_again_in_another_sandbox_counts_once() -> None:
    tape = Tape()
    tape.add(bash("lost"))
    tape.add(bash("a"), sandbox_id="i2")
    assert steps(tape.scenario()) == [["a"]]


def test_only_an_error_that_ended_the_run_is_replayed() -> None:
    tape = Tape()
    tape.add(status=529)
    tape.add(bash("cut"), complete=False)
    tape.add(bash("a"))
    tape.add(status=499)
    assert steps(tape.scenario()) == [["a"]]
    tape.add(status=402)
    assert [step.status for step in tape.scenario().runs[0]] == [None, 402]


def test_paths_are_the_projects_wherever_the_sandbox_had_its_home() -> None:
    tape = Tape()
    home = "/tmp/homes/ab"
    for path in ("/tmp/homes/ab/project/src/a.py", "/etc/motd"):
        tape.add(tool("Read", file_path=path), home=home)
    tape.add(bash(f"cd {home}/project && make"), home=home)
    first, second, third = tape.scenario().runs[0]
    assert first.input["file_path"] == "src/a.py"
    assert second.input["file_path"] == "../../../etc/motd"
    assert third.input["command"] == "cd /home/user/project && make"
    assert moved(third.input, "/home/user", home)["command"] == f"cd {home}/project && make"


def test_a_tool_a_turn_is_given_as_many_turns_and_the_message_is_else_the_same() -> None:
    tape = Tape(limits={"max_turns": 3, "budget_usd": 1})
    tape.add(*(bash(str(number)) for number in range(40)))
    assert tape.scenario().message == {
        "specification": "x",
        "limits": {"max_turns": 45, "budget_usd": 1},
    }


def test_the_token_is_neither_in_the_requests_nor_in_the_scenario() -> None:
    tape = Tape()
    tape.add(bash(f"echo {TOKEN}"), text(TOKEN))
    assert TOKEN not in (tape.recorder.folder / "0001-request.json").read_text()
    assert TOKEN not in tape.scenario().model_dump_json()


def test_a_plan_is_kept() -> None:
    tape = Tape()
    tape.add(text(json.dumps({"name": "p"})), run=0, sandbox_id="", home="")
    tape.add(bash("a"))
    assert tape.scenario().plan == {"name": "p"}
    assert steps(tape.scenario()) == [["a"]]


def test_what_cannot_be_replayed_is_said() -> None:
    tape = Tape()
    with pytest.raises(ScenarioError, match="no run"):
        tape.scenario()
    tape.recorder.left = 0
    tape.add(bash("a"))
    with pytest.raises(ScenarioError, match="too large"):
        tape.scenario()
    with pytest.raises(ScenarioError, match="There are: task"):
        scenario_of("other", "mine")
    broken = Tape()
    broken.add({"type": "tool_use", "input": {}})  # without a name
    with pytest.raises(ScenarioError, match="can't be read"):
        broken.scenario()
    sourced = Tape(source={"s3": "s3://bucket/sources/x"})
    sourced.add(bash("a"))
    with pytest.raises(ScenarioError, match="began with a project"):
        sourced.scenario()
