"""Counts are read from what the real runners write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import infra  # noqa: F401 - names a Node
from autocoder.checks import CheckReport, CheckResult, CheckStatus, Counts, judge, relevant
from autocoder.results import junit, node, unittest

PYTEST_TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 0
@pytest.mark.skip
def test_skipped(): pass
"""
UNITTEST_TESTS = """
import unittest
class T(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self): self.fail()
    @unittest.skip("no")
    def test_skipped(self): pass
"""
NODE_TESTS = """
const test = require("node:test");
test("good", () => {});
test("bad", () => { throw new Error("x"); });
test("skipped", { skip: true }, () => {});
"""
EXPECTED = Counts(ran=2, failed=1, skipped=1)


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST_TESTS)
    run(tmp_path, sys.executable, "-m", "pytest", "-p", "no:xdist", "--junitxml=r.xml", ".")
    assert junit((tmp_path / "r.xml").read_bytes(), "") == EXPECTED


def test_unittest(tmp_path: Path) -> None:
    (tmp_path / "tests.py").write_text(UNITTEST_TESTS)
    output = run(tmp_path, sys.executable, "-m", "unittest", "discover", "-v")
    assert unittest(b"", output) == EXPECTED


@pytest.mark.parametrize("reporter", ["tap", "spec"])
def test_node(tmp_path: Path, reporter: str) -> None:
    (tmp_path / "it.test.js").write_text(NODE_TESTS)
    output = run(tmp_path, os.environ["JSII_NODE"], "--test", f"--test-reporter={reporter}")
    assert node(b"", output) == EXPECTED


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"<a",
        b'<!DOCTYPE a [<!ENTITY x "y">]><testsuite tests="&x;"/>',
    ],
)
def test_a_report_that_is_none_gives_no_counts(hostile: bytes) -> None:
    assert junit(hostile, "") is None


def test_output_without_counts_gives_none() -> None:
    assert unittest(b"", "all good!") is None
    assert node(b"", "all good!") is None


@pytest.mark.parametrize(
    ("exit_code", "reason", "counts", "status"),
    [
        (0, "exited", Counts(ran=1, failed=0, skipped=0), "passed"),
        (0, "exited", None, "passed"),
        (1, "exited", Counts(ran=1, failed=1, skipped=0), "failed"),
        (0, "exited", Counts(ran=0, failed=0, skipped=3), "nothing_to_run"),
        (5, "exited", None, "nothing_to_run"),
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
