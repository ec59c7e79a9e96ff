"""Rules about files that take the place of tools, or run within them."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from autocoder.tamper.case import CARGO, Case, Found, Snapshot, cargo_targets, table, toml

MODULES = {"pytest", "_pytest", "pluggy", "unittest", "pip", "compileall", "venv", "runpy", "mypy"}
TOOLS = {
    "node", "npm", "npx", "python", "python3", "pytest", "pip", "jest", "vitest", "mocha", "tsc",
    "eslint", "go", "cargo", "rustc", "make", "bash", "sh", "env", "ruff", "mypy", "uv",
}  # fmt: skip
PACKAGES = {"jest", "vitest", "mocha", "ava", "tap", "typescript", "eslint", "node", "npm"}
LOCAL = ("file:", "link:", "portal:", "./", "../", "/")
AT_THE_TOP = ("", "src", "lib")  # from where Python imports when checks run

REPLACED = (
    (
        "pyproject.toml",
        re.compile(r"^name\s*=\s*[\"'](?:pytest|pluggy|unittest|pip)[\"']", re.M | re.I),
        "the project calls itself as its runner",
    ),
    (
        "requirements*.txt",
        re.compile(r"^[ \t]*(?:pytest|pluggy)\s*@\s*(?:file:|\.)", re.M | re.I),
        "the runner comes from the project",
    ),
)

NPM = re.compile(
    r"^[ \t]*(script-shell|shell|node-options|prefix|userconfig|globalconfig"
    r"|init-module|node-path|scripts-prepend-node-path)\s*=",
    re.MULTILINE,
)
YARN = re.compile(r"^[ \t]*(yarnPath|yarn-path|plugins)\b", re.MULTILINE)
# An alias of one of the service's own commands is one of them; others are nobody's business.
CARGO_SETTING = re.compile(
    r"^[ \t]*(?:[\w\"'.-]{1,100}\.)?"
    r"(runner|rustc|rustc-wrapper|rustc-workspace-wrapper|linker|test|build|check|clippy|fmt)\s*=",
    re.M,
)


def runners(case: Case) -> Iterator[Found]:
    """Files with the name of a tool, where the tool would be looked for."""
    for path in sorted(case.now.paths):
        place = PurePosixPath(path)
        module = place.stem if place.suffix in (".py", ".so", ".pyc") else ""
        if module in MODULES and str(place.parent).strip(".") in AT_THE_TOP:
            yield path, f"it takes the place of {module}"
        inner = place.relative_to(place.parts[0]) if place.parts[0] in AT_THE_TOP else place
        if inner.parts[0] in MODULES and len(inner.parts) > 1 and place.suffix == ".py":
            yield path, f"it takes the place of {inner.parts[0]}"
        if place.name in TOOLS and path in case.now.executables:
            yield path, f"it takes the place of {place.name}"
        if ".bin" in place.parts[:-1]:
            yield path, "a folder .bin holds what npm's scripts find first"
    yield from replaced_packages(case.now)


def replaced_packages(files: Snapshot) -> Iterator[Found]:
    """Manifests that take a runner from the project itself, or do without one."""
    for path, package in files.packages.items():
        for kind in ("dependencies", "devDependencies", "overrides"):
            for name, version in table(package, kind).items():
                if name in PACKAGES and str(version).startswith(LOCAL):
                    yield path, f"{name} comes from {str(version)[:80]}"
    for pattern, line, what in REPLACED:
        for path, text in files.named(pattern):
            if line.search(text):
                yield path, what
    for path, text in files.named("Cargo.toml"):
        if any(target.get("harness") is False for _, target in cargo_targets(toml(text))):
            yield path, "harness = false does without Rust's own test runner"


def startup(case: Case) -> Iterator[Found]:
    """Files that Python runs whenever it starts."""
    for path in sorted(case.now.paths):
        name = PurePosixPath(path).name
        if name in ("sitecustomize.py", "usercustomize.py") or name.endswith(".pth"):
            yield path, "Python runs it at every start, before any test"


def tool_settings(case: Case) -> Iterator[Found]:
    """Settings that make a tool run something else."""
    for names, settings in (((".npmrc",), NPM), ((".yarnrc*",), YARN)):
        for path, text in case.now.named(*names):
            for match in settings.finditer(text):
                yield path, f"it sets {match[1]}"
    for path, _ in case.now.named("pip.conf", "pip.ini", "go.env"):
        yield path, "it sets what pip or go does for every project"
    for path, text in sorted(case.now.texts.items()):
        if CARGO.search(path):
            for match in CARGO_SETTING.finditer(text):
                yield path, f"it sets {match[1]}"


def unreadable(case: Case) -> Iterator[Found]:
    """Files that rules would look at, and can't."""
    for path in case.now.unread:
        yield path, "it is too large, or no valid source: nobody can say what it does"
