"""The rule about code that runs within a test runner: it may help tests, not judge them."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from autocoder.tamper.case import Case, Found, Snapshot, table
from autocoder.tamper.python_hooks import python_hooks
from autocoder.tamper.suites import is_test_file

PLUGIN = re.compile(r"^[^#\n]*\bpytest11\b", re.MULTILINE)

ENDS_JAVASCRIPT = re.compile(
    r"\bprocess\s*(?:\.\s*|\[\s*['\"`])(?:exit['\"`\]]{0,2}\s*\(\s*0?\s*\)|reallyExit|abort\b"
    r"|exitCode['\"`\]]{0,2}\s*=\s*(?:0|undefined|null)|kill\s*\(\s*process\.p?pid)"
    r"|\{[^{}]{0,200}\b(?:exit|reallyExit|abort)\b[^{}]{0,200}\}\s*"
    r"(?:=\s*(?:require\s*\(\s*)?|from\s*)(?:['\"`](?:node:)?)?process\b"
    r"|\b(?:const|let|var)\s+\w{1,60}\s*=\s*(?:globalThis\s*\.\s*)?process\s*[;,\n]"
)
CALLED = re.compile(r"(?:--require|--import|--loader|-r|--globalSetup|--setupFiles)[ =](\S{1,500})")
SETUP = re.compile(
    r"\b(?:setupFiles|setupFilesAfterEnv|globalSetup|globalTeardown|require|reporters|runner"
    r"|testRunner|testEnvironment|environment)\b[\"']?\s*:\s*(\[[^\]]{0,2000}\]|[^\n,}]{1,2000})"
)
FILE_NAME = re.compile(r"[\w./-]+\.[cm]?[jt]sx?")
TEST_MAIN = re.compile(
    r"^func TestMain\([^\n]{0,2000}\}$|^func TestMain\(.{0,2000}?^\}", re.MULTILINE | re.DOTALL
)
INIT = re.compile(
    r"^func init\(\)[^\n]{0,2000}\}$|^func init\(\).{0,2000}?^\}", re.MULTILINE | re.DOTALL
)
EXITS_0 = re.compile(r"\b(?:os|syscall)\.Exit\(\s*0\s*\)")


def hooks(case: Case) -> Iterator[Found]:
    """Code within the runner that ends it, or changes what it found."""
    for path, text in sorted(case.now.texts.items()):
        if path.endswith(".py") and PurePosixPath(path).name != "setup.py":
            yield from ((path, what) for what in python_hooks(path, text))
    yield from go_hooks(case.now)
    for path in sorted(javascript_support(case.now)):
        if found := ENDS_JAVASCRIPT.search(case.now.texts[path]):
            yield path, f"`{found[0].strip()}` ends the run, or changes its exit code"
    for path, text in case.now.named("pyproject.toml", "setup.cfg", "setup.py"):
        if PLUGIN.search(text):
            yield path, "it installs a plugin into pytest"


def go_hooks(files: Snapshot) -> Iterator[Found]:
    """Functions that Go runs around the tests, or before them."""
    for path, text in files.named("*.go"):
        for main in TEST_MAIN.findall(text) if path.endswith("_test.go") else ():
            if ".Run()" not in main or EXITS_0.search(main):
                yield path, "TestMain does not exit with what m.Run() says"
        if any(EXITS_0.search(init) for init in INIT.findall(text)):
            yield path, "init() ends the run before any test"


def javascript_support(files: Snapshot) -> set[str]:
    """Tests, the configurations of their runners, and the files that those name."""
    config = {
        path
        for path, _ in files.named(
            "jest.config.*", "jest.setup.*", "vitest.*", "vite.config.*", ".mocharc*"
        )
    }
    tests = {p for p in files.texts if is_test_file(p) and not p.endswith((".py", ".go"))}
    naming = [match[1] for path in config for match in SETUP.finditer(files.texts[path])]
    for package in files.packages.values():
        naming += CALLED.findall(str(table(package, "scripts").get("test", "")))
        naming += SETUP.findall(str(table(package, "jest")).replace("'", '"'))
        naming += SETUP.findall(str(table(package, "mocha")).replace("'", '"'))
    named = {name for text in naming for name in FILE_NAME.findall(text)}
    return config | tests | {path for path in files.texts if any(path in n for n in named)}
