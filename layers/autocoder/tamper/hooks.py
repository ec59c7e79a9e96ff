"""The rule about code that runs within a test runner: it may help tests, not judge them."""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from autocoder.tamper.case import Case, Found, Snapshot, table, toml
from autocoder.tamper.python_tests import called_name, parsed
from autocoder.tamper.suites import is_test_file

# Of pytest's hooks, those that replace what a test does, or which tests there are.
REPLACING = {
    "pytest_pyfunc_call", "pytest_runtest_protocol", "pytest_runtest_call", "pytest_runtestloop",
    "pytest_ignore_collect", "pytest_cmdline_main", "pytest_report_to_serializable",
}  # fmt: skip
OUTCOMES = {
    "outcome", "exitstatus", "wasxfail", "testsfailed", "testscollected", "_result", "failed",
    "passed", "longrepr",
}  # fmt: skip
SHRINKING = {"clear", "remove", "pop", "force_result", "force_exception"}
ENDING = {"_exit", "abort", "kill", "killpg", "execv", "execve", "execvp", "execl"}
SETTLED = {"exit", "quit", "SystemExit"}

ENDS_JAVASCRIPT = re.compile(
    r"\bprocess\s*\.\s*(?:exit\s*\(\s*0?\s*\)|reallyExit|abort\s*\(|exitCode\s*=\s*0"
    r"|(?:on|once)\s*\(\s*['\"`](?:exit|beforeExit)|kill\s*\(\s*process\.pid)"
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
EXITS_0 = re.compile(r"os\.Exit\(\s*0\s*\)")


def hooks(case: Case) -> Iterator[Found]:
    """Code within the runner that ends it, or changes what it found."""
    for path, text in sorted(case.now.texts.items()):
        if path.endswith(".py") and PurePosixPath(path).name != "setup.py":
            yield from ((path, what) for what in python_hooks(path, text))
    for path, text in case.now.named("*_test.go"):
        for main in TEST_MAIN.findall(text):
            if ".Run()" not in main or EXITS_0.search(main):
                yield path, "TestMain does not exit with what m.Run() says"
    for path in sorted(javascript_support(case.now)):
        if found := ENDS_JAVASCRIPT.search(case.now.texts[path]):
            yield path, f"`{found[0]}` ends the run, or changes its exit code"
    for path, text in case.now.named("pyproject.toml"):
        if "pytest11" in table(table(toml(text), "project"), "entry-points"):
            yield path, "it installs a plugin into pytest"


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


def python_hooks(path: str, text: str) -> Iterator[str]:
    """What a file of tests, a conftest.py or a plugin does to pytest."""
    tree = parsed(text)
    if tree is None:
        return  # a rule of its own
    conftest = not is_test_file(path) or path.endswith("conftest.py")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("pytest_"):
            yield from in_hook(node)
        elif isinstance(node, ast.Call):
            owner = getattr(getattr(node.func, "value", None), "id", "")
            name = called_name(node)
            if (name in ENDING and owner == "os") or (name == "exit" and owner == "pytest"):
                yield f"{owner}.{name}() ends the run"
            elif conftest and name in SETTLED and owner in ("sys", ""):
                yield f"{name}() ends the run"
            elif conftest and name == "register" and owner == "atexit":
                yield "atexit.register() acts when the run is over"
        elif isinstance(node, ast.Assign | ast.AugAssign):
            yield from patched(node)


def in_hook(hook: ast.FunctionDef) -> Iterator[str]:
    """What a hook of pytest's does that changes results."""
    if hook.name in REPLACING:
        yield f"{hook.name} takes over what pytest does"
        return
    for node in ast.walk(hook):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr in OUTCOMES:
                    yield f"{hook.name} sets {target.attr}"
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                    yield f"{hook.name} replaces what was collected"
        elif isinstance(node, ast.Delete):
            yield f"{hook.name} deletes what was collected"
        elif isinstance(node, ast.Call) and called_name(node) in SHRINKING:
            yield f"{hook.name} calls {called_name(node)}()"


def patched(node: ast.Assign | ast.AugAssign) -> Iterator[str]:
    """Assignments to the insides of the runner."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        root: ast.expr = target
        while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        inner = isinstance(target, ast.Attribute) and isinstance(root, ast.Name)
        if inner and isinstance(root, ast.Name) and root.id in ("pytest", "_pytest", "unittest"):
            yield f"it changes {root.id} itself"
