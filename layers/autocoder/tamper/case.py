"""What tamper rules go by: files from checkpoints in S3, and what the service's commands saw."""

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from autocoder.archive import ArchiveFile
from autocoder.checks import CheckReport, Counts
from autocoder.tamper.python_tests import Test
from autocoder.tamper.suites import is_test_file, read_suite

Found = tuple[str, str]  # a file, or "", and what is wrong

FILE_BYTES = 512 * 1024  # a syntax tree takes a few hundred times its source
ALL_BYTES = 32 * 1024 * 1024

# Files that say how tools behave.
SETTINGS = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "setup.cfg", "setup.py",
    "tox.ini", "requirements*.txt", "package.json", "jest.config.*", "jest.setup.*", "vitest.*",
    "vite.config.*", ".mocharc*", ".npmrc", ".yarnrc*", "pip.conf", "pip.ini", "Cargo.toml",
    "go.env", "Makefile", "makefile", "GNUmakefile", "*.mk", "*.sh", "*.bash",
)  # fmt: skip
CARGO = re.compile(r"(^|/)\.cargo/config(\.toml)?$")
HOOK = re.compile(
    rb"def pytest_|pytest_plugins|specname|\bpytest_(?:runtest|coll|session|report|cmd)\w{0,40}\s*="
)
ENDS = re.compile(
    rb"\bprocess\s*(?:\.\s*(?:exit|reallyExit|abort|kill)|\[)|=\s*(?:globalThis\.)?process\b"
    rb"|['\"`](?:node:)?process['\"`]"
)

# The shapes of keys. Where a file holds one, its place is told, never the key.
SECRETS = {
    "an Anthropic key": re.compile(rb"sk-ant-[a-z]{3}\d\d-[A-Za-z0-9_-]{40,}"),
    "an E2B key": re.compile(rb"\be2b_[0-9a-f]{40}\b"),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)(?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}\b"),
    "a GitHub token": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{60,})\b"),
    "a private key": re.compile(
        rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s*(?:\\n)?[A-Za-z0-9+/=\s\\]{64,}"
    ),
}
# The service's own folder, and the variable that names the file for a runner's report.
OURS = re.compile(
    rb"\.autocoder\b|environ\W{1,12}RESULTS\b|getenv\W{1,4}RESULTS\b|process\.env\W{1,4}RESULTS\b"
    rb"|Getenv\W{1,4}RESULTS\b|env::var\w{0,9}\W{1,4}RESULTS\b"
)
IN_SHELL = re.compile(rb"\$[{(]?RESULTS\b")
OWN = re.compile(rb"(?:^|[\s;])RESULTS\s*[:?]?=(?![^\n]{0,200}\$[{(]?RESULTS)", re.MULTILINE)
SHELL = ("package.json", "Makefile", "makefile", "GNUmakefile", "*.mk", "*.sh", "*.bash")
# Where files may be broken, or keys lie about, because tests are about just that.
FIXTURES = {"data", "fixtures", "testdata", "test_data", "samples", "__fixtures__"}
TESTING = {"test", "tests", "__tests__", "spec", *FIXTURES}


class Snapshot:
    """A project's files: all names, and the texts of tests and of what says how tools behave."""

    def __init__(self, files: Iterable[tuple[ArchiveFile, bytes]] = ()) -> None:
        """Read the files of an archive once, and keep little of them."""
        self.executables: set[str] = set()
        self.paths: set[str] = set()
        self.texts: dict[str, str] = {}
        self.tests: list[Test] = []
        self.skips = 0  # how often a file says that a test is not to run, or not to count
        self.unread: list[str] = []
        self.secrets: list[tuple[str, str]] = []
        self.ours: list[str] = []
        room = ALL_BYTES
        for file, data in files:
            self.paths.add(file.path)
            if file.executable:
                self.executables.add(file.path)
            self.secrets += [(file.path, kind) for kind in secrets_in(data, file.path)]
            if names_ours(file.path, data):
                self.ours.append(file.path)
            if not matters(file.path, data):
                continue
            if len(data) > min(FILE_BYTES, room):
                self.unread.append(file.path)
                continue
            room -= len(data)
            self.texts[file.path] = text = data.decode(errors="replace")
            suite = read_suite(file.path, text)
            if suite is None:
                if not is_fixture(file.path):
                    self.unread.append(file.path)
                continue
            self.tests += suite.tests
            self.skips += suite.skips

    def named(self, *patterns: str) -> Iterator[tuple[str, str]]:
        """The texts of files with such names, in any folder."""
        for path, text in sorted(self.texts.items()):
            if any(fnmatch.fnmatchcase(PurePosixPath(path).name, p) for p in patterns):
                yield path, text

    @cached_property
    def packages(self) -> dict[str, dict[str, Any]]:
        """Every package.json that is valid."""
        found = {}
        for path, text in self.named("package.json"):
            try:
                content = json.loads(text)
                json.dumps(content)  # as deep as rules may go
            except (ValueError, RecursionError):
                continue  # npm will say so
            if isinstance(content, dict):
                found[path] = content
        return found


