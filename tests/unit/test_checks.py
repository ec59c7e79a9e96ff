"""What a check's end means, and when two failures are the same."""

import pytest

from autocoder.checks import CheckReport, CheckResult, Counts, judge, lacking


@pytest.mark.parametrize(
    ("check", "exit_code", "output", "lacked"),
    [
        ("test", -9, "", "memory"),
        ("test", 137, "", "memory"),
        ("build", 1, "bash: line 1: 4711 Killed", None),
        ("build", 1, "Killed", "memory"),
        ("test", 1, "E   MemoryError", "memory"),
        ("build", 134, "FATAL ERROR: JavaScript heap out of memory", "memory"),
        ("install", 1, "OSError: [Errno 28] No space left on device", "disk"),
        ("install", 1, "npm error code EAI_AGAIN", "network"),
        ("install", 1, "NewConnectionError: failed to establish", "network"),
        ("test", 1, "connect ECONNREFUSED 127.0.0.1:80", None),
        ("install", 1, "ERROR: No matching distribution found for nothing", None),
        ("test", 0, "the MemoryError was handled", None),
    ],
)
def test_what_the_sandbox_lacked(
    check: str, exit_code: int, output: str, lacked: str | None
) -> None:
    assert lacking(check, exit_code, output) == lacked


def test_infrastructure_is_not_a_failure_of_the_project() -> None:
    assert judge(-9, "exited", None, is_test=True, lacked="memory") == "infrastructure"
    assert judge(-9, "timed_out", None, is_test=True) == "timed_out"
    assert judge(1, "exited", Counts(ran=1, failed=1, skipped=0), is_test=True) == "failed"


def report(output: str, exit_code: int = 1) -> CheckReport:
    check = CheckResult(
        name="test", command="c", status="failed", exit_code=exit_code, output=output
    )
    return CheckReport(toolchain="python", checks=[check])


def test_the_same_failure_a_little_later_is_the_same() -> None:
    first = report("test_a failed at 0x7f01 in /tmp/x1/a, 1 failed in 0.12s, 10:11:12 2026-01-02")
    again = report("test_a failed at 0x7f99 in /tmp/x2/a, 1 failed in 3.40s, 10:12:59 2026-01-03")
    assert first.signature == again.signature


@pytest.mark.parametrize(
    "other", [report("2 failed in 1s"), report("1 failed in 1s", 2), report("assert 5 == 4")]
)
def test_another_failure_is_another(other: CheckReport) -> None:
    assert report("1 failed in 1s").signature != other.signature
