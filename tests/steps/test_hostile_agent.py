"""An agent that does odd or dishonest things in its sandbox harms at most its own task."""

import json
import threading
from typing import Any

import pytest

from autocoder.archive import Caps
from autocoder.errors import InputError, SandboxLost, TransientError
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox import client, jobs
from autocoder.sandbox.client import SandboxHandle
from autocoder.services import Services
from autocoder.task import Caught, verdict
from functions import finish_task, run_claude_code, test_and_build
from tests.steps.builders import queued
from tests.steps.test_agent_and_checks import WRITE_GREEN, through
from tests.world import World, never


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


def test_a_forged_checks_job_is_not_believed(services: Services, begun: Any) -> None:
    red = {"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): 1/0\n"}}
    end = {"exit_code": 0, "reason": "exited", "seconds": 1}
    ends = [{"name": name, **end} for name in ("install", "build", "test")]
    forged = json.dumps({"commands": ends, "error": None})
    forge = bash(
        "mkdir -p ~/.autocoder/jobs/checks-1 && cd ~/.autocoder/jobs/checks-1"
        f" && touch feed lock install.log build.log test.log && echo '{forged}' > exit.json"
    )
    state = through(begun("forged", [[red, forge]]), services)
    assert state.checks and state.checks.failed == ["test"]


def test_our_scripts_are_put_back_before_they_are_used(services: Services, begun: Any) -> None:
    spoil = bash("echo 'print(1)' > ~/.autocoder/packer.py; echo > ~/.autocoder/runner.py")
    state = through(begun("spoiled", [[*WRITE_GREEN, spoil]]), services)
    assert state.checks and state.checks.green


@pytest.mark.parametrize(
    "odd", ["echo x > secret; chmod 000 secret", "mkdir pyproject.toml", "mkfifo package.json"]
)
def test_odd_files_do_not_fail_the_task(services: Services, begun: Any, odd: str) -> None:
    state = through(begun("odd", [[*WRITE_GREEN, bash(odd)]]), services)
    assert state.checks and state.checks.green


def test_an_agent_that_removes_our_folder_has_lost_its_sandbox(
    services: Services, begun: Any
) -> None:
    state = begun("removed", [[*WRITE_GREEN, bash("rm -rf ~/.autocoder")]])
    with pytest.raises(SandboxLost):
        through(state, services)


def test_a_test_script_that_runs_no_test_is_not_green(services: Services, begun: Any) -> None:
    package = {"name": "a", "scripts": {"test": "node index.js"}}
    files = {"package.json": json.dumps(package), "index.js": "console.log('all good')\n"}
    steps = [
        {"tool": "Write", "input": {"file_path": path, "content": text}}
        for path, text in files.items()
    ]
    state = through(begun("untested-node", [steps]), services)
    report = services.objects.read_json(TaskFolder(state.task_id).checks(1))
    assert [check["status"] for check in report["checks"]] == ["nothing_to_run", "failed"]


def test_a_cancel_whose_step_is_retried_keeps_the_partial_result(
    services: Services, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = begun("retried", [[WRITE_GREEN[0], {**WRITE_GREEN[1], "delay_s": 600}]])
    services.tasks.ask_cancel(state.task_id, "m")

    def broken(self: SandboxHandle, leave_out: Any) -> Any:
        raise TransientError("sandbox_unavailable", "the network broke")

    with monkeypatch.context() as patch:
        patch.setattr(SandboxHandle, "pack", broken)
        with pytest.raises(TransientError):
            run_claude_code.run(state, services, never)
    run = run_claude_code.run(state, services, never)
    assert run.status == "cancelled"
    assert run.checkpoint


def test_what_runs_is_what_is_reported_though_the_project_changed_meanwhile(
    services: Services, begun: Any
) -> None:
    package = json.dumps({"name": "a", "scripts": {"test": "touch package-lock.json; sleep 5"}})
    state = begun(
        "replanned",
        [[{"tool": "Write", "input": {"file_path": "package.json", "content": package}}]],
    )
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    beats = iter([False, True])
    first = test_and_build.run(state, services, lambda: next(beats, True))
    assert first.status == "running"
    test_and_build.run(state, services, never)
    report = services.objects.read_json(TaskFolder(state.task_id).checks(1))
    assert [check["name"] for check in report["checks"]] == ["test", "tamper"]


def test_a_missing_e2b_key_does_not_keep_a_task_from_ending(world: World) -> None:
    services = world.services(e2b_secret_name="no/such/secret")
    state = queued(services, "no-key").model_copy(update={"error": Caught(Error="X", Cause="y")})
    assert services.tasks.take_slot(state.task_id, 1, 10_000, "arn") == "taken"
    with pytest.raises(Exception, match="sandbox_refused"):
        finish_task.run(state, services)
    task = services.tasks.get(state.task_id)
    assert task and task["status"] == "FAILED"
    assert state.name not in services.tasks.holders()


@pytest.mark.parametrize("how", ["pkill -f runner.py", "sleep 1; pkill -f 'runner.py attach'"])
def test_an_agent_that_ends_our_runner_does_not_cancel_its_task(
    services: Services, begun: Any, how: str
) -> None:
    state = begun("terminated", [[bash(f"{how}; sleep 60")]])
    try:
        run = run_claude_code.run(state, services, never)
    except SandboxLost:
        return
    assert run.status != "cancelled"


def test_an_agent_that_stops_our_runner_does_not_outlive_its_time(
    services: Services, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "GRACE_S", 2.0)
    monkeypatch.setattr(run_claude_code, "seconds_left", lambda record: 4.0)
    stop = "kill -STOP $(cat ~/.autocoder/jobs/claude-1/pid); sleep 600"
    state = begun("stopped-clock", [[bash(stop)]])
    with pytest.raises(SandboxLost):
        run_claude_code.run(state, services, never)


def test_a_project_too_large_to_keep_can_still_be_cancelled(
    services: Services, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "Caps", lambda: Caps(members=3))
    many = bash("touch $(seq 1 9)")
    state = begun("too-many", [[many, {**many, "delay_s": 600}]])
    threading.Timer(5, services.tasks.ask_cancel, [state.task_id, "m"]).start()
    run = run_claude_code.run(state, services, never)
    assert (run.status, run.checkpoint) == ("cancelled", None)
    state = state.model_copy(update={"run": run})
    broken = Caught(Error="InputError", Cause="{}")  # and nothing could be extracted
    assert verdict(state.model_copy(update={"error": broken}))[0] == "CANCELLED"


def test_a_project_too_large_to_keep_ends_the_task(
    services: Services, begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "Caps", lambda: Caps(members=3))
    with pytest.raises(InputError) as refused:
        run_claude_code.run(begun("too-many", [[bash("touch $(seq 1 9)")]]), services, never)
    assert refused.value.code == "project_too_large"