def matters(path: str, data: bytes) -> bool:
    """Say whether a rule may want the text of a file."""
    name = PurePosixPath(path).name
    if is_test_file(path) or CARGO.search(path):
        return True
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in SETTINGS):
        return True
    if name.endswith(".rs"):
        return b"#[" in data
    if name.endswith(".go"):
        return b"func init()" in data and b"Exit(" in data
    if name.endswith((".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")):
        return bool(ENDS.search(data))  # a setup file may have any name
    return name.endswith(".py") and bool(HOOK.search(data))


def secrets_in(data: bytes, path: str = "") -> list[str]:
    """Name the kinds of keys in a text; tests of TLS have a private key of their own."""
    found = [kind for kind, shape in SECRETS.items() if shape.search(data)]
    own = TESTING.intersection(PurePosixPath(path).parts[:-1])
    return [kind for kind in found if not (own and kind == "a private key")]


def names_ours(path: str, data: bytes) -> bool:
    """Say whether a file names what is the service's; a shell may have a RESULTS of its own."""
    if OURS.search(data):
        return True
    if not any(fnmatch.fnmatchcase(PurePosixPath(path).name, pattern) for pattern in SHELL):
        return False
    return bool(IN_SHELL.search(data)) and not OWN.search(data)


def is_fixture(path: str) -> bool:
    """Say whether a file is what tests are about; a conftest.py is run wherever it lies."""
    place = PurePosixPath(path)
    return place.name != "conftest.py" and bool(FIXTURES.intersection(place.parts[:-1]))


def toml(text: str) -> dict[str, Any]:
    """Read TOML; what is none is empty (its tools will say so)."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def table(content: dict[str, Any], name: str) -> dict[str, Any]:
    """A table within another; empty where it is none."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def cargo_targets(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `cargo test` tests, as a Cargo.toml names it; benchmarks are none of it."""
    for kind in ("lib", "bin", "test"):
        found = content.get(kind)
        for target in found if isinstance(found, list) else [found]:
            if isinstance(target, dict):
                yield kind, target


class Case:
    """An iteration, and what it is compared with."""

    def __init__(
        self,
        report: CheckReport,
        now: Snapshot,
        *,
        before: Snapshot | None = None,
        ran_before: int | None = None,
        skipped_before: int = 0,
        commands: dict[str, str] | None = None,
        checks_before: Iterable[str] = (),
    ) -> None:
        """`before` is the project as it was when it was last in order; None: there was none.

        `ran_before` is the most tests that any earlier iteration executed, `commands` are the
        sender's own checks, which are trusted, but not what they call; `checks_before` are the
        names of those that were planned while the project was in order.
        """
        self.report = report
        self.now = now
        self.before = before
        self.skipped_before = skipped_before
        self.commands = commands or {}
        self.ran_before = ran_before
        self.checks_before = set(checks_before)

    @property
    def counts(self) -> Counts | None:
        """How many tests ran, where that is known."""
        return self.report.test.tests if self.report.test else None

    @property
    def expected(self) -> int:
        """How many tests should be executed: what ever were, or stood there before some went."""
        standing = 0
        if self.before and len(self.now.tests) < len(self.before.tests):
            standing = sum(not test.skipped for test in self.before.tests)
        return max(self.ran_before or 0, standing)

    @property
    def fewer(self) -> bool:
        """Fewer tests were executed than before, or nobody knows how many."""
        return self.counts is None or self.counts.ran < self.expected

    @property
    def left_over(self) -> bool:
        """The runner left tests out, or saw fewer than stand in the files."""
        if self.counts is None:
            return False
        seen = self.counts.ran + self.counts.skipped + self.counts.xfailed
        return self.counts.deselected > 0 or len(self.now.tests) > seen
