"""`python -m autocoder.reference`: writes docs/failures.md, toolchains.md and tampering.md."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from autocoder.checks import STATUSES
from autocoder.claude import OUTCOMES
from autocoder.errors import HINTS
from autocoder.tamper import RULES
from autocoder.toolchains import OURS, PYTHON, TOOLCHAINS, Rule, Toolchain
from autocoder.tree import Tree

INTRODUCTION = """\
# What can go wrong

Made by `make reference` from the code; do not edit. Who acts on an error, and what is retried, is
drawn in [errors.py](../layers/autocoder/errors.py).
"""

TOOLCHAINS_INTRODUCTION = """\
# Toolchains

Made by `make reference` from [toolchains.py](../layers/autocoder/toolchains.py); do not edit.

A project's toolchain is the message's `environment`, or with `auto` the first one here whose
manifest, then whose sources, the project has. For each check the first rule that applies gives
the command; the message's `checks` replace commands and add others. Everything must pass, `types`
and `lint` too, which run where the project itself configures them. Commands run in the project's
folder; what they keep lies outside of it, is there in the next iteration, and is not in the clean
room.

**Versions.** `python-3.11`, `nodejs-18`, `go-1.21`, `rust-1.70`: the sandbox is asked before the
agent begins and again before the checks. What it does not have ends the task with
`environment_unavailable` and a sentence that names the versions that are there; another version
is never taken instead. `auto` and the bare names use what is there. Go and Rust are in the
sandboxes of a deployment whose `sandbox_languages` name them, and on a laptop that has them in
/usr.

**`custom`** has no commands but the message's `checks`, of which `test` is required, and
`acceptance` where there are acceptance tests. A command of the sender's may leave a JUnit report in
the file that `$RESULTS` names, or print TAP; then tests are counted by that.

**Observed.** Tests are run by an observer of the service's
([observer.py](../layers/autocoder/sandbox/observer.py),
[observer.mjs](../layers/autocoder/sandbox/observer.mjs) for `node --test`), which writes down
what became of each and signs it with a key that it got on stdin: no file, argument or variable
holds it while tests run. A test command that exits 0 without that report is not green, whatever
it printed, nor is one whose report has a failure. Observers are put back before every command, and
the process that starts the commands seals how they ended: what the project's code writes in the
service's folder, or ends, does not make it green. Go's, Rust's and Node's tests run in processes
of their own. pytest's and unittest's run in the observer's: what they do there to the observer
itself it can't see; nor does it see what a runner does not report, such as a hook that turns a
failure into a pass, or a Rust program with `harness = false` that prints libtest's lines.

**Own.** The sender's own commands, and mocha, ava, tap, tape and uvu in a script `test`, are
believed: by their exit code, and by what they say of their tests if they do. What such a runner is
made to print by the project's code is not seen.

**Unseen.** Any other script `test` of package.json can only fail: where it exits 0 nobody saw that
a test ran. Let it call a runner that is known (`tsc && node --test` and `npm run unit` are
followed; what has brackets, redirections, `NODE_OPTIONS` or a preloaded file of the project is
not), or name it in the message as `checks.test`, by which the sender vouches for it.

**Hidden tests.** Each test that stands in the sender's `acceptance` files and is not skipped there
must be among those that the observer saw executed; else `acceptance` has failed and names them.
A file that skips as it runs (`pytest.skip()`, `t.Skip()`) is left to its runner.
"""
FURTHER = """\
## A further language

1. A `Toolchain` in [toolchains.py](../layers/autocoder/toolchains.py), and its name in
   `TOOLCHAINS`: the program whose version is asked for, manifests, sources, what tests are
   called, and rules for `install`, `build`, `types`, `lint`, `test` and `acceptance`, as far as
   it has them. Set `required` on what nothing else makes sense without. Caches belong outside of
   the project.
2. If its test runner has a report of its own, a function in
   [observer.py](../layers/autocoder/sandbox/observer.py) that runs it and notes each test's
   outcome, its name in `RUNNERS`, and `counted="observed"` on the rules that use it. A runner
   that writes JUnit needs none: let it write to `$RESULTS`, with `counted="own"`.
3. If its manifest's text matters to a rule, its name in `READ` in
   [tree.py](../layers/autocoder/tree.py); the tools, in [template.py](../infra/template.py) for
   the cloud.
4. For the [tamper rules](tampering.md): how its tests look, in `LANGUAGES` in
   [suites.py](../layers/autocoder/tamper/suites.py); files that say how its tools behave, in
   `SETTINGS` in [case.py](../layers/autocoder/tamper/case.py); its programs, in `TOOLS` in
   [planted.py](../layers/autocoder/tamper/planted.py).
