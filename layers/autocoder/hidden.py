"""The sender's hidden tests: which stand in their files, and whether a runner executed each.

A project's settings can keep a runner from tests that it is told to run (pytest's python_functions,
a TestMain that sets -run), and what remains passes. So each test that stands in the sender's files
must be among those that an observer of ours saw. To add a language: how its ids are made.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from autocoder.tamper.python_tests import Suite, Test
from autocoder.tamper.suites import read_suite

GO_TEST = re.compile(r"(?:Test|Fuzz|Example)(?![a-z])(?!(?<=Test)Main$)")
VARYING = re.compile(r"[%$\\]")  # from here on a name of JavaScript's is made when it runs


def names(files: Mapping[str, str]) -> list[str]:
    """What the tests of these files are called."""
    return sorted({test.name for suite in suites(files) for test in suite.tests})


def missing(files: Mapping[str, str], executed: list[str]) -> list[str]:
    """The tests that stand in these files, are not skipped there, and were not executed.

    A file that skips by more than marks on its tests does so as it runs: nobody can tell before.
    """
    return [
        f"{test.path}: {test.name}"
        for suite in suites(files)
        if suite.skips <= sum(test.skipped for test in suite.tests)
        for test in suite.tests
        if must_run(test) and not any(is_of(test, one) for one in executed)
    ]


def suites(files: Mapping[str, str]) -> Iterator[Suite]:
    """The tests in each file; what Go does not take for one is none."""
    for path, text in files.items():
        if suite := read_suite(path, text):
            tests = [t for t in suite.tests if not path.endswith(".go") or GO_TEST.match(t.name)]
            yield suite._replace(tests=tests)


def must_run(test: Test) -> bool:
    """Leave out what is skipped, an example without output, and a class that may be no test."""
    if test.path.endswith(".go") and test.name.startswith("Example") and not test.checks:
        return False
    *classes, _ = test.name.split(".") if test.path.endswith(".py") else [""]
    return not test.skipped and all(name.startswith("Test") for name in classes)


def is_of(test: Test, one: str) -> bool:
    """Say whether the id of a test that was executed (sandbox/observer.py) is this one's."""
    path = PurePosixPath(test.path)
    name = re.escape(test.name)
    if path.suffix == ".py":  # of any class: one may inherit its tests
        pattern = rf"{re.escape(test.path)}::(?:.+::)?{re.escape(test.name.rpartition('.')[2])}"
    elif path.suffix == ".go":
        folder = "" if path.parent == PurePosixPath() else re.escape(f"/{path.parent}")
        pattern = rf".*{folder}\.{name}"
    elif path.suffix == ".rs":  # cargo names a file from its package's folder
        pattern = rf"tests/{re.escape(path.name)}::(?:.+::)?{name}"
    else:  # what stands in the file is how a name begins, for it may be put together as it runs
        begin = re.escape(VARYING.split(test.name)[0].strip())
        pattern = rf"{re.escape(test.path)} > (?:.* > )?{begin}.*"
    return bool(re.fullmatch(pattern, one, re.DOTALL))
