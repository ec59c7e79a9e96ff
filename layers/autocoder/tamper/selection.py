"""What says which tests run: the settings of runners, and the scripts that call them."""

import configparser
import re
from collections.abc import Iterator
from typing import Any

from autocoder.tamper.case import Snapshot, cargo_targets, table, toml

Setting = tuple[str, str, str]  # file, name, value

PYTEST = ("addopts", "testpaths", "python_files", "python_classes", "python_functions",
          "norecursedirs")  # fmt: skip
RUNNERS = ("jest", "vitest", "mocha", "ava")
# Words in the configurations of runners for JavaScript that say which tests run.
SELECTING = re.compile(
    r"\b(testPathIgnorePatterns|modulePathIgnorePatterns|testMatch|testRegex|testNamePattern|roots"
    r"|include|exclude|ignore|spec|grep|fgrep|invert)\b[\"']?\s*:\s*(\[[^\]]{0,2000}\]|[^\n,]{1,2000})"
)
COLLECT_IGNORE = re.compile(
    r"^[ \t]*(collect_ignore(?:_glob)?)\s*(?:\+?=|\.)\s*(.+)$", re.MULTILINE
)
BUILD_TAG = re.compile(r"^//\s*(go:build|\+build)\s+(.+)$", re.MULTILINE)


def settings(files: Snapshot) -> set[Setting]:
    """All that says which tests run."""
    return {
        *python_settings(files),
        *script_settings(files),
        *cargo_settings(files),
        *(
            (path, match[1], match[2].strip())
            for path, text in files.named("jest.config.*", "vitest.*", "vite.config.*", ".mocharc*")
            for match in SELECTING.finditer(text)
        ),
        *(
            (path, match[1], match[2].strip())
            for path, text in files.named("*_test.go")
            for match in BUILD_TAG.finditer(text)
        ),
    }


def python_settings(files: Snapshot) -> Iterator[Setting]:
    """What pytest reads."""
    for path, text in files.named("conftest.py"):
        for match in COLLECT_IGNORE.finditer(text):
            yield path, match[1], match[2].strip()
    for path, text in files.named("pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"):
        yield from ((path, name, value) for name, value in ini(text) if name in PYTEST)
    for path, text in files.named("pyproject.toml"):
        options = table(table(table(toml(text), "tool"), "pytest"), "ini_options")
        yield from ((path, name, as_text(options[name])) for name in PYTEST if name in options)


def ini(text: str) -> list[tuple[str, str]]:
    """The settings for pytest in a file of that form; pytest itself refuses what is none."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    sections = (name for name in ("pytest", "tool:pytest") if parser.has_section(name))
    return [setting for name in sections for setting in parser.items(name)]


def script_settings(files: Snapshot) -> Iterator[Setting]:
    """The test script of a package.json, and what it says of its runner."""
    for path, package in files.packages.items():
        script = table(package, "scripts").get("test")
        if isinstance(script, str):
            yield path, "scripts.test", script
        for runner in RUNNERS:
            for name, value in table(package, runner).items():
                if SELECTING.search(f"{name}: x"):
                    yield path, name, as_text(value)


def cargo_settings(files: Snapshot) -> Iterator[Setting]:
    """What Cargo is told not to test."""
    for path, text in files.named("Cargo.toml"):
        content = toml(text)
        if table(content, "package").get("autotests") is False:
            yield path, "autotests", "false"
        for kind, target in cargo_targets(content):
            if target.get("test") is False:
                yield path, "test", f"false for {target.get('name', kind)}"


def as_text(value: Any) -> str:
    """A setting as it would stand on a command line."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
