"""Runs a project's tests and writes down what it observed. Uploaded as this one file.

    python observer.py pytest|unittest ARGUMENT…     the tests run in this process
    python observer.py go|cargo|jest ARGUMENT…       another process runs them; its report is read

A job's runner hands over, on stdin, the file for the report and a key to sign it with. Neither is
in an argument or in the environment, and stdin is empty once it was read: what the project prints,
writes or exits with is no report. A process that tests run in can still be taken over by them; the
clean room and the rules against tampering are for that.

For a further runner: a function here that takes its arguments, notes outcomes and gives an exit
code, and its name in RUNNERS. Standard library only, and pytest where that is the runner.
"""

import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MOST_IDS = 2000
MOST_FAILURES = 50
ID_LENGTH, MESSAGE_LENGTH = 300, 500
REPORT_BYTES = 64 * 1024 * 1024
OUTCOMES = ("passed", "failed", "skipped", "xfailed")


class Observed:
    """What became of each test. A failure stays one, whatever is said of that test later."""

    def __init__(self) -> None:
        """Nothing ran yet."""
        self.outcomes: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.deselected = 0

    def note(self, test: str, outcome: str, message: str = "") -> None:
        """Note the outcome of a test; `message` says why it failed."""
        if self.outcomes.get(test) != "failed":
            self.outcomes[test] = outcome
        if outcome == "failed":
            self.messages.setdefault(test, message.strip() or "failed")

    def report(self) -> bytes:
        """Write it down, bounded."""
        counts = Counter(self.outcomes.values())
        ran = (test for test, outcome in self.outcomes.items() if outcome in ("passed", "failed"))
        failures = list(self.messages.items())[:MOST_FAILURES]
        content = {
            **{name: counts[name] for name in OUTCOMES},
            "deselected": self.deselected,
            "ids": sorted({bare(test)[:ID_LENGTH] for test in ran})[:MOST_IDS],
            "failures": [[test[:ID_LENGTH], text[:MESSAGE_LENGTH]] for test, text in failures],
        }
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def bare(test: str) -> str:
    """A test's id without the parameters that pytest adds: a thousand of them are one test."""
    return re.sub(r"(\.py::[^\[]+)\[.*", r"\1", test, flags=re.DOTALL)


# --- tests in this process ----------------------------------------------------------------------


def run_pytest(arguments: list[str], observed: Observed) -> int:
    """Run pytest; it is imported before the project's folder is on the path, which may have one."""
    import pytest

    sys.path[0] = str(Path.cwd())  # as `python -m pytest` does
    return int(pytest.main(arguments, plugins=[PytestObserver(observed)]))


class PytestObserver:
    """A plugin that notes what pytest reports."""

    def __init__(self, observed: Observed) -> None:
        """Note into `observed`."""
        self.observed = observed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a phase of a test: set-up and tear-down can fail or skip it, too."""
        if report.failed:
            self.observed.note(report.nodeid, "failed", crash(report))
        elif report.skipped:
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            self.observed.note(report.nodeid, outcome)
        elif report.when == "call":
            self.observed.note(report.nodeid, "passed")

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that could not be collected, or was skipped as a whole."""
        if report.failed:
            self.observed.note(report.nodeid, "failed", crash(report))
        elif report.skipped:
            self.observed.note(report.nodeid, "skipped")

    def pytest_deselected(self, items: list[Any]) -> None:
        """Count what was found and left out."""
        self.observed.deselected += len(items)


def crash(report: Any) -> str:
    """The message of a failure, without a line of the test's source."""
    where = getattr(report.longrepr, "reprcrash", None)
    return str(where.message if where else "it could not be collected")


