"""Rules that compare: what became of the tests since the project was last in order."""

import re
from collections.abc import Iterator

from autocoder.tamper.evidence import Evidence, Found, Snapshot
from autocoder.tamper.python_tests import Test
from autocoder.tamper.selection import settings

# Leaves out tests by name or place: no honest project begins with it while such tests are there.
LEAVES_OUT = re.compile(
    r"(?:^|[\s\"'=])(?:-k|--deselect|--ignore|--ignore-glob|--collect-only|--co|--lf|--last-failed"
    r"|--test-skip-pattern|--test-name-pattern|--testNamePattern|--testPathIgnorePatterns"
    r"|--grep|--invert)(?=[\s=\"']|$)"
)
ALWAYS_LEAVE_OUT = {"collect_ignore", "collect_ignore_glob", "testPathIgnorePatterns"}


def deleted(evidence: Evidence) -> Iterator[Found]:
    """Files of tests that are gone, unless their tests stand elsewhere or as many are executed."""
    if evidence.before is None or not evidence.fewer:
        return
    there = {test.name for test in evidence.now.tests}
    for path, tests in by_file(evidence.before).items():
        gone = [test.name for test in tests if test.name not in there]
        if path not in evidence.now.paths and gone:
            yield path, f"the file is gone, and with it {in_short(gone)}"


def emptied(evidence: Evidence) -> Iterator[Found]:
    """Tests that could fail and no longer can, under their own name or replaced by others."""
    if evidence.before is None:
        return
    before = {test.name: test for test in evidence.before.tests}
    same = False
    for test in evidence.now.tests:
        was = before.get(test.name)
        if was and was.checks and not test.checks:
            same = True
            yield test.path, f"{test.name} checked something and now checks nothing"
    checking, bare = count(evidence.now)
    checking_before, bare_before = count(evidence.before)
    if not same and bare > bare_before and checking < checking_before:
        what = (
            f"{bare - bare_before} new tests check nothing, {checking_before - checking} that did"
        )
        yield "", f"{what} are gone"


def skipped(evidence: Evidence) -> Iterator[Found]:
    """Tests that are newly skipped, expected to fail, or left out because others run alone."""
    if evidence.before is not None and evidence.now.skips > evidence.before.skips:
        more = evidence.now.skips - evidence.before.skips
        where = newly_marked(evidence.before, evidence.now)
        yield where, f"{more} more places skip a test, expect it to fail, or run another one alone"
    elif evidence.counts and evidence.fewer:
        more = evidence.counts.skipped - evidence.skipped_before
        if more > 0:
            yield "", f"{more} more tests were skipped when they were run"


def newly_marked(before: Snapshot, now: Snapshot) -> str:
    """Name a file with a test that is newly marked."""
    marked = {test.name for test in before.tests if test.skipped}
    return next((t.path for t in now.tests if t.skipped and t.name not in marked), "")


def deselected(evidence: Evidence) -> Iterator[Found]:
    """Settings that leave tests out: new ones, or ones that leave out what stands in the files."""
    old = settings(evidence.before) if evidence.before else set()
    for path, name, value in sorted(settings(evidence.now) - old):
        plain = name in ALWAYS_LEAVE_OUT or LEAVES_OUT.search(value)
        if evidence.before and (evidence.fewer or evidence.left_over):
            yield path, f"{name} now says which tests run: {value[:100]}"
        elif plain and evidence.left_over:
            yield path, f"{name} leaves tests out: {value[:100]}"


def fewer(evidence: Evidence) -> Iterator[Found]:
    """Fewer tests executed than in an earlier iteration; a run that failed may have ended early."""
    test = evidence.report.test
    if test and test.status == "passed" and evidence.counts and evidence.fewer:
        yield "", f"{evidence.counts.ran} tests were executed; before it were {evidence.expected}"


def by_file(files: Snapshot) -> dict[str, list[Test]]:
    """The tests of each file."""
    found: dict[str, list[Test]] = {}
    for test in files.tests:
        found.setdefault(test.path, []).append(test)
    return found


def count(files: Snapshot) -> tuple[int, int]:
    """How many tests check something, and how many nothing."""
    checking = sum(test.checks > 0 for test in files.tests)
    return checking, len(files.tests) - checking


def in_short(names: list[str]) -> str:
    """Name a few."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest
