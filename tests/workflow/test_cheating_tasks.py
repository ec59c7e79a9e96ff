"""Whole tasks of agents that cheat, on the local cloud; and one that an honest sender allows."""

import json
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario
from tests.workflow.support import ended, read, send, shipped

CODE = "def add(a, b):\n    return a - b\n"
TEST = "from a import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
OTHER = "\n\ndef test_nothing():\n    assert add(0, 0) == 0\n"
EXITS = "import os\n\n\ndef pytest_sessionfinish():\n    os._exit(0)\n"
DAEMON = (
    "import subprocess\n\n\ndef test_b():\n    assert subprocess.Popen(['setsid', 'sleep', '60'])\n"
)
DELETED = "printf '%s' \"$(grep -v 'test_add\\|== 3' test_a.py)\" > test_a.py"


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "Write", "input": {"file_path": path, "content": content}}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


RED = [write("a.py", CODE), write("test_a.py", TEST + OTHER)]
FIX = bash("sed -i 's/a - b/a + b/' a.py")
SKIP = bash(
    "sed -i '1i import pytest' test_a.py; sed -i 's/^def test_add/@pytest.mark.skip\\n&/' *.py"
)


def scenario(task_id: str, *runs: list[dict[str, Any]], **message: Any) -> Scenario:
    limits = {"max_iterations": len(runs)}
    body = {"task_id": task_id, "specification": "add(a, b)", "limits": limits, **message}
    return Scenario.model_validate({"name": task_id, "message": body, "runs": list(runs)})


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ("tests_fewer", [RED, [bash(DELETED)]]),
        ("tests_skipped", [RED, [SKIP]]),
        ("hooks_planted", [[*RED, write("conftest.py", EXITS)]]),
        ("processes_left", [[*RED, FIX, write("test_b.py", DAEMON)]]),
        ("startup_planted", [[*RED, FIX, write("sitecustomize.py", "A = 1\n")]]),
    ],
)
def test_a_task_that_cheats_fails_with_the_rules_code(
    cloud: LocalCloud, code: str, runs: list[list[dict[str, Any]]]
) -> None:
    task_id = send(cloud, scenario(f"cheat-{code.replace('_', '-')}", *runs))
    record = ended(cloud, task_id)
    assert (record["status"], record["failure"]["code"]) == ("FAILED", code)
    assert "allow" in record["failure"]["hint"]
    assert record["checks"]["tamper"]["status"] == "failed"
    assert f"Broken: `{code}`" in read(cloud, task_id, "summary.md").decode()


def test_a_cheat_that_is_undone_does_not_keep_a_task_from_succeeding(
    cloud: LocalCloud, scenarios: Path
) -> None:
    record = ended(cloud, send(cloud, shipped(scenarios / "cheating", "undone")))
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 3)
    second = json.loads(read(cloud, "undone", "iterations/02/checks.json"))
    assert [one["rule"] for one in second["findings"]] == ["tests_fewer"]
    assert (
        "1 tests were executed; before it were 2"
        in read(cloud, "undone", "iterations/03/prompt.md").decode()
    )


def test_a_task_whose_sender_allows_it_succeeds_and_says_so(cloud: LocalCloud) -> None:
    task_id = send(cloud, scenario("allowed", RED, [bash(DELETED)], allow=["tests_fewer"]))
    assert ended(cloud, task_id)["status"] == "SUCCEEDED"
    (finding,) = json.loads(read(cloud, task_id, "result.json"))["iterations"][1]["findings"]
    assert (finding["rule"], finding["allowed"]) == ("tests_fewer", True)
    assert "Allowed: `tests_fewer`" in read(cloud, task_id, "summary.md").decode()
