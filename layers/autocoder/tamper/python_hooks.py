"""What Python code does to pytest from within: a conftest.py, a plugin, a file of tests.

Aliases are resolved as far as imports make them; whoever hides deeper is not found here.
"""

import ast
import sys
from collections.abc import Iterator

from autocoder.tamper.python_tests import called_name, parsed
from autocoder.tamper.suites import is_test_file

Assignment = ast.Assign | ast.AugAssign | ast.AnnAssign

# Of pytest's hooks, those that replace what a test does, or which tests there are.
REPLACING = {
    "pytest_pyfunc_call", "pytest_runtest_protocol", "pytest_runtest_call", "pytest_runtestloop",
    "pytest_ignore_collect", "pytest_cmdline_main", "pytest_report_to_serializable",
}  # fmt: skip
HOOKS = ("pytest_runtest", "pytest_coll", "pytest_session", "pytest_report", "pytest_cmd")
CALLING = {"pytest_pyfunc_call", "pytest_runtest_protocol", "pytest_runtest_call"}
# What only pytest's own objects have, and what others may have too.
RESULTS = {"outcome", "exitstatus", "wasxfail", "testsfailed", "testscollected", "longrepr"}
OUTCOMES = RESULTS | {"_result", "failed", "passed"}
SHRINKING = {"clear", "remove", "pop", "force_result", "force_exception"}
ENDING = {
    f"os.{name}"
    for name in ("_exit", "abort", "killpg", "execv", "execve", "execvp", "execvpe", "execl")
} | {"pytest.exit"}
SETTLED = {"sys.exit", "exit", "quit", "SystemExit"}
HARMLESS = {f"signal.SIG{name}" for name in ("USR1", "USR2", "HUP", "ALRM", "CHLD", "WINCH")}
RUNNERS = {"pytest", "_pytest", "unittest", "pluggy", "builtins"}


class Names:
    """What the names of a module stand for: `import os as o` makes o.kill os.kill."""

    def __init__(self, tree: ast.Module) -> None:
        """Collect its imports, wherever they stand."""
        self.imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    first = one.name.partition(".")[0]
                    self.imported[one.asname or first] = one.name if one.asname else first
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for one in node.names:
                    self.imported[one.asname or one.name] = f"{module}.{one.name}"

    def full(self, node: ast.AST) -> str:
        """The whole name of what an expression is; empty where it has none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imported.get(node.id, node.id), *parts])

    def owner(self, node: ast.AST) -> str:
        """The module that an expression begins with; empty where it was not imported."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        imported = self.imported.get(node.id, "") if isinstance(node, ast.Name) else ""
        return imported.partition(".")[0] or imported


def python_hooks(path: str, text: str) -> Iterator[str]:
    """What a file of tests, a conftest.py or a plugin does to pytest."""
    tree = parsed(text)
    if tree is None:
        return  # a rule of its own
    names = Names(tree)
    within = not is_test_file(path) or path.endswith("conftest.py")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (hook := hook_name(node)):
            yield from in_hook(hook, node, names)
        elif isinstance(node, ast.Call):
            yield from ended(node, names, within=within)
        elif isinstance(node, Assignment):
            yield from patched(node, names)
        if within:
            yield from in_plugin(node)
    if within:
        yield from replaced(tree, names)


def hook_name(function: ast.FunctionDef) -> str:
    """The hook of pytest's that a function is; `specname` makes it one under any name."""
    for decorator in function.decorator_list:
        for word in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if word.arg == "specname":
                return str(getattr(word.value, "value", "pytest_"))
    return function.name if function.name.startswith("pytest_") else ""


def ended(call: ast.Call, names: Names, *, within: bool) -> Iterator[str]:
    """Calls that end the runner, or another process than one's own or a child."""
    name = names.full(call.func)
    if name in ENDING or (within and name in SETTLED):
        yield f"{name}() ends the run"
    elif within and name == "atexit.register":
        yield "atexit.register() acts when the run is over"
    elif name == "os.kill" and len(call.args) > 1:
        whom, signal = call.args[:2]
        own = isinstance(whom, ast.Call) and names.full(whom.func) == "os.getpid"
        child = isinstance(whom, ast.Attribute) and whom.attr == "pid"
        if not (own or child or names.full(signal) in HARMLESS):
            yield "os.kill() ends the run"


def in_plugin(node: ast.AST) -> Iterator[str]:
    """What only pytest itself has a use for."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from insides(node)
    elif isinstance(node, ast.Raise) and getattr(node.exc, "id", "") == "SystemExit":
        yield "SystemExit ends the run"
    elif isinstance(node, Assignment):
        for target in targets(node):
            own = getattr(getattr(target, "value", None), "id", "") == "self"
            if isinstance(target, ast.Attribute) and target.attr in RESULTS and not own:
                yield f"it sets {target.attr}"
            if isinstance(target, ast.Name) and target.id.startswith(HOOKS):
                yield f"{target.id} is no function that can be read"


def insides(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Imports of what is pytest's own, and of functions that become hooks by their new name."""
    modules = [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom):
        modules = [node.module or ""] * (not node.level)
    if any(module.partition(".")[0] == "_pytest" for module in modules):
        yield "it imports the insides of pytest"
    for one in node.names:
        if one.asname and one.asname.startswith(HOOKS) and one.name != one.asname:
            yield f"{one.name} becomes {one.asname}"


def in_hook(name: str, hook: ast.FunctionDef, names: Names) -> Iterator[str]:
    """What a hook of pytest's does that changes results."""
    if name in REPLACING and not (name in CALLING and calls_the_test(hook)):
        yield f"{name} takes over what pytest does"
        return
    for node in ast.walk(hook):
        if isinstance(node, Assignment):
            yield from (f"{name} {what}" for what in set_in_hook(node))
        elif isinstance(node, ast.Delete):
            if any(names.owner(target) not in ("os", "sys") for target in node.targets):
                yield f"{name} deletes what was collected"
        elif isinstance(node, ast.Call):
            called = called_name(node)
            if called in SHRINKING and names.owner(node.func) not in ("os", "sys"):
                yield f"{name} calls {called}()"
            elif sets_outcome(node):
                yield f"{name} sets an outcome"


def calls_the_test(hook: ast.FunctionDef) -> bool:
    """Say whether a hook runs the test, as for coroutines, and lets its failure through."""
    parts = list(ast.walk(hook))
    called = {called_name(part) for part in parts if isinstance(part, ast.Call)}
    if "suppress" in called or any(isinstance(part, ast.ExceptHandler) for part in parts):
        return False
    yields = any(isinstance(part, ast.Yield) for part in parts)
    return yields or bool(called & {"obj", "testfunction", "runtest"})


def set_in_hook(node: Assignment) -> Iterator[str]:
    """Assignments to results, and to the list of tests unless all of it is put in order."""
    for target in targets(node):
        if isinstance(target, ast.Attribute) and target.attr in OUTCOMES:
            yield f"sets {target.attr}"
        if not isinstance(target, ast.Subscript):
            continue
        if isinstance(target.slice, ast.Constant) and target.slice.value in OUTCOMES:
            yield f"sets {target.slice.value}"
        if isinstance(target.slice, ast.Slice) and not ordered(node.value, target.value):
            yield "replaces what was collected"


def ordered(value: ast.expr | None, items: ast.expr) -> bool:
    """Say whether a value is all of a list, in another order."""
    return (
        isinstance(value, ast.Call)
        and called_name(value) in ("sorted", "list", "reversed")
        and bool(value.args)
        and isinstance(value.args[0], ast.Name)
        and isinstance(items, ast.Name)
        and value.args[0].id == items.id
    )


def sets_outcome(call: ast.Call) -> bool:
    """Say whether setattr() may set a result; what hooks note on an item is theirs."""
    if called_name(call) == "update":
        return any(word.arg in OUTCOMES for word in call.keywords)
    if called_name(call) not in ("setattr", "__setattr__") or len(call.args) < 3:
        return False
    whose, name = call.args[-3:-1]
    if isinstance(name, ast.Constant):
        return name.value in OUTCOMES
    return not (isinstance(whose, ast.Name) and whose.id == "item")


def patched(node: Assignment, names: Names) -> Iterator[str]:
    """Assignments to the insides of the runner."""
    for target in targets(node):
        owner = names.owner(target) if isinstance(target, ast.Attribute) else ""
        if owner in RUNNERS and getattr(target, "attr", "") != "maxDiff":
            yield f"it changes {owner} itself"


def replaced(tree: ast.Module, names: Names) -> Iterator[str]:
    """What a plugin puts in the place of the code under test as soon as it is loaded."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not (
            isinstance(node, ast.FunctionDef) and hook_name(node)
        ):
            continue  # a fixture may, and takes it back
        todo += ast.iter_child_nodes(node)
        whom: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, Assignment):
            whom, value = [t for t in targets(node) if isinstance(t, ast.Attribute)], node.value
        elif isinstance(node, ast.Call) and called_name(node) == "setattr" and len(node.args) > 2:
            whom, value = node.args[:1], node.args[2]
        if value is None or isinstance(value, ast.Constant | ast.List | ast.Dict | ast.Tuple):
            continue  # settings
        for one in whom:
            owner = names.owner(one)
            if owner and owner not in RUNNERS and owner not in sys.stdlib_module_names:
                yield f"it replaces a part of {owner}"


def targets(node: Assignment) -> list[ast.expr]:
    """What is assigned to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]
