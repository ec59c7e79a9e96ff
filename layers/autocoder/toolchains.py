"""Toolchains as data: how a project is recognised, and which commands check it.

For each check of a toolchain the first rule that applies gives the command. To support a further
language, add a Toolchain here and, if its test runner prints counts of its own, a reader in
results.py.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import Field

from autocoder.model import Frozen

# Made again by the project's tools; neither checkpoints nor results hold them.
LEAVE_OUT = (
    ".git", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", "*.egg-info", ".npm", ".cache",
)  # fmt: skip

# Commands run in the project's folder; $RESULTS names the file for a runner's report, a new one
# every time. The service's environment for Python projects lies outside of the project. It sees the
# template's packages, so that pytest is there for a project that does not declare it.
VENV = "../.autocoder/venv"
PYTHON = f"{VENV}/bin/python"

# Fails: where no toolchain is known, the sender must say how to run them.
NO_COMMAND = "echo 'No command is known for these tests: name one as checks.acceptance'; exit 1"
ACCEPTANCE = "acceptance"  # the check that runs the sender's hidden tests, in the clean room only


class Tree:
    """A project as rules see it: its file names and the text of its manifests."""

    def __init__(self, files: Iterable[str], manifests: dict[str, str]) -> None:
        """`files` are paths within the project."""
        self.files = list(files)
        self.manifests = manifests

    def has(self, *patterns: str) -> bool:
        """Say whether a file at the top matches (a pattern with **/ matches at any depth)."""
        for pattern in patterns:
            deep = pattern.startswith("**/")
            wanted = pattern.removeprefix("**/")
            for path in self.files:
                name = path.rpartition("/")[2] if deep else path
                if fnmatch.fnmatchcase(name, wanted):
                    return True
        return False

    @property
    def package(self) -> dict[str, Any]:
        """Package.json, or an empty one where it is missing or broken (npm will say so)."""
        try:
            content = json.loads(self.manifests.get("package.json", "{}"))
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def script(self, name: str) -> str:
        """A script of package.json's; npm's own placeholder is none."""
        scripts = self.package.get("scripts")
        command = scripts.get(name) if isinstance(scripts, dict) else None
        text = command if isinstance(command, str) else ""
        return "" if "no test specified" in text else text

    @property
    def is_python_package(self) -> bool:
        """Pyproject.toml describes a package, not only the settings of tools."""
        text = self.manifests.get("pyproject.toml", "")
        return bool(re.search(r"^\[(project|build-system)\]", text, re.MULTILINE))


class Rule(Frozen):
    """A check's command, and when it applies."""

    check: str
    command: str
    applies: Callable[[Tree], bool]
    results: str | None = None  # a reader's name in results.py
    required: bool = False  # nothing else is worth running when it fails


class Toolchain(Frozen):
    """A language's tools."""

    name: str
    manifests: tuple[str, ...]
    sources: tuple[str, ...]
    tests: tuple[str, ...]  # what tests are called
    acceptance: str  # runs the named test files, and writes a JUnit report
    rules: tuple[Rule, ...] = Field(repr=False)


def always(tree: Tree) -> bool:
    """Apply to every project."""
    return True


PYTHON_TOOLCHAIN = Toolchain(
    name="python",
    manifests=("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg"),
    sources=("**/*.py",),
    tests=("**/test*.py", "**/*_test.py"),
    acceptance=f'{PYTHON} -m pytest -p no:cacheprovider --junitxml="$RESULTS"',
    rules=(
        Rule(
            check="install",
            command=f"python3 -m venv --system-site-packages {VENV}"
            f" && {PYTHON} -m pip install --quiet -r requirements.txt",
            applies=lambda tree: tree.has("requirements.txt") and not tree.is_python_package,
            required=True,
        ),
        Rule(
            check="install",
            command=f"python3 -m venv --system-site-packages {VENV}"
            f" && {PYTHON} -m pip install --quiet -e .",
            applies=lambda tree: tree.is_python_package or tree.has("setup.py"),
            required=True,
        ),
        Rule(
            check="install",
            command=f"python3 -m venv --system-site-packages --without-pip {VENV}",
            applies=always,
            required=True,
        ),
        Rule(
            check="build",
            command=f"{PYTHON} -m compileall -q .",
            applies=always,
        ),
        Rule(
            check="test",
            command=f'{PYTHON} -m pytest -p no:cacheprovider --junitxml="$RESULTS"',
            applies=lambda tree: tree.has("**/test_*.py", "**/*_test.py"),
            results="junit",
        ),
        Rule(
            check="test",
            command=f"{PYTHON} -m unittest discover -v",
            applies=lambda tree: tree.has("**/test*.py"),
            results="unittest",
        ),
    ),
)

