"""The steps that follow a job: real sandboxes, the real CLI, called by hand."""

import json
from typing import Any

import pytest

from autocoder.archive import pack
from autocoder.errors import InputError, SandboxLost, TaskClosed
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox import client, jobs
from autocoder.sandbox.client import Sandboxes
from autocoder.services import Services
from autocoder.task import AgentRun, Caught, Decision, State, verdict
from functions import (
    create_sandbox,
    decide_next,
    extract_artifacts,
    finish_task,
    run_claude_code,
    test_and_build,
    verify_clean,
)
from tests.steps.builders import queued
from tests.world import World, at_once, never

WRITE_GREEN = [
    {"tool": "Write", "input": {"file_path": "a.py", "content": "A = 1\n"}},
    {
        "tool": "Write",
        "input": {
            "file_path": "test_a.py",
            "content": "from a import A\ndef test_a(): assert A == 1\n",
        },
    },
]


def through(state: State, services: Services) -> State:
    """Run the agent and the checks."""
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    return state.model_copy(update={"checks": test_and_build.run(state, services, never)})


def test_a_sandbox_asked_for_again_is_the_same(services: Services, begun: Any) -> None:
    state = begun("same", [WRITE_GREEN])
    before = state.model_copy(update={"sandbox": None})
    assert create_sandbox.run(before, services) == state.sandbox


def test_a_replaced_sandbox_is_ended_and_an_iteration_has_only_so_many(
    services: Services, begun: Any
) -> None:
    state = begun("replaced", [WRITE_GREEN])
    for number in range(2, create_sandbox.MAX_AN_ITERATION + 1):
        state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
        assert state.sandbox.of_iteration == number
        assert services.sandboxes.by_attempt()[state.name] == [state.sandbox.sandbox_id]
    with pytest.raises(SandboxLost):
        create_sandbox.run(state, services)
    assert state.name not in services.sandboxes.by_attempt()
    fix = Decision(next="fix", iteration=2, reason="red")
    again = create_sandbox.run(state.model_copy(update={"decision": fix}), services)
    assert (again.iteration, again.of_iteration) == (2, 2)


def test_a_version_that_is_not_there_ends_the_task_before_the_agent_begins(begun: Any) -> None:
    with pytest.raises(InputError) as refused:
        begun("version", [WRITE_GREEN], environment="nodejs-1")
    assert refused.value.code == "environment_unavailable"
    assert "nodejs-1 was asked for" in refused.value.message


def test_a_project_is_written_checked_and_extracted(services: Services, begun: Any) -> None:
    state = through(begun("whole", [WRITE_GREEN]), services)
    assert state.checks and state.checks.green
    state = state.model_copy(update={"clean": verify_clean.run(state, services, never)})
    state = state.model_copy(update={"decision": decide_next.run(state, services)})
    result = extract_artifacts.run(state, services)
    assert result.files == 2
    folder = TaskFolder(state.task_id)
    assert services.objects.read(f"{folder.files}a.py") == b"A = 1\n"
    manifest = services.objects.read_json(folder.manifest)
    assert [file["path"] for file in manifest["files"]] == ["a.py", "test_a.py"]
    stored = services.objects.read_json(folder.result)
    assert stored["status"] == "SUCCEEDED"
    assert stored["message"]["specification"] == "x"
    assert stored["iterations"][0]["checks"][-1]["tests"] == {
        "ran": 1,
        "failed": 0,
        "skipped": 0,
        "xfailed": 0,
        "deselected": 0,
    }


def test_handing_over_and_coming_back_runs_the_agent_once(
    world: World, services: Services, begun: Any
) -> None:
    red = [{"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): 1/0\n"}}]
    slow = [{**WRITE_GREEN[0], "delay_s": 1}, *WRITE_GREEN[1:]]
    state = through(begun("handover", [red, slow]), services)
    state = state.model_copy(update={"decision": Decision(next="fix", iteration=2, reason="")})
    handed_over = 0
    while True:
        run = run_claude_code.run(state, services, at_once if handed_over < 2 else never)
        state = state.model_copy(update={"run": run})
        if run.status == "done":
            break
        handed_over += 1
        assert (run.status, run.iteration) == ("running", 2)
    assert handed_over == 2
    steps = [(entry["run"], entry["step"]) for entry in world.model_requests(state.task_id)]
    assert steps == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert test_and_build.run(state, services, never).green


def test_a_run_whose_checkpoint_is_there_is_not_run_again(
    world: World, services: Services, begun: Any
) -> None:
    state = begun("once", [WRITE_GREEN])
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    requests = len(world.model_requests(state.task_id))
    services.sandboxes.kill_all(state.name)
    with pytest.raises(SandboxLost):
        test_and_build.run(state, services, never)
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    assert state.sandbox and state.sandbox.generation == 2
    assert run_claude_code.run(state, services, never) == state.run
    assert test_and_build.run(state, services, never).green
    assert len(world.model_requests(state.task_id)) == requests


def test_a_restored_session_is_resumed(world: World, services: Services, begun: Any) -> None:
    red = [{"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): 1/0\n"}}]
    fix = [{"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): 1\n"}}]
    state = through(begun("resumed", [red, [{"tool": "Read", "input": {"file_path": "test_a.py"}},
                                            *fix]]), services)  # fmt: skip
    assert state.checks and state.checks.failed == ["test"]
    services.sandboxes.kill_all(state.name)
    decision = Decision(next="fix", iteration=2, reason="red")
    state = state.model_copy(update={"decision": decision})
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    state = through(state, services)
    assert state.checks and state.checks.green
    prompt = services.objects.read(TaskFolder(state.task_id).prompt(2)).decode()
    assert "ZeroDivisionError" in prompt
    assert "exit code 1" in prompt


