"""What a person sees of a run: lines everywhere, and below them the state in a terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from autocoder.cli.live import View
from autocoder.local.assembly import ROOT

AUTOCODER = Path(sys.executable).with_name("autocoder")
RECORD: dict[str, Any] = {
    "status": "RUNNING",
    "stage": "coding",
    "iteration": 2,
    "limits": {"max_iterations": 10, "budget_usd": 5.0},
    "progress": {"turn": 3, "tool": "Edit", "target": "slugs.py\x1b[2J"},
    "checks": {"build": {"status": "passed"}, "test": {"status": "failed"}},
    "cost": {"model_usd": 0.25},
}


def shown(record: dict[str, Any]) -> str:
    view = View(io.StringIO())
    (task,) = view.tasks
    task.record = record
    task.entry("tool", {"tool": "Write", "target": "a.py"})
    task.entry("tool", {"tool": "Edit", "target": "a.py"})
    task.entry("tool", {"tool": "Bash", "target": "ls"})
    return str(view.panel().plain)


def test_the_state_has_stage_iteration_turn_tool_files_checks_cost_and_time() -> None:
    doing, figures = shown(RECORD).splitlines()
    assert doing.startswith("● coding · iteration 2 of 10 · turn 3 · Edit slugs.py")
    assert "\x1b" not in doing  # an agent can't move the cursor
    assert figures.startswith("  1 files · ✓ build · ✗ test · 0.25 of 5.00 USD · 0:00:00")


def test_a_waiting_task_shows_its_place_in_line() -> None:
    waiting = {"status": "QUEUED", "stage": "queued", "queue_position": 4, "iteration": 0}
    assert "place 4 in line" in shown(waiting)


def test_a_pipe_gets_lines_and_nothing_else() -> None:
    out = io.StringIO()
    view = View(out)
    with view.live:
        view.tasks[0].record = RECORD
        view.say("check", "test: failed\x1b[2J")
    assert re.fullmatch(r" +0\.\ds  check +test: failed.*\n", out.getvalue())
    assert "\x1b" not in out.getvalue()


COLUMNS = 60


def test_in_a_narrow_terminal_the_state_stands_below_the_lines() -> None:
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [str(AUTOCODER), "run", "--scenario", "scenarios/first-try"],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    said = read_all(terminal)
    assert process.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said).replace("\r", "\n").split("\n")
    states = [line for line in lines if line.startswith("● ")]
    assert any(line.startswith("● coding · iteration 1 of 10") for line in states)
    assert all(len(line) <= COLUMNS for line in states)
    assert any("SUCCEEDED in iteration 1" in line for line in lines)
    assert not any("USD" in line and "workflow" in line for line in lines)  # never in one line


def read_all(terminal: int) -> str:
    said = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how a pseudo-terminal says that it is over
            data = b""
        if not data:
            return said.decode(errors="replace")
        said += data
