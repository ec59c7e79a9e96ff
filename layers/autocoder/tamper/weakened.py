"""Rules that compare: what became of the tests since the project was last in order."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from autocoder.tamper.case import Case, Found, Snapshot
from autocoder.tamper.python_tests import Test
from autocoder.tamper.selection import settings

# Leaves out tests by name or place: no honest project begins with it while such tests are there.
LEAVES_OUT = re.compile(
    r"(?:^|[\s\"'=])(?:-k|--deselect|--ignore|--ignore-glob|--collect-only|--co|--lf|--last-failed"
    r"|--test-skip-pattern|--test-name-pattern|--testNamePattern|--testPathIgnorePatterns"
    r"|--grep|--invert)(?=[\s=\"']|$)"
)
ALWAYS_LEAVE_OUT = {
    "collect_ignore", "collect_ignore_glob", "testPathIgnorePatterns", "python_files",
    "python_classes", "python_functions", "autotests", "test",
}  # fmt: skip


def deleted(case: Case) -> Iterator[Found]:
    """Files of tests that are gone, unless their tests stand elsewhere or as many are executed."""
    if case.before is None:
        return
    yield from exchanged(case.before, case.now)
    if not case.fewer:
        return
    there = {test.name for test in case.now.tests}
    for path, tests in by_file(case.before).items():
        gone = [test.name for test in tests if test.name not in there]
        if path not in case.now.paths and gone:
            yield path, f"the file is gone, and with it {in_short(gone)}"


def exchanged(before: Snapshot, now: Snapshot) -> Iterator[Found]:
    """Tests that are gone while a copy of one that stays fills up the count; a rename is none."""
    here = {test.name for test in now.tests}
    there = {test.name for test in before.tests}
    gone = [test for test in before.tests if test.name not in here]
    stayed = {test.body: test.name for test in now.tests if test.name in there and test.body}
    moved = {test.body for test in gone}
    names = in_short([test.name for test in gone])
    for test in now.tests if gone else ():
        if test.name not in there and test.body in stayed and test.body not in moved:
            yield test.path, f"{test.name} only repeats {stayed[test.body]}, and {names} is gone"


def emptied(case: Case) -> Iterator[Found]:
    """Tests that could fail and no longer can, under their own name or replaced by others."""
    if case.before is None:
        return
    before = {test.name: test for test in case.before.tests}
    same = False
    for test in case.now.tests:
        was = before.get(test.name)
        if was and was.checks and not test.checks:
            same = True
            yield test.path, f"{test.name} checked something and now checks nothing"
    checking, bare = count(case.now)
    checking_before, bare_before = count(case.before)
    if not same and bare > bare_before and checking < checking_before:
        what = (
            f"{bare - bare_before} new tests check nothing, {checking_before - checking} that did"
        )
        yield "", f"{what} are gone"


def skipped(case: Case) -> Iterator[Found]:
    """Tests that are newly skipped, expected to fail, or left out because others run alone."""
    more = case.now.skips - case.before.skips - new_and_marked(case) if case.before else 0
    if case.before is not None and more > 0:
        where = newly_marked(case.before, case.now)
        yield where, f"{more} more places skip a test, expect it to fail, or run another one alone"
    elif case.counts and case.fewer:
        more = case.counts.skipped - case.skipped_before
        if more > 0:
            yield "", f"{more} more tests were skipped when they were run"


def new_and_marked(case: Case) -> int:
    """How many tests came with their skip, where every other one is still there and runs."""
    there = {test.name for test in case.before.tests} if case.before else set()
    if case.fewer or there - {test.name for test in case.now.tests}:
        return 0
    return sum(test.skipped for test in case.now.tests if test.name not in there)


def newly_marked(before: Snapshot, now: Snapshot) -> str:
    """Name a file with a test that is newly marked."""
    marked = {test.name for test in before.tests if test.skipped}
    return next((t.path for t in now.tests if t.skipped and t.name not in marked), "")


def deselected(case: Case) -> Iterator[Found]:
    """Settings that leave tests out: new ones, or ones that leave out what stands in the files."""
    old = settings(case.before) if case.before else set()
    for path, name, value in sorted(settings(case.now) - old):
        plain = (
            name in ALWAYS_LEAVE_OUT
            or LEAVES_OUT.search(value)
            or (name == "testpaths" and stand_outside(case.now, path, value))
        )
        if case.before and (case.fewer or case.left_over):
            yield path, f"{name} now says which tests run: {value[:100]}"
        elif plain and case.left_over:
            yield path, f"{name} leaves tests out: {value[:100]}"


def stand_outside(files: Snapshot, path: str, value: str) -> bool:
    """Say whether Python's tests stand in other places than those that are looked at."""
    root = PurePosixPath(path).parent
    places = {root / place.rstrip("*") for place in value.split()}
    tests = {PurePosixPath(test.path) for test in files.tests if test.path.endswith(".py")}
    return any(places.isdisjoint([test, *test.parents]) for test in tests)


def fewer(case: Case) -> Iterator[Found]:
    """Fewer tests executed than in an earlier iteration; a run that failed may have ended early."""
    test = case.report.test
    if test and test.status == "passed" and case.counts and case.fewer:
        yield "", f"{case.counts.ran} tests were executed; before it were {case.expected}"


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
