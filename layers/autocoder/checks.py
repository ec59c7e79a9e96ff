"""What the service's commands found out about a project, and how it is told to the agent."""

import re
from typing import Any, Literal

from pydantic import Field

from autocoder.model import Frozen

CheckStatus = Literal["passed", "failed", "timed_out", "nothing_to_run", "not_run"]

NO_TESTS = "No test ran. A project without tests is not green: add tests that the runner finds."


class Counts(Frozen):
    """How many tests the runner executed."""

    ran: int
    failed: int
    skipped: int


class CheckResult(Frozen):
    """One check: the command that the service ran, and what came of it."""

    name: str
    command: str
    status: CheckStatus
    exit_code: int | None = None
    seconds: float = 0.0
    tests: Counts | None = None
    output: str = ""

    def in_words(self) -> str:
        """Say how it went, in a few words."""
        counts = f", {self.tests.ran} ran, {self.tests.failed} failed" if self.tests else ""
        return self.status.replace("_", " ") + counts

    def last_lines(self, most: int = 6) -> str:
        """How the output of a check that failed ended."""
        if self.status in ("passed", "not_run"):
            return ""
        lines = [line[:160] for line in self.output.splitlines() if line.strip()]
        return "\n".join(lines[-most:])


class CheckReport(Frozen):
    """All checks of one iteration, as stored in iterations/NN/checks.json."""

    toolchain: str | None
    agent: dict[str, Any] = Field(default_factory=dict)
    checks: list[CheckResult] = Field(default_factory=list)

    @property
    def green(self) -> bool:
        """Every check passed, and tests were among them."""
        names = {check.name for check in self.checks}
        return "test" in names and all(check.status == "passed" for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that did not pass."""
        return [check.name for check in self.checks if check.status != "passed"]

    def describe(self) -> list[dict[str, str]]:
        """Say each check in a few words, and of one that failed how its output ended."""
        return [
            {"name": check.name, "says": check.in_words(), "end": check.last_lines()}
            for check in self.checks
        ]

    def summary(self) -> dict[str, Any]:
        """What the task's record shows of it."""
        return {
            check.name: {
                "status": check.status,
                "exit_code": check.exit_code,
                "seconds": check.seconds,
                **({"tests": check.tests.model_dump()} if check.tests else {}),
            }
            for check in self.checks
        }


def judge(exit_code: int, reason: str, counts: Counts | None, *, is_test: bool) -> CheckStatus:
    """Say what a command's end means."""
    if reason == "timed_out":
        return "timed_out"
    if is_test and ((counts and counts.ran == 0) or (counts is None and exit_code == 5)):
        return "nothing_to_run"  # pytest and unittest exit 5 when they collected nothing
    return "passed" if exit_code == 0 else "failed"


def relevant(output: str, most: int = 8000) -> str:
    """Cut an output to what a reader needs: how it began, and above all how it ended."""
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).strip()
    if len(output) <= most:
        return output
    head, tail = output[: most // 4], output[-(most * 3 // 4) :]
    return f"{head}\n[… {len(output) - most} characters left out …]\n{tail}"