5. A test in `tests/toolchains/` that runs the real runner on a project with a test that passes,
   one that fails and one that is skipped.

Then `make reference`.
"""


def toolchains() -> str:
    """Write the page of toolchains."""
    return "\n".join([TOOLCHAINS_INTRODUCTION, *map(toolchain, TOOLCHAINS), FURTHER])


def toolchain(known: Toolchain) -> str:
    """Write a toolchain's part of the page."""
    names = ", ".join(f"`{name}`" for name in (known.name, *known.aliases))
    lines = [
        f"## {known.name.capitalize()}\n",
        f"Named {names}. Recognised by {code(known.manifests)}, or else {code(known.sources)}."
        f" Kept between iterations: {known.caches}.\n",
        *table(
            ("check", "where", "command", "counted"),
            ((r.check, r.when, command(r), r.counted or "") for r in known.rules),
        ),
        "",
    ]
    return "\n".join(lines)


def command(rule: Rule) -> str:
    """A rule's command, for a project to which it applies, with the folders' names in short."""
    if isinstance(rule.command, str):
        text = rule.command
    else:
        text = rule.command(next(example for example in EXAMPLES if rule.applies(example)))
    text = text.replace(PYTHON, "python").replace(OURS, "~/.autocoder")
    return f"`{text}`"


def script(test: str) -> Tree:
    """A package with a test script."""
    return Tree([], {"package.json": json.dumps({"scripts": {"test": test}})})


# Projects for the commands that are made for each.
EXAMPLES = (
    *map(script, ("node --test", "vitest", "jest")),
    Tree(["requirements.txt"], {}),
    Tree(["setup.py", "mypy.ini", "rustfmt.toml", "clippy.toml"], {}),
)


def code(patterns: tuple[str, ...]) -> str:
    """Show patterns as code."""
    return ", ".join(f"`{pattern}`" for pattern in patterns)


TAMPERING = """\
# Green, and not right

Made by `make reference` from the code; do not edit. A task that SUCCEEDED broke none of these
rules, but for those that its sender switched off.

The service looks itself, never at what an agent says: at the project's files in the iteration's
checkpoint, and at what its own runner saw. What breaks a rule is one more failing check,
`tamper`: the agent is told which rule, which file and what to do, and the task goes on. If it is
given up with a rule still broken, the first rule's name is the failure's code.

**What is compared with what.** Rules marked ✓ compare an iteration with the last one that broke
none of them; the first with the sender's `source`, if there is one. So a cheat does not become
the measure of the next iteration. Counts are compared with the most tests that any earlier
iteration executed. They may fall only by the sender's leave: a test that contradicts the
specification is corrected, not removed. Many tests that become one with parameters are still as
many, for what is executed counts; so are tests in a file that is renamed. In the clean room,
which has the same files, only what ran is looked at. What the sender's own project had is not
held against the agent.

**`allow`** in the message switches rules off for a task: `"allow": ["tests_deleted",
"tests_fewer"]`. What they find is then no failure, but stands as `allowed` in
iterations/NN/checks.json, in result.json, in summary.md and in the signed evidence.json.

Sizes are no rule, and no `allow` lifts them: a project of too many files or bytes ends the task
with `project_too_large`, an archive that is none with `archive_unsafe`.

These rules make cheating visible where it is cheap. What settles the matter is a test that the
agent can't see: `acceptance`.
"""


def tampering() -> str:
    """Write the page of tamper rules."""
    rows = ((f"`{r.name}`", "✓" * r.compares, r.catches, r.misses) for r in RULES)
    heads = ("rule, and code", "compares", "catches", "can't catch")
    return "\n".join([TAMPERING, *table(heads, rows), ""])


def failures() -> str:
    """Write the page."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Codes: `failure.code` in a task's record\n",
            *table(("code", "what to do"), named(HINTS)),
            "\n## Checks: `checks.<name>.status`\n",
            *table(("status", "meaning"), named(STATUSES)),
            "\n## Runs of Claude Code: `agent.outcome` in iterations/NN/checks.json\n",
            "A run is judged by its last `result` event, never by its exit code.\n",
            *table(("outcome", "meaning"), named(OUTCOMES)),
            "",
        ]
    )


def named(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Rows of a name and its text."""
    return ((f"`{name}`", text) for name, text in texts.items())


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Make a table of Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(heads), "|" + "---|" * len(heads), *map(line, rows)]


if __name__ == "__main__":
    Path("docs/failures.md").write_text(failures())
    Path("docs/toolchains.md").write_text(toolchains())
    Path("docs/tampering.md").write_text(tampering())
