"""Workflow: RunClaudeCode → here → DecideNext. Installs, builds and tests with our own commands.

Re-entrant, as RunClaudeCode is. The report goes to iterations/NN/checks.json; the state holds only
whether it is green.
"""

from typing import Any

from autocoder.checks import NO_TESTS, CheckReport, CheckResult, judge, relevant
from autocoder.claude import parse_line
from autocoder.message import TaskMessage
from autocoder.ports.events import place
from autocoder.ports.objects import TaskFolder
from autocoder.results import READERS
from autocoder.sandbox.client import FOLDER, SandboxHandle
from autocoder.sandbox.jobs import Follower, JobEnd
from autocoder.services import Services, TimeIsUp, following_step
from autocoder.task import ChecksRun, State, seconds_left
from autocoder.toolchains import (
    LEAVE_OUT,
    MANIFESTS,
    Rule,
    Toolchain,
    Tree,
    plan_checks,
    recognise,
)

CHECK_TIMEOUT_S = 900
MANIFEST_BYTES = RESULTS_BYTES = 4 * 1024 * 1024


def run(state: State, services: Services, time_is_up: TimeIsUp) -> ChecksRun:
    """Run the checks, or follow the run that is under way, to its end or until time is up."""
    assert state.sandbox and state.run  # noqa: S101 - those steps come before
    record = services.tasks.running(state.task_id, state.attempt, stage="checking")
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    found = services.objects.read_json(TaskFolder(state.task_id).message)
    message = TaskMessage.model_validate(found)
    tree = look_at(box)
    toolchain = recognise(tree, message.environment)
    rules = plan_checks(tree, toolchain, message.checks)
    left = max(seconds_left(record), 1)
    end = follow(state, services, box, rules, timeout_s=left, time_is_up=time_is_up)
    if end.status != "done":
        return ChecksRun(iteration=state.iteration, status=end.status, offset=end.offset)
    report = CheckReport(
        toolchain=toolchain.name if toolchain else None,
        agent=state.run.model_dump(include={"outcome", "turns", "cost_usd"}),
        checks=results(state, services, box, rules, end) + missing(rules, toolchain),
    )
    return conclude(state, services, report)


def look_at(box: SandboxHandle) -> Tree:
    """See which files the project has, and read its manifests."""
    manifests = {}
    for name in MANIFESTS:
        if content := box.read_if_there(f"project/{name}", MANIFEST_BYTES):
            manifests[name] = content.decode(errors="replace")
    return Tree(box.project_files(LEAVE_OUT), manifests)


def follow(
    state: State,
    services: Services,
    box: SandboxHandle,
    rules: list[Rule],
    *,
    timeout_s: float,
    time_is_up: TimeIsUp,
) -> JobEnd:
    """Run the rules' commands as one job, each for no longer than the task may still take."""
    progress: dict[str, Any] = {}

    def on_line(offset: int, text: str) -> None:
        event = parse_line(text)
        if event.get("event") in ("command_started", "command_ended"):
            seq = place(state.attempt, state.iteration, "checking", offset)
            detail = {k: v for k, v in event.items() if k in ("name", "exit_code", "seconds")}
            services.events.note(state.task_id, seq, f"check_{event['event'][8:]}", **detail)
            progress["check"] = event["name"]

    def heartbeat() -> bool:
        record = services.tasks.progress(state.task_id, state.attempt, **progress)
        return bool(record.get("cancel_requested"))

    commands = [command(state, rule, timeout_s) for rule in rules]
    follower = Follower(
        box, job(state), on_line=on_line, heartbeat=heartbeat, time_is_up=time_is_up
    )
    here = state.checks if state.checks and state.checks.iteration == state.iteration else None
    return follower.follow({"commands": commands}, here.offset if here else 0)


def command(state: State, rule: Rule, timeout_s: float) -> dict[str, Any]:
    """Describe a check for the runner in the sandbox."""
    return {
        "name": rule.check,
        "argv": ["/bin/bash", "-c", rule.command],
        "timeout_s": min(CHECK_TIMEOUT_S, timeout_s),
        "required": rule.required,
        "env": {"CI": "true", "RESULTS": f"../{job_file(state, f'{rule.check}.results')}"},
    }


def job(state: State) -> str:
    """The name of this iteration's job."""
    return f"checks-{state.iteration}"


def job_file(state: State, name: str) -> str:
    """A file of this iteration's job."""
    return f"{FOLDER}/jobs/{job(state)}/{name}"


def results(
    state: State, services: Services, box: SandboxHandle, rules: list[Rule], end: JobEnd
) -> list[CheckResult]:
    """Judge each command by its end, and keep its log."""
    ended = {command["name"]: command for command in end.commands}
    return [
        result(state, services, box, rule, ended[rule.check])
        if rule.check in ended
        else CheckResult(name=rule.check, command=rule.command, status="not_run")
        for rule in rules
    ]


def result(
    state: State, services: Services, box: SandboxHandle, rule: Rule, end: dict[str, Any]
) -> CheckResult:
    """Judge one command."""
    log = box.read(job_file(state, f"{rule.check}.log"))
    services.objects.write(TaskFolder(state.task_id).log(state.iteration, rule.check), log)
    output = log.decode(errors="replace")
    counts = None
    if rule.results:
        report = box.read_if_there(job_file(state, f"{rule.check}.results"), RESULTS_BYTES) or b""
        counts = READERS[rule.results](report, output)
    is_test = rule.check == "test"
    status = judge(end["exit_code"], end["reason"], counts, is_test=is_test)
    if status == "nothing_to_run":
        output = f"{NO_TESTS}\n{output}"
    return CheckResult(
        name=rule.check,
        command=rule.command,
        status=status,
        exit_code=end["exit_code"],
        seconds=end["seconds"],
        tests=counts,
        output=relevant(output),
    )


def missing(rules: list[Rule], toolchain: Toolchain | None) -> list[CheckResult]:
    """A project without a test command is not green; say what is missing."""
    if any(rule.check == "test" for rule in rules):
        return []
    why = "" if toolchain else "No Python or Node project was found in the folder.\n"
    return [
        CheckResult(
            name="test", command="(none found)", status="nothing_to_run", output=why + NO_TESTS
        )
    ]


def conclude(state: State, services: Services, report: CheckReport) -> ChecksRun:
    """Store the report and tell of it."""
    key = TaskFolder(state.task_id).checks(state.iteration)
    services.objects.write_json(key, report.model_dump(mode="json"))
    services.tasks.running(state.task_id, state.attempt, checks=report.summary())
    services.events.note(
        state.task_id,
        place(state.attempt, state.iteration, "deciding"),
        "checks_ended",
        green=report.green,
        failed=report.failed,
    )
    services.events.emit(
        "Iteration Completed",
        state.task_id,
        state.attempt,
        iteration=state.iteration,
        green=report.green,
        failed=report.failed,
    )
    return ChecksRun(
        iteration=state.iteration, status="done", green=report.green, failed=report.failed
    )


handler = following_step(run)
