"""`python -m autocoder.reference`: writes docs/failures.md and tampering.md from the code."""

from collections.abc import Mapping
from pathlib import Path

from autocoder.checks import STATUSES
from autocoder.claude import OUTCOMES
from autocoder.errors import HINTS
from autocoder.tamper import RULES

INTRODUCTION = """\
# What can go wrong

Made by `make reference` from the code; do not edit. Who acts on an error, and what is retried, is
drawn in [errors.py](../layers/autocoder/errors.py).
"""


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
iterations/NN/checks.json, in result.json and in summary.md.

These rules make cheating visible where it is cheap. What settles the matter is a test that the
agent can't see: `acceptance`.
"""


def tampering() -> str:
    """Write the page of tamper rules."""
    rows = [
        f"| `{rule.name}` | {'✓' if rule.compares else ''} | {rule.catches} | {rule.misses} |"
        for rule in RULES
    ]
    heads = ["| rule, and code | compares | catches | can't catch |", "|---|---|---|---|"]
    return "\n".join([TAMPERING, *heads, *rows, ""])


def failures() -> str:
    """Write the page."""
    return "\n".join(
        [
            INTRODUCTION,
            "## Codes: `failure.code` in a task's record\n",
            *table(("code", "what to do"), HINTS),
            "\n## Checks: `checks.<name>.status`\n",
            *table(("status", "meaning"), STATUSES),
            "\n## Runs of Claude Code: `agent.outcome` in iterations/NN/checks.json\n",
            "A run is judged by its last `result` event, never by its exit code.\n",
            *table(("outcome", "meaning"), OUTCOMES),
            "",
        ]
    )


def table(heads: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    """Make a table of Markdown."""
    return [
        f"| {heads[0]} | {heads[1]} |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in rows.items()),
    ]


if __name__ == "__main__":
    Path("docs/failures.md").write_text(failures())
    Path("docs/tampering.md").write_text(tampering())