NODE_TOOLCHAIN = Toolchain(
    name="node",
    manifests=("package.json",),
    sources=("**/*.js", "**/*.mjs", "**/*.cjs", "**/*.ts"),
    tests=("**/*.test.*", "**/*.spec.*", "**/*[-_]test.*", "**/test[-_.]*", "test/*", "tests/*"),
    acceptance="node --test --test-reporter=spec --test-reporter-destination=stdout"
    ' --test-reporter=junit --test-reporter-destination="$RESULTS"',
    rules=(
        Rule(
            check="install",
            command="npm ci --no-audit --no-fund",
            applies=lambda tree: tree.has("package-lock.json"),
            required=True,
        ),
        Rule(
            check="install",
            command="npm install --no-audit --no-fund",
            applies=lambda tree: bool(
                tree.package.get("dependencies") or tree.package.get("devDependencies")
            ),
            required=True,
        ),
        Rule(
            check="build",
            command="npm run build",
            applies=lambda tree: bool(tree.script("build")),
        ),
        Rule(
            check="test",
            command="npm test",
            applies=lambda tree: bool(tree.script("test")),
            results="node",
        ),
        Rule(
            check="test",
            command="node --test",
            applies=lambda tree: tree.has(
                "**/*.test.*js", "**/test-*.*js", "**/test.*js", "test/*"
            ),
            results="node",
        ),
    ),
)

TOOLCHAINS = (PYTHON_TOOLCHAIN, NODE_TOOLCHAIN)
ENVIRONMENTS = ("auto", *(toolchain.name for toolchain in TOOLCHAINS))
MANIFESTS = tuple(name for toolchain in TOOLCHAINS for name in toolchain.manifests)


def recognise(tree: Tree, environment: str) -> Toolchain | None:
    """Find a project's toolchain: the one asked for, or by its manifest, or by its sources."""
    if environment != "auto":
        return next(t for t in TOOLCHAINS if t.name == environment)
    for toolchain in TOOLCHAINS:
        if tree.has(*toolchain.manifests):
            return toolchain
    return next((t for t in TOOLCHAINS if tree.has(*t.sources)), None)


def plan_checks(tree: Tree, toolchain: Toolchain | None, own: dict[str, str]) -> list[Rule]:
    """List the checks of a project in order; the message's own commands replace or add to them."""
    planned: dict[str, Rule] = {}
    for rule in toolchain.rules if toolchain else ():
        if rule.check not in planned and rule.applies(tree):
            planned[rule.check] = rule
    for name, command in own.items():
        if name == ACCEPTANCE:
            continue
        results = planned[name].results if name in planned else None
        planned[name] = Rule(check=name, command=command, applies=always, results=results)
    return list(planned.values())


def plan_acceptance(toolchain: Toolchain | None, paths: list[str], own: dict[str, str]) -> Rule:
    """The command for hidden tests: the message's own, or the toolchain's for these files."""
    command = own.get(ACCEPTANCE)
    if command is None and toolchain:
        command = f"{toolchain.acceptance} {shlex.join(paths)}"
    return Rule(check=ACCEPTANCE, command=command or NO_COMMAND, applies=always, results="junit")
