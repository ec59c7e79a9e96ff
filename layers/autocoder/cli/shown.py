"""How things are shown: colours, times, sizes, lines of any width."""

import json
import os
import shutil
import sys
from datetime import datetime
from typing import Any

from autocoder.text import printable

COLOURS = {"SUCCEEDED": 32, "FAILED": 31, "REJECTED": 31, "CANCELLED": 33, "RUNNING": 36}


def columns() -> int | None:
    """The terminal's width; None where stdout is a pipe or a file, which has none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def painted(status: str) -> str:
    """A status in its colour, if colours are wanted (https://no-color.org) and can be seen."""
    plainly = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plainly or not sys.stdout.isatty() or status not in COLOURS:
        return status
    return f"\x1b[{COLOURS[status]}m{status}\x1b[0m"


def here(time: str) -> str:
    """A record's time as the clock on the wall has it."""
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def print_json(content: Any) -> None:
    """Print for programs."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=sys.stdout.isatty()) + "\n")


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Print names and what is said of them; in a terminal, a long text goes on under itself."""
    import textwrap

    margin = 2 + max((len(name) for name, _ in rows), default=0)
    width = columns()
    for name, text in rows:
        said = printable(text)  # much of it was written by an agent
        lines = textwrap.wrap(said, max(width - margin, 20)) if width else [said]
        for number, line in enumerate(lines or [""]):
            first, rest = line.partition(",")[0], line.partition(",")[1:]
            shown = painted(first) + "".join(rest) if name == "status" else line
            sys.stdout.write(f"{'' if number else name:<{margin}}{shown}".rstrip() + "\n")
