"""Reading what became of tests. One function a format; the input is untrusted."""

import hashlib
import hmac
import re
from typing import Annotated
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring
from pydantic import Field, StringConstraints, ValidationError

from autocoder.checks import Counts
from autocoder.model import Frozen

MOST_IDS = 2000
MOST_FAILURES = 50
TAP_LINE = re.compile(r"^(not )?ok\b(?: +\d+)?([^#\n]*)(?:# *(skip|todo))?", re.MULTILINE | re.I)
LEFT_OUT = re.compile(r"^\[… \d+ bytes left out …\]$", re.MULTILINE)  # of a log (runner.py)

Number = Annotated[int, Field(ge=0)]
Id = Annotated[str, StringConstraints(max_length=300)]
Text = Annotated[str, StringConstraints(max_length=500)]


class Results(Frozen):
    """What became of a project's tests."""

    counts: Counts
    ids: list[str] = Field(default_factory=list)  # of those that passed or failed, if known
    failures: list[tuple[str, str]] = Field(default_factory=list)

    def in_words(self) -> str:
        """The names and messages of failed tests; never a line of their source."""
        return "\n".join(f"{name}: {message}" for name, message in self.failures)


class Report(Frozen):
    """What an observer writes (sandbox/observer.py)."""

    passed: Number
    failed: Number
    skipped: Number
    xfailed: Number
    deselected: Number
    ids: Annotated[list[Id], Field(max_length=MOST_IDS)]
    failures: Annotated[list[tuple[Id, Text]], Field(max_length=MOST_FAILURES)]


def signed(content: bytes, key: str) -> Results | None:
    """Read an observer's report; None if it is not signed with the key that it was given."""
    signature, _, body = content.partition(b"\n")
    expected = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, expected.encode()):
        return None
    try:
        report = Report.model_validate_json(body)
    except ValidationError:
        return None
    counts = Counts(
        ran=report.passed + report.failed,
        failed=report.failed,
        skipped=report.skipped,
        xfailed=report.xfailed,
        deselected=report.deselected,
    )
    return Results(counts=counts, ids=report.ids, failures=report.failures)


def own(report: bytes, output: str) -> Results | None:
    """Read what a command of the sender's, or any npm script, says of its tests, if it does."""
    return junit(report) or tap(output)


def junit(report: bytes) -> Results | None:
    """Read a JUnit report: its test cases, for what suites say of themselves differs by tool."""
    try:
        cases = list(fromstring(report).iter("testcase"))
    except (ParseError, DefusedXmlException, ValueError):
        return None
    ran = [case for case in cases if case.find("skipped") is None]
    failed = [(name_of(case), problem) for case in ran for problem in problems(case)[:1]]
    return Results(
        counts=Counts(ran=len(ran), failed=len(failed), skipped=len(cases) - len(ran)),
        failures=[
            (name, (problem.get("message") or "failed")[:500])
            for name, problem in failed[:MOST_FAILURES]
        ],
    )


def name_of(case: Element) -> str:
    """A test case's name, with its class or file."""
    return ".".join(filter(None, (case.get("classname"), case.get("name"))))[:300]


def problems(case: Element) -> list[Element]:
    """What went wrong with a test case."""
    return [*case.findall("failure"), *case.findall("error")]


def tap(output: str) -> Results | None:
    """Read TAP: the sums that node's test runner and tape close with, or else line by line."""
    sums = re.findall(r"^(?:#|\u2139) (tests|fail|skipped|todo) +(\d+)$", output, re.MULTILINE)
    if not any(name == "tests" for name, _ in sums):
        return tap_lines(output)
    all_, failed, skipped, todo = (
        sum(int(count) for name, count in sums if name == wanted)
        for wanted in ("tests", "fail", "skipped", "todo")
    )
    ran = max(all_ - skipped - todo, 0)
    return Results(counts=Counts(ran=ran, failed=failed, skipped=skipped, xfailed=todo))


def tap_lines(output: str) -> Results | None:
    """Count the tests of TAP that are no one's subtests; one that was planned must be there."""
    plans = re.findall(r"^1\.\.(\d{1,9})\b", output, re.MULTILINE)
    if not plans:
        return None  # no plan: no TAP
    lines = TAP_LINE.findall(output)
    ran = [(bad, name) for bad, name, directive in lines if not directive]
    failures = [(name.strip(" -")[:300] or "a test", "not ok") for bad, name in ran if bad]
    kinds = [directive.lower() for *_, directive in lines if directive]
    planned = sum(map(int, plans))
    lost = 0 if LEFT_OUT.search(output) else max(planned - len(lines), 0)
    if lost:
        failures.insert(0, ("the plan", f"of {planned} tests that were planned {lost} did not run"))
    return Results(
        counts=Counts(
            ran=len(ran),
            failed=sum(bool(bad) for bad, _ in ran) + lost,
            skipped=kinds.count("skip"),
            xfailed=kinds.count("todo"),
        ),
        failures=failures[:MOST_FAILURES],
    )
