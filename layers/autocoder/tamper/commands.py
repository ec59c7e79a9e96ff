"""Rules about the commands that a project brings: its scripts, and the files that they call."""

import re
from collections.abc import Iterator

from autocoder.tamper.case import Case, Found, table

# Scripts that a check of the service's, or npm on its way, runs.
SCRIPTS = ("test", "build", "lint", "types", "typecheck")
NOTHING = re.compile(
    r"^(?:true|:|exit(?: 0)?|(?:echo|printf|sleep|ls|cat|pwd|date|touch|test|\[|cd|export|set)\b.*"
    r"|(?:node|python3?|npm|npx|jest|vitest|mocha|pytest) (?:-v|--version|--help|-h)"
    r"|node -e .*|node --eval .*|python3? -c .*|)$",
    re.DOTALL,
)
MASKED = re.compile(
    r"\|\|\s*(?:true\b|:|exit 0|exit\s*$|echo\b|printf\b|cd\b|node -e|(?:/usr)?/bin/true)"
    r"|;\s*(?:(?:true|:|exit(?: 0)?)\s*$|echo\b[^;&|]*$)|\bset \+e\b"
    r"|\btrap\b.{0,80}\bexit 0\b.{0,20}\bEXIT\b|&\s*$"
)
NO_TESTS = re.compile(r"--passWithNoTests|--pass-with-no-tests")
# What tidies up may fail: nothing is checked by it.
TIDIES = re.compile(
    r"^(?:rm|rmdir|mkdir|kill|pkill|killall|wait|touch|unset|docker (?:stop|rm|compose down))\b"
    r"(?:[^$`()]|\$\w|\$\{\w{1,60}\}|\$\((?:cat|pgrep|pidof|lsof)\b[^$`();&|]{0,200}\)){0,1000}$"
)
LIST = re.compile(r"\|\||;|\n|[({]\s")  # where a list of commands joined by && begins
STOPS = re.compile(r"^[ \t]*set -\w*e|^#!.{0,60} -\w*e", re.MULTILINE)
PIPED = re.compile(r"(?<![|>&])\|(?![|&])")
SEARCHED = re.compile(
    r"(?:^|[\s;&|])(?:export\s+)?(PATH=(?!['\"]?\$\{?PATH\b)|LD_PRELOAD=|BASH_ENV=|PYTEST_ADDOPTS="
    r"|PYTEST_PLUGINS=|PYTHONSTARTUP=|PYTHONHOME=|NODE_PATH=|GOFLAGS=|RUSTC_WRAPPER="
    r"|NODE_OPTIONS=(?:'[^']{0,300}?|\"[^\"]{0,300}?|[^\s'\"]{0,300}?)"
    r"(?:-r|--require|--import|--loader|--experimental-loader)[ =](?:[./]|file:|data:))"
)
IN_MAKEFILE = re.compile(
    r"^PATH\s*[:?+]?=|^export\s+PATH\b|^SHELL\s*[:?]?=|^\.IGNORE", re.MULTILINE
)
RECIPE = re.compile(r"^test\s*::?[^=\n]*\n((?:\t.*\n?)*)", re.MULTILINE)
SEPARATOR = re.compile(r"&&|\|\||;|\n")
WORD = re.compile(r"[^\s;&|()<>'\"]+")


def empty(case: Case) -> Iterator[Found]:
    """A test command that runs nothing."""
    for path, package in case.now.packages.items():
        script = table(package, "scripts").get("test")
        if isinstance(script, str) and "no test specified" not in script and runs_nothing(script):
            yield path, f"scripts.test runs nothing: {script[:100]}"
    for path, recipe in test_recipes(case):
        if runs_nothing(recipe):
            yield path, "the target `test` runs nothing"


def runs_nothing(command: str) -> bool:
    """Say whether every part of a command line only says something."""
    return all(NOTHING.match(part.strip(" \t@-()")) for part in SEPARATOR.split(command))


def masked(case: Case) -> Iterator[Found]:
    """A command whose failure does not show; also one that failed and yet exited 0."""
    for path, command in scripts(case):
        shell = "" if path.endswith(".json") else case.now.texts[path]
        if found := hiding(command, stops=bool(STOPS.search(shell))):
            yield path, f"`{found}` hides a failure: {command[:100]}"
        elif case.counts is None and NO_TESTS.search(command):
            yield path, f"no test is no failure: {command[:100]}"
        elif PIPED.search(quoted(command)) and "pipefail" not in command + shell:
            yield path, f"a pipe exits with its last command's code: {command[:100]}"
    for path, recipe in test_recipes(case):
        if hiding(recipe) or re.search(r"^\t@?-", recipe, re.MULTILINE):
            yield path, "the target `test` hides a failure"
    for check in case.report.checks:
        if check.exit_code == 0 and check.tests and check.tests.failed:
            yield "", f"{check.name} exited 0 though {check.tests.failed} tests failed"


def hiding(command: str, *, stops: bool = False) -> str:
    """What hides a failure in a command; not what follows on tidying up, nor where a shell stops.

    `a && b || true` hides both.
    """
    for found in MASKED.finditer(command):
        before = LIST.split(command[max(0, found.start() - 400) : found.start()])[-1]
        tidied = all(TIDIES.match(part.strip(" \t@-")) for part in before.split("&&"))
        if not tidied and not (stops and found[0].startswith(";") and "echo" in found[0]):
            return found[0].strip()
    return ""


def searched(case: Case) -> Iterator[Found]:
    """A command that changes where tools are found, or what is loaded into them."""
    for path, command in scripts(case):
        if found := SEARCHED.search(command):
            yield path, f"it sets {found[1].strip()} in {command[:100]}"
    if test_recipes(case):
        for path, text in case.now.named("Makefile", "makefile", "GNUmakefile"):
            if found := IN_MAKEFILE.search(text):
                yield path, f"it sets {found[0].strip()}"


def scripts(case: Case) -> Iterator[Found]:
    """The project's commands that checks come to run: npm's scripts, and shell files they call."""
    called = list(case.commands.values())
    for path, package in case.now.packages.items():
        for name, command in table(package, "scripts").items():
            if (
                isinstance(command, str)
                and name.removeprefix("pre").removeprefix("post") in SCRIPTS
            ):
                called.append(command)
                yield path, command
    mentioned = {word.removeprefix("./") for text in called for word in WORD.findall(text)}
    for path, text in case.now.named("*.sh", "*.bash"):
        if path in mentioned:
            for line in text.splitlines():
                if not line.lstrip().startswith("#"):
                    yield path, line


def test_recipes(case: Case) -> list[Found]:
    """What `make test` runs, where a check calls make."""
    called = [*case.commands.values(), *(c for p, c in scripts(case) if "json" in p)]
    if not any(re.search(r"\bmake\b", command) for command in called):
        return []
    return [
        (path, match[1])
        for path, text in case.now.named("Makefile", "makefile", "GNUmakefile")
        for match in RECIPE.finditer(text)
    ]


def quoted(command: str) -> str:
    """A command without its quoted parts, in which a bar is no pipe."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
