"""How tasks are watched: lines as things happen; in a terminal, below them, where they are now."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import IO, Any

from autocoder.claude import WRITES
from autocoder.text import printable

Say = Callable[[str, str], None]

MARKS = {"passed": "✓", "failed": "✗", "not_run": "-"}


def timed_lines(write: Callable[[str], object]) -> Say:
    """Make lines with the seconds since the start."""
    began = time.monotonic()

    def say(subject: str, line: str) -> None:
        # What an agent wrote is shown too: it must not move the cursor or forge a line.
        write(f"{time.monotonic() - began:6.1f}s  {subject:<13} {printable(line)}")

    return say


def plain_lines(out: IO[str]) -> Say:
    """Print lines to a pipe or a file, at once."""

    def write(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    return timed_lines(write)


class TaskView:
    """One task's state, as the terminal shows it below the lines."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.began = time.monotonic()
        self.record: dict[str, Any] = {}
        self.files: set[str] = set()

    def entry(self, kind: str, detail: dict[str, Any]) -> None:
        """Take note of a feed entry that the state shows."""
        if kind == "tool" and detail["tool"] in WRITES:
            self.files.add(detail["target"])

    def doing(self) -> list[str]:
        """Stage, iteration, and what is being done."""
        record, progress = self.record, self.record.get("progress") or {}
        said = [str(record.get("stage") or "starting").replace("_", " ")]
        if position := record.get("queue_position"):
            said.append(f"place {position} in line")
        if record.get("iteration"):
            before = (record.get("resumes") or {}).get("iteration", 0)
            most = before + record["limits"]["max_iterations"]
            said.append(f"iteration {record['iteration']} of {most}")
        if record.get("stage") == "coding" and progress.get("turn"):
            tool = f"{progress.get('tool', '')} {progress.get('target', '')}".strip()
            said += [f"turn {progress['turn']}", tool]
        if record.get("stage") in ("checking", "verifying") and progress.get("check"):
            said.append(str(progress["check"]))
        return [printable(part) for part in said if part]

    def figures(self) -> list[str]:
        """Files, checks, cost against the budget, time."""
        record = self.record
        said = [f"{len(self.files)} files"]
        checks = (record.get("checks") or {}).items()
        said += [f"{MARKS.get(found['status'], '!')} {name}" for name, found in checks]
        if limits := record.get("limits"):
            spent = (record.get("cost") or {}).get("model_usd", 0.0)
            each = " an attempt" if record.get("attempt", 1) > 1 else ""
            said.append(f"{spent:.2f} of {limits['budget_usd']:.2f} USD{each}")
        said.append(str(timedelta(seconds=int(time.monotonic() - self.began))))
        return [printable(part) for part in said]


class View:
    """Lines, and below them the tasks' states, which a pipe or a file does not get."""

    def __init__(self, out: IO[str], tasks: int = 1) -> None:
        """A terminal that can't move its cursor is a pipe, too."""
        self.say = plain_lines(out)
        self.tasks = [TaskView() for _ in range(tasks)]
        self.live: AbstractContextManager[Any] = nullcontext()
        if out.isatty():
            self.live = self._live(out)

    def _live(self, out: IO[str]) -> AbstractContextManager[Any]:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=out, highlight=False)
        if not console.is_terminal or console.is_dumb_terminal:
            return nullcontext()
        self.say = timed_lines(
            lambda line: console.print(line, markup=False, emoji=False, soft_wrap=True)
        )
        return Live(get_renderable=self.panel, console=console, transient=True)

    def panel(self) -> Any:
        """Where the tasks are now: two lines each, cut to the terminal's width."""
        from rich.text import Text

        style = {"SUCCEEDED": "green", "FAILED": "red", "CANCELLED": "yellow"}
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, task in enumerate(self.tasks):
            name = [str(task.record.get("task_id", "…"))] if len(self.tasks) > 1 else []
            colour = style.get(task.record.get("status", ""), "cyan")
            begin = "\n" if number else ""
            text.append(f"{begin}● {' · '.join([*name, *task.doing()])}\n", style=colour)
            text.append(f"  {' · '.join(task.figures())}", style="dim")
        return text
