"""The workflow as it was synthesized: every arrow, every Retry and every Catch, written out."""

from typing import Any

from autocoder.sandbox.jobs import HEARTBEAT_S

# State → what it is asked, and where each answer leads.
FOLLOWING = {"RunClaudeCode": "AgentDone", "TestAndBuild": "ChecksDone", "VerifyClean": "CleanDone"}
NEXT = {
    "PlanTask": "CreateSandbox",
    "CreateSandbox": "RunClaudeCode",
    **FOLLOWING,
    "DecideNext": "Decided",
    "ExtractArtifacts": "FinishTask",
    "FinishTask": None,
}
CHOICES = {
    "AgentDone": ("$.run.status", {"running": "RunClaudeCode", "done": "TestAndBuild"}),
    "ChecksDone": ("$.checks.status", {"running": "TestAndBuild", "done": "DecideNext"}),
    "CleanDone": ("$.clean.status", {"running": "VerifyClean", "done": "DecideNext"}),
    "Decided": (
        "$.decision.next",
        {
            "fix": "RunClaudeCode",
            "fix_anew": "CreateSandbox",
            "recheck": "CreateSandbox",
            "verify": "VerifyClean",
        },
    ),
}
LOST = ("SandboxLost", "CreateSandbox", None)
CANCELLED = ("TaskCancelled", "ExtractArtifacts", "$.cancel")
FAILED = ("States.ALL", "FinishTask", "$.error")
CATCHES = {
    "PlanTask": [CANCELLED, FAILED],
    "CreateSandbox": [CANCELLED, FAILED],
    "RunClaudeCode": [LOST, FAILED],
    "TestAndBuild": [LOST, FAILED],
    "DecideNext": [CANCELLED, FAILED],
    "VerifyClean": [FAILED],
    "ExtractArtifacts": [FAILED],
    "FinishTask": [],
}
TRANSIENT = {
    "ErrorEquals": [
        "TransientError",
        "Lambda.TooManyRequestsException",
        "Lambda.ServiceException",
        "Lambda.AWSLambdaException",
        "Lambda.SdkClientException",
        "Lambda.ClientExecutionTimeoutException",
    ],
    "IntervalSeconds": 1,
    "BackoffRate": 2,
    "MaxAttempts": 60,
    "MaxDelaySeconds": 20,
    "JitterStrategy": "FULL",
}
DIED = {
    "ErrorEquals": ["Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown", "States.Timeout"],
    "IntervalSeconds": 1,
    "MaxAttempts": 2,
    "JitterStrategy": "FULL",
}


def steps(machine: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: state for name, state in machine["States"].items() if state["Type"] == "Task"}


def test_every_step_is_followed_by_the_one_that_comes_next(machine: dict[str, Any]) -> None:
    assert {name: step.get("Next") for name, step in steps(machine).items()} == NEXT
    assert machine["StartAt"] == "PlanTask"


def test_every_answer_leads_where_it_should_and_any_other_to_what_is_there(
    machine: dict[str, Any],
) -> None:
    asked = {name: state for name, state in machine["States"].items() if state["Type"] == "Choice"}
    assert set(asked) == set(CHOICES)
    for name, (variable, ways) in CHOICES.items():
        choices = asked[name]["Choices"]
        assert {choice["Variable"] for choice in choices} == {variable}
        assert {choice["StringEquals"]: choice["Next"] for choice in choices} == ways
        assert asked[name]["Default"] == "ExtractArtifacts"


def test_every_error_is_caught_where_somebody_acts_on_it(machine: dict[str, Any]) -> None:
    caught = {
        name: [(*c["ErrorEquals"], c["Next"], c["ResultPath"]) for c in step.get("Catch", [])]
        for name, step in steps(machine).items()
    }
    assert caught == CATCHES


def test_every_step_is_tried_again_when_aws_is_busy_or_it_died(machine: dict[str, Any]) -> None:
    for step in steps(machine).values():
        assert step["Retry"] == [TRANSIENT, DIED]


def test_a_task_that_can_take_a_day_has_time_to_wind_up(machine: dict[str, Any]) -> None:
    assert machine["TimeoutSeconds"] == 26 * 3600


def test_a_cancel_is_seen_within_seconds(machine: dict[str, Any]) -> None:
    assert HEARTBEAT_S <= 5  # by a step that follows a job
    waits = [r.get("MaxDelaySeconds", 0) for s in steps(machine).values() for r in s["Retry"]]
    assert max(waits) <= 20  # by a step that waits for its next try
