"""Reading test counts from what a runner wrote. One function a format; the input is untrusted."""

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from autocoder.checks import Counts


def junit(report: bytes, output: str) -> Counts | None:
    """Read a JUnit report: its test cases, for what suites say of themselves differs by tool."""
    cases = testcases(report)
    if cases is None:
        return None
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = sum(bool(problems(case)) for case in cases)
    return Counts(ran=len(cases) - skipped, failed=failed, skipped=skipped)


def testcases(report: bytes) -> list[Element] | None:
    """The test cases of a JUnit report; None if it is none."""
    try:
        return list(fromstring(report).iter("testcase"))
    except (ParseError, DefusedXmlException, ValueError):
        return None


def problems(case: Element) -> list[Element]:
    """What went wrong with a test case."""
    return [*case.findall("failure"), *case.findall("error")]


def failures(report: bytes) -> str:
    """The names and messages of failed tests in a JUnit report; never a line of their source."""
    lines = []
    for case in testcases(report) or []:
        for problem in problems(case):
            where = ".".join(filter(None, (case.get("classname"), case.get("name"))))
            lines.append(f"{where[:200]}: {(problem.get('message') or 'failed')[:500]}")
    return "\n".join(lines[:50])


def unittest(report: bytes, output: str) -> Counts | None:
    """Read the closing lines of Python's unittest."""
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    if not ran:
        return None
    end = re.findall(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", output, re.MULTILINE)
    numbers = dict(re.findall(r"(\w+)=(\d+)", end[-1] if end else ""))
    failed = int(numbers.get("failures", 0)) + int(numbers.get("errors", 0))
    skipped = int(numbers.get("skipped", 0))
    return Counts(ran=int(ran[-1]) - skipped, failed=failed, skipped=skipped)


def node(report: bytes, output: str) -> Counts | None:
    """Read the closing lines of node's test runner, TAP or spec."""
    found = dict(re.findall(r"^(?:#|\u2139) (tests|fail|skipped) (\d+)$", output, re.MULTILINE))
    if "tests" not in found:
        return None
    skipped = int(found.get("skipped", 0))
    return Counts(
        ran=int(found["tests"]) - skipped, failed=int(found.get("fail", 0)), skipped=skipped
    )


READERS: dict[str, Callable[[bytes, str], Counts | None]] = {
    "junit": junit,
    "unittest": unittest,
    "node": node,
}
