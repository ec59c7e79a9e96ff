"""What can go wrong, and who acts on it.

    AutocoderError
    ├── InputError           the sender: the message or what it asks for
    ├── TransientError       nobody: retried with backoff
    ├── SandboxLost          nobody: a new sandbox is restored from the last checkpoint
    ├── ConfigurationError   the operator
    ├── TaskCancelled        nobody: the sender asked for it
    ├── TaskClosed           nobody: another attempt, or an end, overtook this step
    └── ScriptError          a fault here: our own script in the sandbox failed

    Mendable                 whoever called a command here: its text is the sentence that they get

Step Functions sees the class's name (its Retry and Catch go by it) and the text, which is JSON so
that `finish_task` can put code, sentence and hint into the record.
"""

import json
from typing import Self

# What hints say where nothing more is known.
REPORT = "iterations/NN/checks.json"
RULES = '"allow": ["RULE"]'
# Of a rule in autocoder.tamper.
TAMPERED = (
    f"Read `findings` in {REPORT}. If it may be so, add to `allow` in the message: `{RULES}`."
)

HINTS = {
    "message_not_json": "Send one JSON object as the message's body.",
    "message_invalid": "Correct the named field and send the message again.",
    "task_id_taken": "Use another task_id, or send the very message that it was first sent with.",
    "source_missing": "Put a tar.gz into sources/ in the service's bucket, then send the message.",
    "task_unknown": "Check the task_id; only a task that was accepted can be cancelled or retried.",
    "not_retryable": "Only a task that has FAILED or was CANCELLED can be retried.",
    "environment_unavailable": "Ask for a version that is there, or name the language alone.",
    "sandbox_unavailable": "Send the task again later; E2B did not give a sandbox.",
    "sandbox_lost": "Send the task again; its sandboxes vanished more often than it may restart.",
    "sandbox_refused": "Check the E2B API key in Secrets Manager and the template's name.",
    "planner_key_refused": "Store a valid Anthropic key in the secret that cdk.json names for it.",
    "project_too_large": "Ask for a smaller project: generated data does not belong into it.",
    "archive_unsafe": "Look at the checkpoint in S3; what the sandbox packed was not a project.",
    "no_files": "Make the specification more concrete; the agent wrote no file.",
    "model_refused": "Check the model's id and the Anthropic key's access to it.",
    "model_unavailable": "Send the task again later; the model did not answer.",
    "agent_failed": "Read iterations/NN/claude.jsonl in the task's folder in S3.",
    "checks_failed": f"Read {REPORT}; raise max_iterations or narrow the task.",
    "budget_exceeded": "Raise limits.budget_usd, or narrow the task.",
    "deadline_exceeded": "Raise limits.timeout_minutes, or narrow the task.",
    "no_progress": "Read the last iterations' checks.json; make the specification more concrete.",
    "registry_unreachable": "Check that the package registries can be reached, and send it again.",
    "tests_deleted": TAMPERED,
    "tests_emptied": TAMPERED,
    "tests_skipped": TAMPERED,
    "tests_deselected": TAMPERED,
    "check_removed": TAMPERED,
    "test_command_empty": TAMPERED,
    "exit_code_masked": TAMPERED,
    "path_changed": TAMPERED,
    "runner_planted": TAMPERED,
    "startup_planted": TAMPERED,
    "hooks_planted": TAMPERED,
    "tool_config": TAMPERED,
    "file_unreadable": TAMPERED,
    "results_forged": TAMPERED,
    "processes_left": TAMPERED,
    "no_tests_run": TAMPERED,
    "tests_fewer": TAMPERED,
    "secrets_in_output": TAMPERED,
    "agent_refused": "Reword the specification; the model declined to work on it.",
    "cancelled": "The sender asked for it; what was there by then is in S3.",
    "workflow_ended": "Send the task again; the execution's history shows who or what ended it.",
    "service_not_configured": "Correct the function's environment and deploy again.",
    "model_not_configured": "Run `autocoder setup` and name E2B's secret in cdk.json; then deploy.",
    "signing_key_unusable": "Enable the stack's evidence key in KMS, and send the task again.",
    "internal_error": "Read the execution's history and the function's log; this is a fault here.",
}


def hint(code: str, report: str = REPORT, rules: list[str] | None = None) -> str:
    """Say what to do about a code: with the report to read, and the rules to allow, if known."""
    allow = f'"allow": {json.dumps(rules)}' if rules else RULES
    return HINTS[code].replace(REPORT, report).replace(RULES, allow)


class Mendable(Exception):  # noqa: N818 - what sets it apart is that somebody here can act
    """The caller of a command can mend it; the text says what is wrong, and how."""


class AutocoderError(Exception):
    """An error with a stable code, a sentence for people, and a hint at the remedy."""

    def __init__(self, code: str, message: str) -> None:
        """`code` is a key of HINTS: an unknown one is a mistake here, not a failure there."""
        self.code = code
        self.message = message
        self.hint = HINTS[code]
        super().__init__(code, message)

    def __str__(self) -> str:
        """Give all three as JSON: Step Functions hands on nothing but this text."""
        return json.dumps({"code": self.code, "message": self.message, "hint": self.hint})


class InputError(AutocoderError):
    """The sender must change something."""


class TransientError(AutocoderError):
    """Worth another try, later."""


class SandboxLost(AutocoderError):  # noqa: N818 - the name that the workflow catches
    """The sandbox is gone; its last checkpoint is not."""

    @classmethod
    def because(cls, reason: str) -> Self:
        """Make one with the reason that the provider gave."""
        return cls("sandbox_lost", f"The sandbox is gone: {reason}")


class ConfigurationError(AutocoderError):
    """The operator must change something."""


class ScriptError(AutocoderError):
    """A script of ours inside the sandbox could not do what it was asked to."""


class TaskCancelled(AutocoderError):  # noqa: N818 - no error: the sender asked for it
    """The task was to stop, and a step saw it when it began."""

    @classmethod
    def before(cls, stage: str) -> Self:
        """Make one for the stage that did not begin."""
        where = stage.replace("_", " ")
        return cls("cancelled", f"The task was cancelled before this stage: {where}.")


class TaskClosed(AutocoderError):  # noqa: N818 - no error: the step came too late
    """The record no longer belongs to this attempt: nothing more may be written to it."""

    @classmethod
    def for_attempt(cls, task_id: str, attempt: int) -> Self:
        """Make one for the attempt that came too late."""
        message = f"Task {task_id} is no longer run by attempt {attempt}."
        return cls("internal_error", message)
