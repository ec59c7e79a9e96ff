"""What is read of tests from reports and outputs that a project may have written itself."""

import hashlib
import hmac
import json

import pytest

from autocoder.checks import CheckReport, CheckResult, CheckStatus, Counts, judge, relevant
from autocoder.results import junit, own, signed

REPORT = {
    **{"passed": 2, "failed": 1, "skipped": 1, "xfailed": 1, "deselected": 3},
    "ids": ["a", "b", "c"],
    "failures": [["c", "no"]],
}


def sign(content: object, key: str = "key") -> bytes:
    body = json.dumps(content).encode()
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest().encode() + b"\n" + body


def test_a_signed_report_is_read() -> None:
    found = signed(sign(REPORT), "key")
    assert found
    assert found.counts == Counts(ran=3, failed=1, skipped=1, xfailed=1, deselected=3)
    assert found.ids == ["a", "b", "c"]
    assert found.in_words() == "c: no"


@pytest.mark.parametrize(
    "content",
    [
        sign(REPORT, "another key"),
        sign(REPORT).replace(b'"failed": 1', b'"failed": 0'),
        json.dumps(REPORT).encode(),
        b"\n" + json.dumps(REPORT).encode(),
        b"\xff\n{}",
        b"",
        sign({**REPORT, "passed": -1}),
        sign({**REPORT, "ids": ["x"] * 2001}),
        sign({**REPORT, "failures": [["x" * 301, "no"]]}),
        sign({**REPORT, "failures": [["x", "no"]] * 51}),
        sign({**REPORT, "more": 1}),
        sign([]),
    ],
)
def test_what_the_observer_did_not_write_is_no_report(content: bytes) -> None:
    assert signed(content, "key") is None


def test_a_command_of_the_senders_may_leave_a_junit_report_or_print_tap() -> None:
    cases = (
        "<testcase classname='a' name='b'/><testcase name='c'><failure message='no'/></testcase>"
    )
    xml = f"<testsuite>{cases}<testcase name='d'><skipped/></testcase></testsuite>".encode()
    found = own(xml, "")
    assert found
    assert found.counts == Counts(ran=2, failed=1, skipped=1)
    assert found.failures == [("c", "no")]
    printed = own(b"", "# tests 5\n# pass 2\n# fail 1\n# skipped 1\n# todo 1\n")
    assert printed and printed.counts == Counts(ran=3, failed=1, skipped=1, xfailed=1)
    assert own(b"", "all good!") is None
    twice = own(b"", "# tests 5\n# fail 1\n# tests 2\n# fail 0\n")
    assert twice and twice.counts == Counts(ran=7, failed=1, skipped=0)
    lines = "TAP version 13\n1..4\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP later\n"
    plain = own(b"", lines + "    not ok 1 - inner\nnot ok 4 - d # TODO soon\n")
    assert plain and plain.counts == Counts(ran=2, failed=1, skipped=1, xfailed=1)
    assert plain.in_words() == "b: not ok"


def test_what_tap_planned_must_have_run() -> None:
    short = own(b"", "1..3\nok 1 - a\nok 2 - b # SKIP\n")
    assert short and short.counts == Counts(ran=1, failed=1, skipped=1)
    assert short.in_words() == "the plan: of 3 tests that were planned 1 did not run"
    twice = own(b"", "1..1\nok 1 - a\nok 1 - b\n1..1\n")
    assert twice and twice.counts.failed == 0
    cut = own(b"", "1..3\nok 1 - a\n[… 9 bytes left out …]\nok 3 - c\n")
    assert cut and cut.counts.failed == 0


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"<a",
        b'<!DOCTYPE a [<!ENTITY x "y">]><testsuite tests="&x;"/>',
    ],
)
def test_a_report_that_is_none_gives_no_counts(hostile: bytes) -> None:
    assert junit(hostile) is None


@pytest.mark.parametrize(
    ("exit_code", "reason", "counts", "status"),
    [
        (0, "exited", Counts(ran=1, failed=0, skipped=0), "passed"),
        (0, "exited", None, "passed"),
        (1, "exited", Counts(ran=1, failed=1, skipped=0), "failed"),
        (0, "exited", Counts(ran=0, failed=0, skipped=3), "nothing_to_run"),
        (5, "exited", None, "nothing_to_run"),
        (2, "exited", Counts(ran=0, failed=0, skipped=0), "failed"),
        (0, "exited", Counts(ran=1, failed=1, skipped=0), "failed"),
        (-9, "timed_out", None, "timed_out"),
    ],
)
def test_a_test_run_is_judged(
    exit_code: int, reason: str, counts: Counts | None, status: CheckStatus
) -> None:
    assert judge(exit_code, reason, counts, is_test=True) == status


def check(name: str, status: CheckStatus) -> CheckResult:
    return CheckResult(name=name, command="x", status=status)


def test_green_needs_tests_and_nothing_red() -> None:
    build, test = check("build", "passed"), check("test", "passed")
    assert CheckReport(toolchain="python", checks=[build, test]).green
    assert not CheckReport(toolchain="python", checks=[build]).green
    assert not CheckReport(toolchain="python", checks=[]).green
    for status in ("failed", "timed_out", "nothing_to_run", "not_run"):
        report = CheckReport(toolchain="python", checks=[check("build", status), test])
        assert not report.green
        assert report.failed == ["build"]


def test_a_long_output_keeps_its_head_and_above_all_its_end() -> None:
    output = "begin\n" + "x" * 100_000 + "\nend"
    cut = relevant(output)
    assert len(cut) < 9000
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert "characters left out" in cut


def test_colours_are_removed() -> None:
    assert relevant("\x1b[31mred\x1b[0m") == "red"