def test_a_project_without_tests_is_not_green(services: Services, begun: Any) -> None:
    state = through(begun("untested", [WRITE_GREEN[:1]]), services)
    assert state.checks and not state.checks.green
    report = services.objects.read_json(TaskFolder(state.task_id).checks(1))
    assert report["checks"][-1]["status"] == "nothing_to_run"


def test_an_empty_folder_is_not_green(services: Services, begun: Any) -> None:
    state = through(begun("empty", [[{"text": "Nothing to do."}]]), services)
    assert state.checks and state.checks.failed == ["test"]
    report = services.objects.read_json(TaskFolder(state.task_id).checks(1))
    assert "No project was found" in report["checks"][0]["output"]


def test_unittest_and_the_senders_own_check_are_run(services: Services, begun: Any) -> None:
    body = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"
    write = [{"tool": "Write", "input": {"file_path": "tests.py", "content": body}}]
    state = through(begun("own", [write], checks={"docs": "exit 4"}), services)
    report = services.objects.read_json(TaskFolder(state.task_id).checks(1))
    by_name = {check["name"]: check for check in report["checks"]}
    assert by_name["test"]["tests"] == {
        "ran": 1,
        "failed": 0,
        "skipped": 0,
        "xfailed": 0,
        "deselected": 0,
    }
    assert (by_name["docs"]["status"], by_name["docs"]["exit_code"]) == ("failed", 4)
    assert state.checks and state.checks.failed == ["docs"]


def test_a_model_that_refuses_ends_the_task_with_its_code(
    world: World, services: Services, begun: Any
) -> None:
    state = begun("refused", [WRITE_GREEN])
    (world.folder / "scenarios" / f"{state.task_id}.json").unlink()  # the gateway answers 403
    run = run_claude_code.run(state, services, never)
    status, failure = verdict(state.model_copy(update={"run": run}))
    assert (status, failure and failure.code) == ("FAILED", "model_refused")


def test_a_cancelled_run_stops_and_keeps_what_is_there(services: Services, begun: Any) -> None:
    state = begun("stopped", [[WRITE_GREEN[0], {**WRITE_GREEN[1], "delay_s": 600}]])
    services.tasks.ask_cancel(state.task_id, "m")  # it runs already: create_sandbox was there
    run = run_claude_code.run(state, services, never)
    assert run.status == "cancelled"
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    assert json.loads(box.read(".autocoder/jobs/claude-1/exit.json"))["error"] == "stopped"
    state = state.model_copy(update={"run": run})
    assert extract_artifacts.run(state, services).prefix == f"tasks/{state.task_id}/"
    assert finish_task.run(state, services).status == "CANCELLED"


def test_the_end_releases_sandbox_and_slot_and_may_be_repeated(
    services: Services, begun: Any
) -> None:
    state = begun("finish", [WRITE_GREEN])
    error = Caught(Error="InputError", Cause="{}")
    state = state.model_copy(update={"error": error})
    for _ in range(2):
        assert finish_task.run(state, services).status == "FAILED"
    with pytest.raises(SandboxLost):
        services.sandboxes.connect(state.sandbox.sandbox_id)
    assert state.name not in services.tasks.holders()
    with pytest.raises(TaskClosed):
        run_claude_code.run(state, services, never)


def test_the_feed_tells_each_thing_once_though_a_step_is_retried(
    world: World, services: Services, begun: Any
) -> None:
    state = begun("feed", [WRITE_GREEN])
    for _ in range(2):  # the first answer was lost on its way to the workflow
        run_claude_code.run(state, services, never)
    tools = [e["detail"]["target"] for e in world.feed(state.task_id) if e["kind"] == "tool"]
    assert tools == ["a.py", "test_a.py"]


def test_a_sandbox_whose_job_is_followed_is_leased_anew(
    services: Services, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun("leased", [[{**WRITE_GREEN[0], "delay_s": 2}]])
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    leased_until = box.sandbox.get_info().end_at
    monkeypatch.setattr(client, "LEASE_S", 3000)
    monkeypatch.setattr(jobs, "LEASE_EVERY_S", 0)
    monkeypatch.setattr(Sandboxes, "connect", lambda self, sandbox_id: box)  # it leases, too
    run_claude_code.run(state, services, never)
    assert (box.sandbox.get_info().end_at - leased_until).total_seconds() > 2000


def failing(services: Services, name: str) -> None:
    """Let no object of this name be stored."""

    def fail(params: dict[str, Any], **_: Any) -> None:
        if params["Key"].endswith(name):
            raise ConnectionError(name)

    services.objects.s3.meta.events.register("before-parameter-build.s3.PutObject", fail)


@pytest.mark.parametrize("name", ["files/a.py", "project.tar.gz", "result.json", "summary.md"])
def test_a_result_that_is_not_whole_has_no_manifest(
    world: World, services: Services, name: str
) -> None:
    state, folder = extractable(services)
    extract_artifacts.run(state, services)
    assert services.objects.exists(folder.manifest)
    failing(services, name)
    with pytest.raises(ConnectionError):
        extract_artifacts.run(state, services)
    assert not services.objects.exists(folder.manifest)


def extractable(services: Services) -> tuple[State, TaskFolder]:
    """A green task with a checkpoint."""
    state = queued(services, "extractable")
    folder = TaskFolder(state.task_id)
    services.objects.write(folder.checkpoint(1), pack({"a.py": "A = 1\n"}, "project/"))
    run = AgentRun(iteration=1, status="done", checkpoint=folder.checkpoint(1))
    finish = Decision(next="finish", iteration=1, reason="Every check passed.")
    return state.model_copy(update={"run": run, "decision": finish}), folder
