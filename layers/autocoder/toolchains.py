"""Toolchains as data: how a project is recognised, and which commands check it.

For each check of a toolchain the first rule that applies gives the command. docs/toolchains.md is
made from this table, and says how to add a language to it.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from autocoder.hidden import names
from autocoder.model import Frozen
from autocoder.tree import Tree, table

# Made again by the project's tools; neither checkpoints nor results hold them.
LEAVE_OUT = (
    ".git", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", "*.egg-info", ".npm", ".cache",
)  # fmt: skip

# Commands run in the project's folder. What they keep lies outside of it: it is there in the next
# iteration, and neither in a checkpoint nor in the clean room.
OURS = "../.autocoder"
VENV = f"{OURS}/venv"
PYTHON = f"{VENV}/bin/python"
TARGET = f"CARGO_TARGET_DIR={OURS}/target"
OBSERVER = f"{OURS}/observer.py"
MJS = '"$HOME/.autocoder/observer.mjs"'
REPORTERS = (
    "--test-reporter=spec --test-reporter-destination=stdout"
    f" --test-reporter={MJS} --test-reporter-destination=stdout"
)

# Fails: where no toolchain is known, the sender must say how to run them.
NO_COMMAND = "echo 'No command is known for these tests: name one as checks.acceptance'; exit 1"
ACCEPTANCE = "acceptance"  # the check that runs the sender's hidden tests, in the clean room only
TESTS = ("test", ACCEPTANCE)

# How it is known what became of tests: an observer of ours signs a report, or the command itself
# leaves a JUnit report in $RESULTS or prints TAP, if it does. What is unseen can only fail.
Counted = Literal["observed", "own", "unseen"]


class Rule(Frozen):
    """A check's command, and when it applies.

    In a command, {tool} is the program of the version that was asked for; in one for acceptance
    tests {paths} are their files, {folders} their folders, {names} the files' bare names and
    {tests} what the tests in them are called.
    """

    check: str
    when: str  # for people
    applies: Callable[[Tree], bool]
    command: str | Callable[[Tree], str]
    counted: Counted | None = None
    required: bool = False  # nothing else is worth running when it fails


class Check(Frozen):
    """A command that the service runs, as chosen for one project."""

    name: str
    command: str
    counted: Counted | None = None
    required: bool = False


class Toolchain(Frozen):
    """A language's tools."""

    name: str
    aliases: tuple[str, ...] = ()
    tool: str = ""  # the program whose version is asked for
    versions: str = ""  # the names that its other versions go by
    question: str = "--version"
    manifests: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()  # what tests are called
    caches: str = ""
    rules: tuple[Rule, ...] = Field((), repr=False)


def always(tree: Tree) -> bool:
    """Apply to every project."""
    return True


# --- Python -------------------------------------------------------------------------------------

MAKE_VENV = f"{{tool}} -m venv --system-site-packages {VENV}"


def bring(module: str) -> str:
    """Install a tool unless the project, or the template, has it."""
    return (
        f"{{ {PYTHON} -c 'import {module}' 2>/dev/null"
        f" || {PYTHON} -m pip install --quiet {module}; }}"
    )


def pip_install(tree: Tree) -> str:
    """Install the package with what its tests need, as far as it says so."""
    extras = ",".join(tree.extras("dev", "test", "tests", "testing"))
    return f"{MAKE_VENV} && {PYTHON} -m pip install --quiet -e '.{f'[{extras}]' * bool(extras)}'"


def requirements(tree: Tree) -> str:
    """Install what the files of requirements name, those for tests too."""
    files = [name for name in REQUIREMENTS if tree.has(name)]
    named = " ".join(f"-r {name}" for name in files)
    return f"{MAKE_VENV} && {PYTHON} -m pip install --quiet {named}"


REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-test.txt")


def mypy(tree: Tree) -> str:
    """Check what the configuration names, or all there is."""
    named = {"files", "packages", "modules"} & set(tree.configures("mypy") or ())
    where = "" if named else " ."
    return f"{bring('mypy')} && {PYTHON} -m mypy --cache-dir {OURS}/mypy{where}"


