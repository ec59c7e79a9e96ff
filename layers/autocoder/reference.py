"""`python -m autocoder.reference`: writes docs/failures.md from the tables in the code."""

from collections.abc import Mapping
from pathlib import Path

from autocoder.checks import STATUSES
from autocoder.claude import OUTCOMES
from autocoder.errors import HINTS

INTRODUCTION = """\
# What can go wrong

Made by `make reference` from the code; do not edit. Who acts on an error, and what is retried, is
drawn in [errors.py](../layers/autocoder/errors.py).
"""


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
