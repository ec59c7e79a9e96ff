"""How a run of Claude Code is called and judged."""

import json
from typing import Any

import pytest

from autocoder.claude import (
    ENVIRONMENT,
    Outcome,
    command,
    hopeless,
    parse_line,
    read_outcome,
    tool_uses,
)


def lines(*events: Any) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, **fields}


def test_the_last_result_counts() -> None:
    run = read_outcome(
        lines(
            {"type": "system", "subtype": "init", "session_id": "s-1"},
            result(num_turns=1, total_cost_usd=0.1),
            result(num_turns=3, total_cost_usd=0.25, session_id="s-1"),
        )
    )
    assert run == Outcome(session_id="s-1", outcome="success", turns=3, cost_usd=0.25)


def test_a_stream_says_who_worked_and_what_it_used() -> None:
    init = {"subtype": "init", "claude_code_version": "2.1", "model": "claude-x"}
    run = read_outcome(
        lines(
            {"type": "system", **init},
            result(usage={"input_tokens": 5, "output_tokens": "many", "speed": "standard"}),
        )
    )
    assert (run.version, run.model) == ("2.1", "claude-x")
    assert run.tokens == {"input_tokens": 5, "output_tokens": 0}


@pytest.mark.parametrize(
    ("ids", "replayed"),
    [(["msg_01AbC"], False), (["msg_01AbC", "msg_replay_t_1_0"], True), ([None, 7, ["x"]], False)],
)
def test_answers_from_a_scenario_are_known_by_their_ids(ids: list[Any], replayed: bool) -> None:
    said = [{"type": "assistant", "message": {"id": id, "content": []}} for id in ids]
    assert read_outcome(lines(*said)).replayed is replayed
    assert read_outcome(lines(*said, result())).replayed is replayed


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, "success"),
        ({"is_error": True, "api_error_status": 529}, "api_error"),
        ({"subtype": "error_max_turns", "is_error": True}, "error_max_turns"),
        ({"subtype": "error_max_budget_usd"}, "error_max_budget_usd"),
    ],
)
def test_success_needs_both_the_subtype_and_no_error(fields: dict[str, Any], outcome: str) -> None:
    assert read_outcome(lines(result(**fields))).outcome == outcome


def test_a_run_without_a_result_has_none() -> None:
    assert read_outcome(lines({"type": "assistant"})).outcome == "no_result"


@pytest.mark.parametrize(
    "hostile",
    [b"\xff\xfe", b"[" * 50_000, b'{"type":"result","num_turns":"many"}', b"null", b'"x"', b""],
)
def test_hostile_lines_do_no_harm(hostile: bytes) -> None:
    run = read_outcome([hostile, *lines(result(num_turns=2))])
    assert (run.outcome, run.turns) == ("success", 2)


def test_hostile_numbers_are_not_believed() -> None:
    run = read_outcome(lines(result(num_turns=-5, total_cost_usd=1e300, api_error_status=[])))
    assert (run.turns, run.cost_usd, run.api_status) == (0, 0.0, None)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "model_refused"),
        (404, "model_refused"),
        (402, "budget_exceeded"),
        (529, "model_unavailable"),
        (None, "model_unavailable"),
    ],
)
def test_an_api_error_ends_the_task(status: int | None, code: str) -> None:
    run = read_outcome(lines(result(is_error=True, api_error_status=status, result="why")))
    failure = hopeless(run)
    assert failure and failure.code == code


@pytest.mark.parametrize("outcome", ["success", "error_max_turns", "no_result"])
def test_what_is_not_hopeless_is_left_to_the_checks(outcome: str) -> None:
    assert hopeless(Outcome(outcome=outcome)) is None


def test_tools_are_named_with_what_they_work_on() -> None:
    event = {
        "message": {
            "content": [
                {"type": "text", "text": "hm"},
                {"type": "tool_use", "name": "Write", "input": {"file_path": "/h/project/a.py"}},
                {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
                "junk",
            ]
        }
    }
    assert tool_uses(event) == [("Write", "a.py"), ("Bash", "ls")]


def test_the_prompt_goes_by_stdin_and_the_session_is_resumed() -> None:
    spec = command(prompt="do it", model="m", max_turns=3, budget_usd=0.5, resume="s-1")
    assert spec["stdin"] == "do it"
    assert "do it" not in spec["argv"]
    assert spec["argv"][-2:] == ["--resume", "s-1"]
    assert spec["env"] == ENVIRONMENT
    assert spec["linger_s"] and spec["silence_s"]


def test_a_line_that_is_not_json_is_no_event() -> None:
    assert parse_line("warning: something") == {}


def test_a_result_that_says_less_than_was_heard_is_not_believed() -> None:
    usage = {"input_tokens": 900, "output_tokens": 100}
    message = {"id": "m", "model": "claude-sonnet-5-5", "usage": usage, "content": []}
    said = lines({"type": "assistant", "message": message}, result(modelUsage={"x": {}}, usage={}))
    run = read_outcome(said)
    assert run.own["claude-sonnet-5-5"].input == 900
    assert run.own["claude-sonnet-5-5"].output == 100


def test_a_session_that_is_no_id_is_none() -> None:
    assert read_outcome(lines(result(session_id="x" * 500_000))).session_id is None
