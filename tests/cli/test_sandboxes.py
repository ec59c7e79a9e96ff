"""`autocoder sandboxes` and `sandboxes kill`, with real sandboxes of the local cloud."""

import json
from typing import Any

from autocoder.prices import sandbox_usd
from tests.cli.lab import Lab

NOW = "2026-11-16T10:00:00.000Z"


def made(lab: Lab) -> tuple[str, str]:
    """A sandbox in use, and one whose attempt is over."""
    lab.put("runs", "RUNNING", NOW, stage="coding", attempt=2)
    lab.put("over", "FAILED", NOW, stage="finished")
    boxes = lab.sandboxes()
    return boxes.create("runs-2", 1).sandbox_id, boxes.create("over-1", 1).sandbox_id


def listed(lab: Lab) -> set[str]:
    return {info.sandbox_id for info in lab.sandboxes().all()}


def rows(lab: Lab) -> list[Any]:
    with lab.caller() as caller:
        done = caller.call("sandboxes", "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_sandboxes_are_listed_with_their_task_and_cost_and_orphans_ended(lab: Lab) -> None:
    used, left = made(lab)
    found = {row["sandbox_id"]: row for row in rows(lab)}
    assert {key: row["orphan"] for key, row in found.items()} == {used: False, left: True}
    row = found[used]
    assert (row["task_id"], row["attempt"], row["stage"]) == ("runs", 2, "coding")
    (size,) = {(info.cpu_count, info.memory_mb) for info in lab.sandboxes().all()}
    lowest, highest = (
        sandbox_usd(seconds, *size) for seconds in (row["age_seconds"], row["age_seconds"] + 0.1)
    )
    assert lowest * 0.9 <= row["cost_usd"] <= highest * 1.1
    with lab.caller() as caller:
        shown = caller.call("sandboxes").stdout
        assert "runs, attempt 2" in shown
        assert "orphan" in shown
        assert f"End {left} (an orphan)" in caller.refused("sandboxes", "kill", "--orphans")
        assert listed(lab) == {used, left}
        done = caller.call("sandboxes", "kill", "--orphans", "--yes")
        assert (done.returncode, done.stdout) == (0, f"{left} is ended.\n")
        assert listed(lab) == {used}
        again = caller.call("sandboxes", "kill", "--orphans", "--yes")
        assert (again.returncode, again.stdout) == (0, "There are no orphans.\n")
        ended = caller.call("sandboxes", "kill", used, "--yes", "--json")
        assert [row["sandbox_id"] for row in json.loads(ended.stdout)] == [used]
        assert listed(lab) == set()
        nothing = caller.call("sandboxes")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == "There are no sandboxes of the local cloud.\n"


def test_what_is_none_of_the_stacks_is_left_alone(lab: Lab) -> None:
    others = lab.sandboxes(owner="another stack")
    box = others.create("theirs-1", 1)
    try:
        assert rows(lab) == []
        with lab.caller() as caller:
            said = caller.refused("sandboxes", "kill", box.sandbox_id, "--yes")
            caller.call("sandboxes", "kill", "--orphans", "--yes")
        assert said.startswith(f"the local cloud has no sandbox {box.sandbox_id}: ")
        assert [info.sandbox_id for info in others.all()] == [box.sandbox_id]
    finally:
        others.kill(box.sandbox_id)


def test_a_sandbox_that_says_nothing_of_a_task_is_an_orphan(lab: Lab) -> None:
    box = lab.sandboxes().create("", 1)
    (row,) = rows(lab)
    assert (row["sandbox_id"], row["task_id"], row["orphan"]) == (box.sandbox_id, None, True)


def test_what_goes_wrong_is_a_sentence(lab: Lab) -> None:
    with lab.caller() as caller:
        assert "name one sandbox, or --orphans" in caller.refused("sandboxes", "kill")
        assert "name one" in caller.refused("sandboxes", "kill", "x", "--orphans")
    with lab.caller(sandboxes={"api_url": "http://127.0.0.1:1"}) as caller:
        assert caller.refused("sandboxes").startswith("E2B did not answer: ")
    with lab.caller(outputs={"E2bSecretName": "nobody/has-it"}) as caller:
        assert "ResourceNotFoundException" in caller.refused("sandboxes")
    del lab.outputs["SandboxOwner"]
    with lab.caller() as caller:
        assert "deploy it again" in caller.refused("sandboxes")
    lab.outputs["SandboxOwner"] = "for the fixture"
