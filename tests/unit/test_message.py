"""What senders may send, and the sentence they get when they may not."""

import json

import pytest

from autocoder.errors import InputError
from autocoder.message import SPECIFICATION_BYTES, ControlMessage, TaskMessage, decode
from autocoder.message import parse as parse_content


def parse(body: str) -> TaskMessage | ControlMessage:
    return parse_content(decode(body))


def test_a_specification_is_enough() -> None:
    message = parse('{"specification": "a calculator"}')
    assert isinstance(message, TaskMessage)
    assert message.limits.max_iterations == 10
    assert message.limits.max_turns == 30
    assert message.limits.budget_usd == 5
    assert message.limits.timeout_minutes == 60
    assert message.environment == "auto"
    assert message.plan is True


def test_a_control_message_cancels() -> None:
    assert parse('{"task_id": "a", "action": "cancel"}') == ControlMessage(
        task_id="a", action="cancel"
    )


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("not json", "message_not_json", "not valid JSON"),
        ("[1]", "message_not_json", "not an object"),
        ('{"specification": NaN}', "message_not_json", "not valid JSON"),
        ('{"specification": "\\ud800"}', "message_not_json", "not valid JSON"),
        ("[" * 100_000, "message_not_json", "not valid JSON"),
        ("{}", "message_invalid", "specification: is required"),
        ('{"specification": "  "}', "message_invalid", "specification: "),
        ('{"specification": 7}', "message_invalid", "specification: "),
        ('{"specification": "x", "colour": 1}', "message_invalid", "colour: is not a known field"),
        ('{"specification": "x", "task_id": "A_b"}', "message_invalid", "task_id: "),
        ('{"specification": "x", "task_id": ""}', "message_invalid", "task_id: "),
        (json.dumps({"specification": "x", "task_id": "a" * 65}), "message_invalid", "task_id: "),
        (
            '{"specification": "x", "limits": {"max_turns": 0}}',
            "message_invalid",
            "limits.max_turns: ",
        ),
        ('{"specification": "x", "environment": "cobol"}', "message_invalid", "environment: "),
        (
            '{"specification": "x", "environment": "custom", "checks": {"lint": "true"}}',
            "message_invalid",
            "checks.test: is required where environment is custom; add the command",
        ),
        (
            '{"specification": "x", "allow": ["all"]}',
            "message_invalid",
            "known are tests_deleted, ",
        ),
        (
            '{"specification": "x", "allow": ["tests_fewer", "test_deleted"]}',
            "message_invalid",
            'allow: "test_deleted" is no rule; did you mean tests_deleted?',
        ),
        (
            '{"specification": "x", "environment": "pyhton"}',
            "message_invalid",
            'environment: "pyhton" is no environment; did you mean python? Known are auto, ',
        ),
        (
            '{"specification": "x", "environment": "custom", "checks": {"test": "true"},'
            ' "acceptance": {"a.sh": "true"}}',
            "message_invalid",
            "checks.acceptance: is required where environment is custom",
        ),
        (
            '{"specification": "x", "acceptance": {"../a.py": ""}}',
            "message_invalid",
            '"../a.py" is no path within the project; write one such as tests/test_x.py.',
        ),
        (
            '{"specification": "x", "checks": {"tamper": "true"}}',
            "message_invalid",
            "checks.tamper",
        ),
        ('{"task_id": "a", "action": "explode"}', "message_invalid", "action: "),
    ],
)
def test_a_bad_message_is_refused_with_the_field_and_the_remedy(
    body: str, code: str, says: str
) -> None:
    with pytest.raises(InputError) as refused:
        parse(body)
    assert refused.value.code == code
    assert says in refused.value.message
    assert "Value error" not in refused.value.message
    assert refused.value.hint


def test_a_specification_may_be_256_kib_and_not_a_byte_more() -> None:
    parse(json.dumps({"specification": "x" * SPECIFICATION_BYTES}))
    with pytest.raises(InputError, match="specification: has 262145 bytes"):
        parse(json.dumps({"specification": "x" * (SPECIFICATION_BYTES + 1)}))


def test_a_large_bad_value_is_not_repeated_whole() -> None:
    with pytest.raises(InputError) as refused:
        parse(json.dumps({"specification": "x", "environment": "y" * 10_000}))
    assert len(refused.value.message) < 500
