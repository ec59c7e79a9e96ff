"""`python -m infra.reference`: writes docs/settings.md and docs/costs.md from the code."""

import json
from collections.abc import Sequence
from typing import Any

from infra import costs
from infra.settings import ROOT, SECTION, Settings, context

A_TASK_MIN = 20
SETTINGS = """\
# Settings

Made by `make reference` from the code; do not edit. They are in [cdk.json](../cdk.json) under
`context.{section}`; a value that can't work is refused with its rule when you synthesize or set up.

{table}
"""
COSTS = """\
# What it costs besides the model

Made by `make reference` from the code; do not edit. [infra/costs.py](../infra/costs.py) reckons it
from the stack's own sizes and schedules, without free tiers, at list prices ({as_of}).
How long functions run and how much they write are assumptions that stand there.

**Idle: about {idle:.2f} USD a month.** There is no NAT gateway, no container and no instance:
nothing else runs while nobody sends anything.

{idle_table}

**A task of {minutes} minutes: about {task:.2f} USD**, in a sandbox of {size}. The model comes on
top, up to the message's `limits.budget_usd`.

{task_table}

## Prices

What a stack stores is paid for by the month until it expires (`retention_days`).

{prices}
"""


def settings_page() -> str:
    """Every setting of cdk.json: what it is, its bounds, and what is shipped."""
    shipped = context()[SECTION]
    properties = Settings.model_json_schema()["properties"]
    rows = [
        (f"`{name}`", f"`{json.dumps(shipped[name])}`", bounds(kind), kind["description"])
        for name, kind in properties.items()
    ]
    heads = ("setting", "shipped as", "bounds", "meaning")
    return SETTINGS.format(section=SECTION, table=table(heads, rows))


def bounds(kind: dict[str, Any]) -> str:
    """The limits of a number."""
    return f"{kind['minimum']} to {kind['maximum']}" if "minimum" in kind else ""


def costs_page() -> str:
    """What an idle stack and a task cost."""
    settings = Settings.load()
    idle, task = costs.idle_month(), costs.task(A_TASK_MIN, settings)
    prices = [(name, f"{usd:.10f}".rstrip("0").rstrip(".")) for name, usd in costs.PRICES.items()]
    return COSTS.format(
        as_of=costs.AS_OF,
        minutes=A_TASK_MIN,
        size=f"{settings.sandbox_cpus} vCPU and {settings.sandbox_memory_mb / 1024:g} GiB",
        idle=total(idle),
        idle_table=table(("a month in which nothing is sent", "USD"), bill(idle, 2)),
        task=total(task),
        task_table=table((f"a task of {A_TASK_MIN} minutes", "USD"), bill(task, 4)),
        prices=table(("price", "USD"), prices),
    )


def bill(items: Sequence[costs.Item], digits: int) -> list[tuple[str, str]]:
    """The lines of a bill, with its sum."""
    lines = [(item.what, f"{item.usd:.{digits}f}") for item in items]
    return [*lines, ("**together**", f"**{total(items):.{digits}f}**")]


def total(items: Sequence[costs.Item]) -> float:
    """The sum of a bill."""
    return sum(item.usd for item in items)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a table of Markdown."""
    head, *body = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([head, "|" + "---|" * len(heads), *body])


PAGES = {"settings.md": settings_page, "costs.md": costs_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page())