PYTHON_TOOLCHAIN = Toolchain(
    name="python",
    tool="python3",
    versions=r"python3(\.\d+)?",
    manifests=("pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "uv.lock"),
    sources=("**/*.py",),
    tests=("**/test*.py", "**/*_test.py"),
    caches="pip's and uv's in ~/.cache, the environment in ~/.autocoder/venv",
    rules=(
        Rule(
            check="install",
            when="uv.lock",
            applies=lambda tree: tree.has("uv.lock") and tree.is_python_package,
            command=f"{MAKE_VENV} && {bring('uv')} && UV_PROJECT_ENVIRONMENT={VENV}"
            f" {PYTHON} -m uv sync --quiet --frozen --inexact --all-extras && {bring('pytest')}",
            required=True,
        ),
        Rule(
            check="install",
            when="pyproject.toml with [project] or [build-system], or setup.py",
            applies=lambda tree: tree.is_python_package or tree.has("setup.py"),
            command=lambda tree: f"{pip_install(tree)} && {bring('pytest')}",
            required=True,
        ),
        Rule(
            check="install",
            when="requirements.txt",
            applies=lambda tree: tree.has(*REQUIREMENTS),
            command=lambda tree: f"{requirements(tree)} && {bring('pytest')}",
            required=True,
        ),
        Rule(
            check="install",
            when="otherwise",
            applies=always,
            command=f"{MAKE_VENV} --without-pip"
            f" && {{ {PYTHON} -c 'import pytest' 2>/dev/null || {{ {MAKE_VENV} && {PYTHON} -m pip"
            " install --quiet pytest; }; }",
            required=True,
        ),
        Rule(
            check="build",
            when="[build-system] in pyproject.toml",
            applies=lambda tree: "build-system" in tree.toml("pyproject.toml"),
            command=f"{bring('build')} && {PYTHON} -m build --outdir {OURS}/dist .",
        ),
        Rule(
            check="build",
            when="otherwise",
            applies=always,
            command=f"{PYTHON} -I -m compileall -q .",  # -I: nothing of the project's is imported
        ),
        Rule(
            check="types",
            when="mypy is configured",
            applies=lambda tree: (
                tree.configures("mypy") is not None
                or tree.has("mypy.ini", ".mypy.ini")
                or "[mypy]" in tree.manifests.get("setup.cfg", "")
            ),
            command=mypy,
        ),
        Rule(
            check="lint",
            when="ruff is configured",
            applies=lambda tree: (
                tree.configures("ruff") is not None or tree.has("ruff.toml", ".ruff.toml")
            ),
            command=f"{bring('ruff')} && {PYTHON} -m ruff check --no-cache .",
        ),
        Rule(
            check="test",
            when="files that pytest finds",
            applies=lambda tree: tree.has("**/test_*.py", "**/*_test.py"),
            command=f"{PYTHON} {OBSERVER} pytest -p no:cacheprovider",
            counted="observed",
        ),
        Rule(
            check="test",
            when="other files that unittest finds",
            applies=lambda tree: tree.has("**/test*.py"),
            command=f"{PYTHON} {OBSERVER} unittest discover",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="always",
            applies=always,
            # No setting of the project's selects among them.
            command=f"{PYTHON} {OBSERVER} pytest -p no:cacheprovider --rootdir=."
            " -o python_functions=test -o python_classes=Test {paths}",
            counted="observed",
        ),
    ),
)

# --- Node ---------------------------------------------------------------------------------------

# Where one command of a script ends and the next begins.
SEPARATOR = re.compile(r"\s*(?:&&|\|\||[;&|])\s*")
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
# In a script with one of these nothing is told apart: it may be that another program is run, or
# that something is loaded into the one that gets the key.
OPAQUE = re.compile(
    r"[(){}<>`\n\\]|\bNODE_OPTIONS\b|\b(?:PATH|HOME|REPORTER|NODE_PATH|BASH_ENV|LD_\w+)="
    r"|(?:^|[;&|])\s*(?:\.|source|eval|exec|alias|hash|set|trap|builtin|command)\s"
)
LOADED = re.compile(
    r"\s(?:-r|--require|--import|--(?:experimental-)?loader)[= ]\s*['\"]?(?:[./~$]|\w+:)"
    r"|--env-file|--test-global-setup|-test-isolation|-config"
)
FLAG = r"(?:(?:-r|--require|--import|--(?:experimental-)?loader)[ =][@\w]\S*|--[a-z][\w=.-]*)"
BEFORE = (
    r"(?:(?:cross-env|env|npx(?: --?(?:no|no-install|yes|y)\b)?|c8(?: --[\w=-]+)*)\s+"
    r"|[A-Z_]\w*=[^\s$]*\s+)*"
)
BIN, END = r"(?:(?:\./)?node_modules/\.bin/)?", r"(?=[\s;&|]|$)"
NODE_TEST = re.compile(rf"{BEFORE}(?:node|{BIN}tsx)(?:\s+{FLAG})*?\s+--test{END}")
JEST = re.compile(rf"{BEFORE}(?:{BIN}jest|node node_modules/jest/bin/jest\.js){END}")
VITEST = re.compile(rf"{BEFORE}(?:{BIN}vitest|node node_modules/vitest/vitest\.mjs){END}")
OTHERS = re.compile(rf"{BEFORE}(?:nyc(?: --[\w=-]+)*\s+)?{BIN}(?:mocha|ava|tap|tape|uvu){END}")
LAST_RUN = re.compile(r"(?:^|(?<=&&))\s*npm run (?:-s |--silent )?([\w:.-]+)\s*$")
# The observer puts a file of its own in the place of $RESULTS.
JEST_REPORT = "--json --outputFile=$RESULTS"
VITEST_REPORT = "--run --reporter=default --reporter=json --outputFile.json=$RESULTS"


def test_script(tree: Tree) -> str:
    """The script `test`; one that goes on to another script, as `npm run unit`, is followed."""
    script = tree.script("test")
    for _ in range(3):
        found = LAST_RUN.search(script)
        if not found or any(tree.script(f"{when}{found[1]}") for when in ("pre", "post")):
            break
        script = f"{script[: found.start()]} {tree.script(found[1])}".strip()
    return script


def parted(script: str, runner: re.Pattern[str]) -> tuple[str, str, str] | None:
    """Part a script: what comes before a runner, the runner, and what follows; None without it."""
    plain = QUOTED.sub(lambda quoted: "q" * len(quoted[0]), script)
    if OPAQUE.search(plain):
        return None
    ends = [found.span() for found in SEPARATOR.finditer(plain)]
    for (_, begin), (end, _) in zip([(0, 0), *ends], [*ends, (len(plain),) * 2], strict=True):
        found = runner.match(plain, begin)
        if found and not (runner is NODE_TEST and LOADED.search(script[begin:end])):
            return script[:begin], script[begin : found.end()], script[found.end() :]
    return None


def runs(runner: re.Pattern[str]) -> Callable[[Tree], bool]:
    """Say whether the script `test` has a command that is this runner."""
    return lambda tree: parted(test_script(tree), runner) is not None


def in_script(runner: re.Pattern[str], arguments: str, start: str) -> Callable[[Tree], str]:
    """Run the script `test`, with arguments of ours for its runner and without others' reporters.

    What comes before the runner has no stdin, for there the key is.
    """

    def command(tree: Tree) -> str:
        script = re.sub(r"\s--test-reporter(-destination)?[= ]\S+", "", test_script(tree))
        before, found, rest = parted(script, runner) or ("", script, "")
        if before:
            joint = re.search(r"\s*[;&|]+\s*$", before)
            head = before[: joint.start()] if joint else before
            before = f"{{ {head}; }} </dev/null{joint[0] if joint else ''}"
        return f"{start} {shlex.quote(f'{before}{found} {arguments}{rest}')}"

    return command


# Not by npm: the project says which shell that takes, and what node loads. The reporter is read
# now, for what comes before the tests in the script could write it anew.
NODE_SCRIPT = (
    f'REPORTER="data:text/javascript;base64,$(base64 -w0 {OURS}/observer.mjs)"'
    ' PATH="$PATH:$PWD/node_modules/.bin" sh -c'
)
JEST_SCRIPT = f"python3 {OBSERVER} jest npm exec -c"
OBSERVE_JEST = f"python3 {OBSERVER} jest "
VITEST_ALONE = f"{OBSERVE_JEST}npm exec -- vitest {VITEST_REPORT}".replace("$", r"\$")
JEST_ALONE = f"{OBSERVE_JEST}npm exec -- jest {JEST_REPORT}".replace("$", r"\$")

NODE_TOOLCHAIN = Toolchain(
    name="node",
    aliases=("nodejs",),
    tool="node",
    versions="node",
    manifests=("package.json",),
    sources=("**/*.js", "**/*.mjs", "**/*.cjs", "**/*.ts"),
    tests=("**/*.test.*", "**/*.spec.*", "**/*[-_]test.*", "**/test[-_.]*", "test/*", "tests/*"),
    caches="npm's in ~/.npm",
    rules=(
        Rule(
            check="install",
            when="package-lock.json",
            applies=lambda tree: tree.has("package-lock.json"),
            command="npm ci --no-audit --no-fund",
            required=True,
        ),
        Rule(
            check="install",
            when="dependencies in package.json",
            applies=lambda tree: tree.needs(),
            command="npm install --no-audit --no-fund",
            required=True,
        ),
        Rule(
            check="build",
            when="a script `build`",
            applies=lambda tree: bool(tree.script("build")),
            command="npm run build",
        ),
        Rule(
            check="types",
            when="tsconfig.json",
            applies=lambda tree: tree.has("tsconfig.json"),
            command="npx --yes --package=typescript tsc --noEmit",
        ),
        Rule(
            check="lint",
            when="eslint is configured",
            applies=lambda tree: (
                tree.has("eslint.config.*", ".eslintrc*") or "eslintConfig" in tree.package
            ),
            command="npx --yes eslint .",
        ),
        Rule(
            check="pretest",
            when="a script `pretest`, and a script `test` with one of the next three",
            applies=lambda tree: (
                bool(tree.script("pretest"))
                and any(runs(runner)(tree) for runner in (NODE_TEST, VITEST, JEST))
            ),
            command="npm run pretest",
            required=True,
        ),
        Rule(
            check="test",
            when="a script `test` with `node --test`",
            applies=runs(NODE_TEST),
            command=in_script(NODE_TEST, REPORTERS.replace(MJS, '"$REPORTER"'), NODE_SCRIPT),
            counted="observed",
        ),
        Rule(
            check="test",
            when="a script `test` with vitest",
            applies=runs(VITEST),
            command=in_script(VITEST, VITEST_REPORT, JEST_SCRIPT),
            counted="observed",
        ),
        Rule(
            check="test",
            when="a script `test` with jest",
            applies=runs(JEST),
            command=in_script(JEST, JEST_REPORT, JEST_SCRIPT),
            counted="observed",
        ),
        Rule(
            check="test",
            when="a script `test` with mocha, ava, tap, tape or uvu",
            applies=runs(OTHERS),
            command="npm test",
            counted="own",
        ),
        Rule(
            check="test",
            when="any other script `test`",
            applies=lambda tree: bool(tree.script("test")),
            command="npm test",
            counted="unseen",
        ),
        Rule(
            check="test",
            when="vitest is a dependency",
            applies=lambda tree: tree.needs("vitest"),
            command=VITEST_ALONE,
            counted="observed",
        ),
        Rule(
            check="test",
            when="jest is a dependency",
            applies=lambda tree: tree.needs("jest"),
            command=JEST_ALONE,
            counted="observed",
        ),
        Rule(
            check="test",
            when="files that `node --test` finds",
            applies=lambda tree: tree.has(
                "**/*.test.*js", "**/test-*.*js", "**/test.*js", "test/*"
            ),
            command=f"node --test {REPORTERS}",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="vitest is a dependency",
            applies=lambda tree: tree.needs("vitest"),
            command=f"{VITEST_ALONE} {{paths}}",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="jest is a dependency",
            applies=lambda tree: tree.needs("jest"),
            command=f"{JEST_ALONE} --runTestsByPath {{paths}}",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="otherwise",
            applies=always,
            command=f"node --test {REPORTERS} {{paths}}",
            counted="observed",
        ),
    ),
)

# --- Go and Rust --------------------------------------------------------------------------------

# GOTOOLCHAIN: no other version is fetched than the one that is there. -count=1: no remembered pass.
GO = "GOTOOLCHAIN=local go"
OBSERVE_GO = f"GOTOOLCHAIN=local python3 {OBSERVER} go test -json -count=1"
GO_TOOLCHAIN = Toolchain(
    name="go",
    aliases=("golang",),
    tool="go",
    versions="go",
    question="version",
    manifests=("go.mod",),
    sources=("**/*.go",),
    tests=("**/*_test.go",),
    caches="modules in ~/go, what was compiled in ~/.cache/go-build",
    rules=(
        Rule(
            check="install",
            when="always",
            applies=always,
            command=f"{GO} mod download",
            required=True,
        ),
        Rule(check="build", when="always", applies=always, command=f"{GO} build ./..."),
        Rule(check="lint", when="always", applies=always, command=f"{GO} vet ./..."),
        Rule(
            check="test",
            when="always",
            applies=always,
            command=f"{OBSERVE_GO} ./...",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="always: these tests, in the packages of their files",
            applies=always,
            command=f"{OBSERVE_GO} -run '^({{tests}})$' {{folders}}",
            counted="observed",
        ),
    ),
)

CLIPPY, RUSTFMT = ("clippy.toml", ".clippy.toml"), ("rustfmt.toml", ".rustfmt.toml")


def rust_lint(tree: Tree) -> str:
    """Run those of the two that the project configures and the sandbox has."""
    wanted = []
    if tree.has(*RUSTFMT):
        wanted.append(("fmt", "fmt --check"))
    if configures_clippy(tree):
        wanted.append(("clippy", "clippy --all-targets -- -D warnings"))
    return " && ".join(
        f"if cargo {tool} --version >/dev/null 2>&1; then {TARGET} cargo {command};"
        f" else echo 'cargo {tool} is not installed here: it was not run'; fi"
        for tool, command in wanted
    )


def configures_clippy(tree: Tree) -> bool:
    """Say whether clippy is configured, in a file of its own or in the manifest."""
    return tree.has(*CLIPPY) or "clippy" in table(tree.toml("Cargo.toml"), "lints")


RUST_TOOLCHAIN = Toolchain(
    name="rust",
    tool="cargo",
    versions="cargo",
    manifests=("Cargo.toml",),
    sources=("**/*.rs",),
    tests=("**/*.rs",),  # Rust's unit tests stand next to what they test
    caches="crates in ~/.cargo, what was compiled in ~/.autocoder/target",
    rules=(
        Rule(check="install", when="always", applies=always, command="cargo fetch", required=True),
        Rule(check="build", when="always", applies=always, command=f"{TARGET} cargo build"),
        Rule(
            check="lint",
            when="clippy or rustfmt is configured, and in the sandbox",
            applies=lambda tree: tree.has(*RUSTFMT) or configures_clippy(tree),
            command=rust_lint,
        ),
        Rule(
            check="test",
            when="always",
            applies=always,
            command=f"{TARGET} python3 {OBSERVER} cargo test --no-fail-fast",
            counted="observed",
        ),
        Rule(
            check=ACCEPTANCE,
            when="always: files in tests/",
            applies=always,
            command=f"{TARGET} python3 {OBSERVER} cargo test --no-fail-fast {{names}}",
            counted="observed",
        ),
    ),
)

# Commands from the message alone; `checks.test` must be among them.
CUSTOM_TOOLCHAIN = Toolchain(name="custom")

TOOLCHAINS = (PYTHON_TOOLCHAIN, NODE_TOOLCHAIN, GO_TOOLCHAIN, RUST_TOOLCHAIN)
ENVIRONMENTS = ("auto", *(toolchain.name for toolchain in TOOLCHAINS), CUSTOM_TOOLCHAIN.name)
BY_NAME = {name: t for t in TOOLCHAINS for name in (t.name, *t.aliases)}


def asked_for(environment: str) -> tuple[Toolchain | None, str]:
    """Read an environment's name: its toolchain (None for `auto`) and version, if it has one."""
    name, _, version = environment.partition("-")
    if environment in ("auto", CUSTOM_TOOLCHAIN.name):
        return (CUSTOM_TOOLCHAIN if environment != "auto" else None), ""
    if name not in BY_NAME or (name != environment and not re.fullmatch(r"\d+(\.\d+)*", version)):
        close = difflib.get_close_matches(name, (*BY_NAME, "auto", CUSTOM_TOOLCHAIN.name), n=1)
        meant = f"did you mean {close[0]}? K" if close and close[0] != environment else "k"
        raise ValueError(
            f"is no environment; {meant}nown are {', '.join(ENVIRONMENTS)}, a language also with a"
            " version, such as python-3.11 or nodejs-18"
        )
    return BY_NAME[name], version


def recognise(tree: Tree, environment: str) -> Toolchain | None:
    """Find a project's toolchain: the one asked for, or by its manifest, or by its sources."""
    toolchain, _ = asked_for(environment)
    if toolchain:
        return toolchain
    for known in TOOLCHAINS:
        if tree.has(*known.manifests):
            return known
    return next((t for t in TOOLCHAINS if tree.has(*t.sources)), None)


def version_in(answer: str) -> str:
    """The version in what a tool answers, such as 3.11 or 1.19.8; empty if there is none."""
    found = re.search(r"\d+(\.\d+)+", answer)
    return found[0] if found else ""


def find_tool(answers: dict[str, str], wanted: str) -> str | None:
    """The program, of those that answered, that has the version: 3.1 is not 3.11, 18 is 18.2."""
    for name, answer in answers.items():
        if f"{version_in(answer)}.".startswith(f"{wanted}."):
            return name
    return None


def plan_checks(
    tree: Tree, toolchain: Toolchain | None, own: dict[str, str], tool: str = ""
) -> list[Check]:
    """List the checks of a project in order; the message's own commands replace or add to them."""
    planned: dict[str, Check] = {}
    for rule in toolchain.rules if toolchain else ():
        if rule.check not in (*planned, ACCEPTANCE) and rule.applies(tree):
            planned[rule.check] = chosen(rule, tree, tool or (toolchain.tool if toolchain else ""))
    for name, command in own.items():
        if name != ACCEPTANCE:
            counted: Counted | None = "own" if name in TESTS else None
            planned[name] = Check(name=name, command=command, counted=counted)
    return list(planned.values())


def plan_acceptance(
    tree: Tree, toolchain: Toolchain | None, files: Mapping[str, str], own: dict[str, str]
) -> Check:
    """The command for hidden tests: the message's own, or the toolchain's for these files."""
    if ACCEPTANCE in own:
        return Check(name=ACCEPTANCE, command=own[ACCEPTANCE], counted="own")
    for rule in toolchain.rules if toolchain else ():
        if rule.check == ACCEPTANCE and rule.applies(tree):
            return chosen(rule, tree, "", files)
    return Check(name=ACCEPTANCE, command=NO_COMMAND, counted="own")


def chosen(rule: Rule, tree: Tree, tool: str, hidden: Mapping[str, str] | None = None) -> Check:
    """Make a rule's command for a project."""
    command = rule.command if isinstance(rule.command, str) else rule.command(tree)
    files = [PurePosixPath(path) for path in hidden or ()]
    blanks = {
        "{tool}": tool,
        "{paths}": shlex.join(map(str, files)),
        "{folders}": shlex.join(sorted({f"./{file.parent}" for file in files})),
        "{names}": shlex.join(word for file in files for word in ("--test", file.stem)),
        "{tests}": "|".join(names(hidden or {})) if "{tests}" in command else "",
    }
    for blank, text in blanks.items():
        command = command.replace(blank, text)
    return Check(name=rule.check, command=command, counted=rule.counted, required=rule.required)
