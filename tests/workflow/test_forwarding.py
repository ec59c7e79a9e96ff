"""Whole tasks that a model works on, through the gateway: the real CLI, the real SDK, no replay."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.cloud import LocalCloud
from autocoder.local.gateway.forward import Upstream
from autocoder.local.gateway.recorder import Entry, entries, recordings
from autocoder.local.recorded import scenario_of
from tests.model import KEY, USAGE, Block, Fault, Script, ScriptedModel, scripted_model, text, tool
from tests.workflow.support import ended, feed, read, send, shipped

PLAN = {
    "name": "Roman numerals",
    "environment": "python",
    "files": [{"path": "roman.py", "purpose": "all of it"}],
    "checks": [],
    "acceptance_criteria": ["MCMXCIV is 1994."],
    "risks": [],
}
PROJECT = "/home/user/project"
WRONG = "def twice(x):\n    return x + 1\n"
RIGHT = "def twice(x):\n    return x + x\n"
TESTS = "from twice import twice\n\n\ndef test_twice():\n    assert twice(5) == 10\n"
LOOK = "env; cat /proc/*/environ /proc/*/cmdline ~/.* 2>/dev/null; grep -r sk-ant ~ /tmp | head"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as made:
        yield made


@pytest.fixture(scope="module")
def forwarding(
    model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCloud]:
    """A cloud whose gateway forwards; what it records goes where the user's recordings go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        upstream = Upstream(base_url=model.url, api_key=KEY, recordings=recordings())
        with LocalCloud(lambda line: None, upstream=upstream) as running:
            yield running


def write(name: str, content: str) -> Block:
    return tool("Write", file_path=f"{PROJECT}/{name}", content=content)


def first_try() -> list[list[Block]]:
    return [[write("twice.py", RIGHT), write("test_twice.py", TESTS)], [text("Done.")]]


def build(cloud: LocalCloud, task: str, **message: Any) -> dict[str, Any]:
    """Run a task to its end."""
    body = {"specification": "Twice.", "task_id": task, "plan": False, **message}
    cloud.send(json.dumps(body))
    return ended(cloud, task)


def recorded(task: str) -> list[Entry]:
    return list(entries(recordings() / task))


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_a_model_builds_a_project_and_its_key_is_nowhere_and_it_replays(
    forwarding: LocalCloud, cloud: LocalCloud, model: ScriptedModel
) -> None:
    thought = {"type": "thinking", "thinking": "Double it.", "signature": "c2ln"}
    look = tool("Bash", command=LOOK, description="look around")
    model.scripts["built"] = Script(
        {
            0: [[text(json.dumps(PLAN))]],
            1: [
                [
                    thought,
                    text("I begin."),
                    write("twice.py", WRONG),
                    write("test_twice.py", TESTS),
                ],
                [text("Now I look around."), look],
                [text("It should work.")],
            ],
            2: [
                [tool("Read", file_path=f"{PROJECT}/twice.py")],
                [
                    tool(
                        "Edit",
                        file_path=f"{PROJECT}/twice.py",
                        old_string="x + 1",
                        new_string="x + x",
                    )
                ],
                [text("Fixed.")],
            ],
        }
    )
    record = build(forwarding, "built", plan=True)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 2), record
    assert record["plan"]["name"] == "Roman numerals"
    assert read(forwarding, "built", "files/twice.py").decode() == RIGHT

    agents = [seen.headers["user-agent"] for seen in model.of("built")]
    assert "Anthropic/Python" in agents[0]
    assert [agent.split("/")[0] for agent in agents[1:]] == ["claude-cli"] * 6
    assert {seen.headers["x-api-key"] for seen in model.of("built")} == {KEY}

    paid = recorded("built")
    assert [(entry.run, entry.step) for entry in paid][:4] == [(0, 0), (1, 0), (1, 1), (1, 2)]
    cost = record["cost"]
    by_the_gateway = pytest.approx(sum(entry.usd for entry in paid), abs=1e-6)
    assert cost["model_usd"] == by_the_gateway
    by_the_cli = sum(entry.usd for entry in paid if entry.run)
    assert cost["estimate_usd"] == pytest.approx(by_the_cli, abs=1e-6)
    assert cost["models"]["claude-sonnet-5-5"]["output"] == 400 * len(paid)
    assert cost["total_usd"] == pytest.approx(cost["model_usd"] + cost["sandbox_usd"])
    assert cost["sandbox_usd"] > 0

    result = json.loads(read(forwarding, "built", "result.json"))
    assert result["cost"] == cost
    parts = [iteration["cost"] for iteration in result["iterations"]]
    plan_usd = sum(entry.usd for entry in paid if not entry.run)
    assert sum(one["model_usd"] for one in parts) + plan_usd == by_the_gateway
    sandboxes = sum(one["sandbox_usd"] for one in parts)
    assert sandboxes == pytest.approx(cost["sandbox_usd"], abs=2e-6)
    evidence = json.loads(read(forwarding, "built", "evidence.json"))
    assert evidence["cost"] == cost
    assert evidence["software"]["replayed"] is False
    by_iteration = [one["agent"]["model_usd"] for one in evidence["iterations"]]
    assert by_iteration == [one["model_usd"] for one in parts]
    assert feed(forwarding, "built")[-1]["detail"]["cost"] == cost

    token = agent_token(model)
    assert_nowhere(KEY, forwarding, model)
    for path in files_below(recordings() / "built"):
        assert token not in path.read_text(), path

    scenario = scenario_of("built", "built")
    assert token not in scenario.model_dump_json()
    again = ended(cloud, send(cloud, scenario))
    assert (again["status"], again["iteration"]) == ("SUCCEEDED", 2)
    assert read(cloud, "built", "files/twice.py").decode() == RIGHT
    assert used(cloud) == used(forwarding)
    assert again["plan"]["name"] == record["plan"]["name"]


