"""Tests that print far too much: the task goes on, and how they began and ended is kept."""

import pytest

from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from functions import run_claude_code, test_and_build
from tests.faults.conftest import Begin
from tests.world import never

TEST = "import sys\ndef test_a():\n    pass\n"
LINE = "y" * 99


@pytest.mark.parametrize("size", [400_000, 200_000_000], ids=["400 KB", "200 MB"])
def test_a_large_log_is_kept_at_both_ends(services: Services, begun: Begin, size: int) -> None:
    write = [{"tool": "Write", "input": {"file_path": "test_a.py", "content": TEST}}]
    command = f"echo begins; yes {LINE} | head -c {size}; echo ends; exit 3"
    state = begun("log", [write], checks={"loud": command})
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    checks = test_and_build.run(state, services, never)
    assert checks.failed == ["loud"]
    report = services.objects.report(TaskFolder(state.task_id).checks(1))
    assert report
    output = {check.name: check.output for check in report.checks}["loud"]
    assert output.startswith("begins") and output.endswith("ends")
    assert len(output) < 10_000
    log = services.objects.read(TaskFolder(state.task_id).log(1, "loud"))
    assert log.startswith(b"begins\n") and log.endswith(b"ends\n")
    assert len(log) < 1_100_000
    assert (b"bytes left out" in log) == (size > 1_100_000)
