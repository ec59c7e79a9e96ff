"""Reading test counts from what a runner wrote. One function a format; the input is untrusted."""

import re
from collections.abc import Callable
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from autocoder.checks import Counts


def junit(report: bytes, output: str) -> Counts | None:
    """Read pytest's JUnit XML."""
    try:
        root = fromstring(report)
        suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
        total, failed, skipped = (
            sum(int(suite.get(name, "0")) for suite in suites for name in names)
            for names in (("tests",), ("failures", "errors"), ("skipped",))
        )
    except (ParseError, DefusedXmlException, ValueError):
        return None
    return Counts(ran=max(total - skipped, 0), failed=failed, skipped=skipped)


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