def used(cloud: LocalCloud) -> list[tuple[str, str]]:
    """The tools that the agent used, each with its target."""
    found = [entry["detail"] for entry in feed(cloud, "built") if entry["kind"] == "tool"]
    return [(detail["tool"], detail["target"]) for detail in found]


def agent_token(model: ScriptedModel) -> str:
    """The sandbox's token, which the agent printed and so sent on."""
    body = model.of("built")[3].body.decode()
    assert "ANTHROPIC_API_KEY=local-" in body
    return "local-" + body.partition("ANTHROPIC_API_KEY=local-")[2][:48]


def assert_nowhere(secret: str, cloud: LocalCloud, model: ScriptedModel) -> None:
    """Not in what the agent could see and say, nor in any file, row, object or process."""
    data = secret.encode()
    assert not any(data in seen.body for seen in model.seen)
    for folder in (cloud.folder, recordings()):
        for path in files_below(folder):
            assert data not in path.read_bytes(), path
    s3, bucket = cloud.client("s3"), cloud.outputs["BucketName"]
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(keys) > 10
    for key in keys:
        assert data not in s3.get_object(Bucket=bucket, Key=key)["Body"].read(), key
    for table in ("TasksTable", "TaskEventsTable"):
        assert secret not in str(cloud.table(table).scan()["Items"])
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert data not in (process / name).read_bytes(), process
            except (PermissionError, ProcessLookupError, FileNotFoundError):
                continue


ROGUE = """
import json, os, urllib.request
asked = {"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": [
    {"role": "user", "content": "Autocoder task poor, iteration 1 of 10."}]}
for _ in range(6):
    urllib.request.urlopen(urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(asked).encode(),
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"})).read()
"""


def test_a_budget_that_is_used_up_ends_the_task_and_nothing_more_is_asked(
    forwarding: LocalCloud, cloud: LocalCloud, model: ScriptedModel
) -> None:
    # What the agent asks for behind the CLI's back is known to the gateway alone.
    rogue = tool("Bash", command=f"python3 -c {shlex.quote(ROGUE)}")
    model.scripts["poor"] = Script({1: [[rogue], [write("a.py", RIGHT)], [text("Done.")]]})
    record = build(forwarding, "poor", limits={"budget_usd": 0.1})
    assert (record["status"], record["failure"]["code"]) == ("FAILED", "budget_exceeded"), record
    assert "limits.budget_usd" in record["failure"]["message"]
    assert [entry.status for entry in recorded("poor")] == [200] * 7 + [402]
    assert len(model.of("poor")) == 7

    again = ended(cloud, send(cloud, scenario_of("poor", "poor")))
    assert again["failure"]["code"] == "budget_exceeded"


def test_the_plan_is_paid_from_the_same_budget(
    forwarding: LocalCloud, model: ScriptedModel
) -> None:
    model.scripts["planned-dear"] = Script(
        {0: [[text(json.dumps(PLAN))]], 1: [[write(f"{n}.py", RIGHT)] for n in range(9)]},
        plan_usage={"input_tokens": 40_000, "output_tokens": 1},
    )
    record = build(forwarding, "planned-dear", plan=True, limits={"budget_usd": 0.1})
    assert (record["status"], record["failure"]["code"]) == ("FAILED", "budget_exceeded"), record
    assert "0.11 of 0.10 USD" in record["failure"]["message"]
    assert [entry.status for entry in recorded("planned-dear")] == [200, 200, 200]
    paid = sum(entry.usd for entry in recorded("planned-dear"))
    assert record["cost"]["model_usd"] == pytest.approx(paid, abs=1e-6)


def test_a_key_that_is_refused_ends_the_task_at_once(
    forwarding: LocalCloud, model: ScriptedModel
) -> None:
    model.scripts["no-key"] = Script({}, always=Fault(status=401))
    record = build(forwarding, "no-key")
    assert (record["status"], record["failure"]["code"]) == ("FAILED", "model_refused")
    assert "does not know the API key" in record["failure"]["message"]
    assert len(model.of("no-key")) == 1

    model.scripts["no-plan"] = Script({}, always=Fault(status=401))
    record = build(forwarding, "no-plan", plan=True)
    assert record["failure"]["code"] == "planner_key_refused"
    assert len(model.of("no-plan")) == 1


@pytest.mark.parametrize(
    "fault",
    [Fault(status=529), Fault(status=429, headers={"retry-after": "1"}), Fault(cut=True)],
    ids=["overloaded", "rate limited", "cut stream"],
)
def test_what_passes_is_tried_again_and_the_task_succeeds(
    forwarding: LocalCloud, cloud: LocalCloud, model: ScriptedModel, fault: Fault
) -> None:
    task = f"passing-{fault.status}-{str(fault.cut).lower()}"
    model.scripts[task] = Script({1: first_try()}, faults=[Fault(), fault])
    record = build(forwarding, task)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 1), record
    failed = [entry for entry in recorded(task) if not entry.complete]
    assert [entry.status for entry in failed] == [fault.status]
    assert (failed[0].usd > 0) == fault.cut  # what was said was paid for
    assert len(scenario_of(task, task).runs[0]) == 3


def test_a_task_with_a_scenario_is_replayed_though_there_is_a_key(
    forwarding: LocalCloud, model: ScriptedModel, scenarios: Path
) -> None:
    before = len(model.seen)
    record = ended(forwarding, send(forwarding, shipped(scenarios / "first-try", "replayed")))
    assert record["status"] == "SUCCEEDED"
    assert len(model.seen) == before
    assert USAGE  # the script's answers would have cost something
    assert record["cost"]["model_usd"] == 0