def run_unittest(arguments: list[str], observed: Observed) -> int:
    """Run unittest."""
    sys.path[0] = str(Path.cwd())

    class Result(unittest.TextTestResult):
        """Notes what unittest reports."""

        def addSuccess(self, test: Any) -> None:  # noqa: N802
            super().addSuccess(test)
            observed.note(test.id(), "passed")

        def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addFailure(test, err)
            observed.note(test.id(), "failed", str(err[1]))

        def addError(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addError(test, err)
            observed.note(test.id(), "failed", str(err[1]))

        def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
            super().addSkip(test, reason)
            observed.note(test.id(), "skipped")

        def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
            super().addExpectedFailure(test, err)
            observed.note(test.id(), "xfailed")

        def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
            super().addUnexpectedSuccess(test)
            observed.note(test.id(), "failed", "it passed, though a failure was expected")

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
            super().addSubTest(test, subtest, err)
            if err:
                observed.note(subtest.id(), "failed", str(err[1]))

    result: Any = Result
    runner = unittest.TextTestRunner(resultclass=result, verbosity=2)
    program = unittest.main(
        module=None, argv=["unittest", *arguments], testRunner=runner, exit=False
    )
    return 0 if program.result.wasSuccessful() else 1


# --- tests in other processes -------------------------------------------------------------------


def lines_of(command: list[str], ended: list[int]) -> Iterator[str]:
    """Run a command, give its lines as they come, and at last put its exit code into `ended`."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for line in process.stdout or ():
            yield line.decode("utf-8", "replace").rstrip("\n")
    ended.append(process.returncode if process.returncode >= 0 else 128 - process.returncode)


def run_go(arguments: list[str], observed: Observed) -> int:
    """Run `go test -json`: an event a line, of a package or of a test in it."""
    ended: list[int] = []
    said: dict[str, list[str]] = {}
    outcomes = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for line in lines_of(["go", *arguments], ended):
        event = as_object(line)
        package, test = str(event.get("Package", "")), str(event.get("Test", ""))
        name = f"{package}.{test}" if test else package
        if "Action" not in event:
            say(line)  # of the compiler's, not of a test
            if found := re.match(r"FAIL\s+(\S+) \[(.+)\]", line):
                observed.note(found[1], "failed", found[2])
        elif event["Action"] == "output":
            text = str(event.get("Output", ""))
            say(text.rstrip("\n"))
            if not re.match(r"\s*(=== |--- |PASS$|FAIL\b|ok\s|exit status)", text):
                said.setdefault(name, []).append(text.strip())
        elif outcome := outcomes.get(str(event["Action"])):
            failed_tests = any(other.startswith(f"{package}.") for other in observed.messages)
            # A package fails with its tests, or instead of them: then it was not even compiled.
            if test or (outcome == "failed" and not failed_tests):
                observed.note(name, outcome, " ".join(said.get(name, [])))
    return ended[0]


def run_cargo(arguments: list[str], observed: Observed) -> int:
    """Run `cargo test`: each of its programs has lines of its own, and a sum."""
    ended: list[int] = []
    program, failing = "", ""
    for line in lines_of(["cargo", *arguments], ended):
        say(line)
        if found := re.match(r"\s+(?:Running|Doc-tests) (?:unittests )?(\S+)", line):
            program = found[1]
        elif found := re.match(
            r"test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b", line
        ):
            outcome = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}[found[2]]
            observed.note(f"{program}::{found[1]}", outcome)
        elif found := re.match(r"test result: .* (\d+) filtered out", line):
            observed.deselected += int(found[1])
        elif found := re.match(r"---- (.+) stdout ----", line):
            failing = f"{program}::{found[1]}"
            observed.messages[failing] = ""
        elif failing and line and not line.startswith(("note: ", "stack ")):
            observed.messages[failing] = f"{observed.messages[failing]} {line}".strip()
        else:
            failing = "" if observed.messages.get(failing) else failing
    return ended[0]


def run_jest(arguments: list[str], observed: Observed) -> int:
    """Run jest or vitest, with a file for their JSON report in the place of $RESULTS."""
    ended: list[int] = []
    outcomes = {"passed": "passed", "failed": "failed", "todo": "xfailed"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "results.json")
        command = [argument.replace("$RESULTS", str(report)) for argument in arguments]
        for line in lines_of(command, ended):
            say(line)
        small = report.is_file() and report.stat().st_size <= REPORT_BYTES
        content = as_object(report.read_text(errors="replace") if small else "")
    if not content:
        sys.exit(ended[0])  # and no report is written: what the runner did is not known
    here = Path.cwd()
    for file in content["testResults"]:
        path = Path(file["name"])
        name = str(path.relative_to(here) if path.is_relative_to(here) else path)
        for test in file["assertionResults"]:
            message = "".join(test.get("failureMessages") or [])
            # The message's first lines; then comes the stack.
            text = re.split(r"\n\s+at ", message, maxsplit=1)[0]
            observed.note(
                f"{name} > {' > '.join([*test['ancestorTitles'], test['title']])}",
                outcomes.get(test["status"], "skipped"),
                text,
            )
        if file["status"] == "failed" and not any(m.startswith(name) for m in observed.messages):
            observed.note(name, "failed", str(file.get("message", "")).split("\n\n")[0])
    return ended[0]


def as_object(text: str) -> dict[str, Any]:
    """Read a JSON object; what is none is an empty one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def say(line: str) -> None:
    """Pass a line on to whoever reads the log."""
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


RUNNERS: dict[str, Callable[[list[str], Observed], int]] = {
    "pytest": run_pytest,
    "unittest": run_unittest,
    "go": run_go,
    "cargo": run_cargo,
    "jest": run_jest,
}


def main() -> None:
    """Run the tests; the report is written at the very end, so that who exits early has none."""
    handed_over = as_object(sys.stdin.readline())  # nothing, where an agent tries its command
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    observed = Observed()
    code = RUNNERS[sys.argv[1]](sys.argv[2:], observed)
    if handed_over:
        report = observed.report()
        signature = hmac.new(handed_over["key"].encode(), report, hashlib.sha256).hexdigest()
        Path(handed_over["path"]).write_bytes(signature.encode() + b"\n" + report)
    sys.exit(code)


if __name__ == "__main__":
    main()
