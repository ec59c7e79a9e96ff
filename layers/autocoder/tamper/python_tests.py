"""Reading Python's tests from their syntax tree. Hostile source: it is parsed, never run."""

import ast
import warnings
from collections.abc import Iterator
from typing import NamedTuple

SKIPPING = {
    "skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure", "skipTest",
    "importorskip", "SkipTest",
}  # fmt: skip
CHECKING = ("assert", "fail", "raises", "warns", "check", "verify", "expect", "match")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Test(NamedTuple):
    """A test as it stands in a file."""

    path: str
    name: str
    checks: int  # so many places where it can fail
    skipped: bool


class Suite(NamedTuple):
    """The tests of a file, and how often it says that one is not to run or not to count."""

    tests: list[Test]
    skips: int


def parsed(text: str) -> ast.Module | None:
    """Parse a source; None if that can't be done."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no concern of ours
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python(path: str, text: str) -> Suite | None:
    """Read a file of tests for pytest or unittest; None if it can't be parsed, or is too deep."""
    tree = parsed(text)
    try:
        return suite_of(path, tree) if tree else None
    except RecursionError:
        return None


def suite_of(path: str, tree: ast.Module) -> Suite:
    """Collect the tests of a module."""
    helpers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, Function) and not node.name.startswith("test") and own_checks(node)
    }
    tests = [
        Test(path, name, checks_of(function, helpers), skipped)
        for name, function, skipped in functions(tree.body)
        if function.name.startswith("test")
    ]
    return Suite(tests, sum(skips(node) for node in ast.walk(tree)))


def functions(
    body: list[ast.stmt], within: str = "", *, skipped: bool = False
) -> Iterator[tuple[str, Function, bool]]:
    """The functions of a module and of its classes, each with its name and whether it is marked."""
    for node in body:
        if isinstance(node, Function):
            yield within + node.name, node, skipped or marked(node)
        elif isinstance(node, ast.ClassDef):
            inner = f"{within}{node.name}."
            yield from functions(node.body, inner, skipped=skipped or marked(node))


def marked(node: Function | ast.ClassDef) -> bool:
    """Say whether a decorator keeps a test from running or from counting."""
    return any(skips(part) for decorator in node.decorator_list for part in ast.walk(decorator))


def skips(node: ast.AST) -> int:
    """1 for a name that skips; `skip` is one of pytest's or unittest's, not that of any object."""
    if isinstance(node, ast.Attribute) and node.attr in SKIPPING:
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        owner = node.value.id if isinstance(node.value, ast.Name) else owner
        return int(owner in ("pytest", "unittest", "mark", "self"))
    if isinstance(node, ast.ImportFrom) and node.module in ("pytest", "unittest"):
        return sum(alias.name in SKIPPING for alias in node.names)
    return int(isinstance(node, ast.Name) and node.id in SKIPPING - {"skip"})


def checks_of(function: Function, helpers: set[str]) -> int:
    """Count where a test can fail: of its own, and in functions of the same file that check."""
    called = sum(
        isinstance(node, ast.Call) and called_name(node) in helpers for node in ast.walk(function)
    )
    return own_checks(function) + called


def own_checks(function: Function) -> int:
    """Count a function's assertions, without those that can't fail."""
    count = 0
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            count += not always_true(node.test)
        elif isinstance(node, ast.Call):
            name = called_name(node).lower()
            count += name.startswith(CHECKING) and not (node.args and vacuous(node))
        elif isinstance(node, ast.Raise):
            count += not skips_by(node)
    return count


def called_name(call: ast.Call) -> str:
    """The last part of what is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def skips_by(node: ast.Raise) -> bool:
    """Say whether a raise skips the test instead of failing it."""
    return node.exc is not None and any(skips(part) for part in ast.walk(node.exc))


def always_true(test: ast.expr) -> bool:
    """Say whether a condition holds whatever the code does."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple):
        return bool(test.elts)  # assert (condition, "message")
    if isinstance(test, ast.BoolOp):
        true = [always_true(value) for value in test.values]
        return any(true) if isinstance(test.op, ast.Or) else all(true)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.Is | ast.GtE):
        return ast.dump(test.left) == ast.dump(test.comparators[0])
    return False


def vacuous(call: ast.Call) -> bool:
    """Say whether assertTrue(True), assertEqual(1, 1) and the like can't fail."""
    name = called_name(call)
    if name == "assertTrue":
        return always_true(call.args[0])
    if name in ("assertEqual", "assertIs") and len(call.args) > 1:
        return ast.dump(call.args[0]) == ast.dump(call.args[1])
    return False
