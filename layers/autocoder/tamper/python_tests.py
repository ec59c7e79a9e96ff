"""Reading Python's tests from their syntax tree. Hostile source: it is parsed, never run."""

import ast
import hashlib
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SKIPPING = {
    "skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure", "skipTest",
    "importorskip", "SkipTest",
}  # fmt: skip
CHECKING = re.compile(
    r"_*(?i:assert|fail|raises|warns|check|verify|expect|match)(?:es|s)?(?![a-z])"
)
BROAD = {"AssertionError", "Exception", "BaseException"}  # who catches these hides a failed assert
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Test(NamedTuple):
    """A test as it stands in a file."""

    path: str
    name: str
    checks: int  # so many places where it can fail
    skipped: bool
    body: str = ""  # stands for what it does, whatever it is called


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
    fixed = {name for node in tree.body for name in defined(node)}
    helpers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, Function)
        and not node.name.startswith("test")
        and own_checks(node, fixed)
    }
    tests = [
        Test(path, name, checks_of(function, helpers, fixed), skipped, body_of(function))
        for name, function, skipped in functions(tree.body)
        if function.name.startswith("test")
    ]
    return Suite(tests, sum(skips(node) for node in ast.walk(tree)))


def defined(node: ast.stmt) -> list[str]:
    """The names of what a module imports or defines: as a condition, these always hold."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [one.asname or one.name.partition(".")[0] for one in node.names]
    return [node.name] if isinstance(node, Function | ast.ClassDef) else []


def body_of(function: Function) -> str:
    """What a test does, without its name and its words."""
    parts = [*function.decorator_list, function.args, *function.body]
    return short("".join(ast.dump(part) for part in parts if not is_text(part)))


def short(text: str) -> str:
    """What stands for a text, and takes no room."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def is_text(node: ast.AST) -> bool:
    """Say whether a statement is a text alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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


def checks_of(function: Function, helpers: set[str], fixed: set[str]) -> int:
    """Count where a test can fail: of its own, and in functions of the same file that check."""
    called = sum(
        isinstance(node, ast.Call) and called_name(node) in helpers for node in counting(function)
    )
    return own_checks(function, fixed) + called


def own_checks(function: Function, fixed: set[str]) -> int:
    """Count a function's assertions, without those that can't fail."""
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    fixed = fixed - arguments - stored
    count = 0
    for node in counting(function):
        if isinstance(node, ast.Assert):
            always = isinstance(node.test, ast.Name) and node.test.id in fixed
            count += not (always or always_true(node.test))
        elif isinstance(node, ast.Call):
            count += bool(CHECKING.match(called_name(node))) and not vacuous(node)
        elif isinstance(node, ast.Raise):
            count += not skips_by(node)
    return count


def counting(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what is executed, and whose failure shows."""
    todo = [node]
    while todo:
        node = todo.pop()
        left_out = hidden(node)
        if isinstance(node, ast.With) and any(isinstance(s, ast.Assert) for s in left_out or ()):
            continue  # pytest.raises(Exception) around an assertion expects it to fail
        yield node
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                todo.append(value)
            elif isinstance(value, list) and value is not left_out:
                todo += reached(value)


def reached(parts: list[ast.AST]) -> Iterator[ast.AST]:
    """What stands before a return, or all of it."""
    for part in parts:
        if isinstance(part, ast.AST):
            yield part
        if isinstance(part, ast.Return):
            return


def hidden(node: ast.AST) -> list[ast.stmt] | None:
    """The part of a statement that is never executed, or whose failure is caught."""
    if isinstance(node, ast.If | ast.While) and always_false(node.test):
        return node.body
    if isinstance(node, ast.Try) and any(
        catches(handler.type) and not speaks(handler.body) for handler in node.handlers
    ):
        return node.body
    if isinstance(node, ast.With | ast.AsyncWith) and any(
        isinstance(call := item.context_expr, ast.Call)
        and called_name(call) in ("suppress", "raises", "assertRaises")
        and any(catches(kind) for kind in call.args)
        for item in node.items
    ):
        return node.body
    return None


def catches(kind: ast.expr | None) -> bool:
    """Say whether an `except` of such a kind catches what a failed assertion raises."""
    if isinstance(kind, ast.Tuple):
        return any(catches(one) for one in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD)


def speaks(body: list[ast.stmt]) -> bool:
    """Say whether a handler fails the test, or keeps what it caught for later."""
    return any(
        isinstance(node, ast.Raise | ast.Assert | ast.Call | ast.Assign)
        for part in body
        for node in ast.walk(part)
    )


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
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return always_false(test.operand)
    if isinstance(test, ast.BoolOp):
        true = [always_true(value) for value in test.values]
        return any(true) if isinstance(test.op, ast.Or) else all(true)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.Is | ast.GtE):
        return ast.dump(test.left) == ast.dump(test.comparators[0]) or compares(test) is True
    return isinstance(test, ast.Compare) and compares(test) is True


def always_false(test: ast.expr) -> bool:
    """Say whether a condition never holds."""
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return always_true(test.operand)
    return isinstance(test, ast.Compare) and compares(test) is False


def compares(test: ast.Compare) -> bool | None:
    """What a comparison of two constants says; None where it is another."""
    left, right = test.left, test.comparators[0]
    compare = COMPARED.get(type(test.ops[0]))
    if len(test.ops) > 1 or compare is None:
        return None
    if not (isinstance(left, ast.Constant) and isinstance(right, ast.Constant)):
        return None
    try:
        return bool(compare(left.value, right.value))
    except TypeError:
        return None


def vacuous(call: ast.Call) -> bool:
    """Say whether assertTrue(True), assertEqual(1, 1) and the like can't fail."""
    name = called_name(call)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id == "re":
        return True  # it answers, and fails nothing
    if not call.args:
        return False
    if name == "assertTrue":
        return always_true(call.args[0])
    if name in ("assertEqual", "assertIs") and len(call.args) > 1:
        return ast.dump(call.args[0]) == ast.dump(call.args[1])
    return False
