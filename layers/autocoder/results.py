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

Number = Annotated[int, Field(ge=0)]
Id = Annotated[str, StringConstraints(max_length=300)]
Text = Annotated[str, StringConstraints(max_length=500)]


class Results(Frozen):
    """What became of a project's tests."""

    counts: Counts
    ids: list[str] = Field(default_factory=list)
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
        ids=sorted(map(name_of, ran))[:MOST_IDS],
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
    """Read the closing lines of TAP, as node's test runner and others write them."""
    found = dict(
        re.findall(r"^(?:#|\u2139) (tests|fail|skipped|todo) +(\d+)$", output, re.MULTILINE)
    )
    if "tests" not in found:
        return None
    left = {name: int(found.get(name, 0)) for name in ("fail", "skipped", "todo")}
    ran = max(int(found["tests"]) - left["skipped"] - left["todo"], 0)
    return Results(
        counts=Counts(ran=ran, failed=left["fail"], skipped=left["skipped"], xfailed=left["todo"])
    )
