"""Workflow: RunClaudeCode → here → DecideNext. Installs, builds and tests with our own commands.

Re-entrant, as RunClaudeCode is. The report goes to iterations/NN/checks.json; the state holds only
whether it is green.
"""

from typing import Any

from autocoder.checks import CheckReport
from autocoder.claude import parse_line
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.checking import Checking
from autocoder.sandbox.jobs import Job
from autocoder.services import Services, TimeIsUp, following_step, heartbeat
from autocoder.task import ChecksRun, State, seconds_left


def run(state: State, services: Services, time_is_up: TimeIsUp) -> ChecksRun:
    """Run the checks, or follow the run that is under way, to its end or until time is up."""
    assert state.sandbox and state.run  # noqa: S101 - those steps come before
    record = services.tasks.running(state.task_id, state.attempt, stage="checking")
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    box.withdraw_model()
    box.prepare()  # the agent could write our scripts
    job = Job(box, f"checks-{state.iteration}-{state.run.nonce}")
    checking = Checking(job, services.objects.message(state.task_id))
    watch = Watch(state, services)
    end = job.follow(
        checking.commands(),
        deadline_s=seconds_left(record),
        on_line=watch.line,
        heartbeat=lambda: heartbeat(state, services, watch.progress),
        time_is_up=time_is_up,
    )
    if end.status != "done":
        return ChecksRun(iteration=state.iteration, status=end.status)
    folder = TaskFolder(state.task_id)

    def keep_log(check: str, log: bytes) -> None:
        services.objects.write(folder.log(state.iteration, check), log)

    report = CheckReport(
        toolchain=checking.toolchain.name if checking.toolchain else None,
        agent=state.run.model_dump(include={"outcome", "turns", "cost_usd"}),
        checks=checking.results(end, keep_log),
    )
    return conclude(state, services, report)


def conclude(state: State, services: Services, report: CheckReport) -> ChecksRun:
    """Store the report and tell of it."""
    key = TaskFolder(state.task_id).checks(state.iteration)
    services.objects.write_json(key, report.model_dump(mode="json"))
    services.tasks.running(state.task_id, state.attempt, checks=report.summary())
    services.events.note(
        state, "deciding", "checks_ended", green=report.green, checks=report.describe()
    )
    return ChecksRun(
        iteration=state.iteration,
        status="done",
        green=report.green,
        failed=report.failed,
        signature="" if report.green else report.signature,
        broken=report.broken,
    )


class Watch:
    """Turns the runner's lines into the live feed and the record's progress."""

    def __init__(self, state: State, services: Services) -> None:
        """Nothing was seen yet."""
        self.state = state
        self.services = services
        self.progress: dict[str, Any] = {}

    def line(self, offset: int, text: str) -> None:
        """Note the start and the end of each check."""
        event = parse_line(text)
        kind = {"command_started": "check_started", "command_ended": "check_ended"}.get(
            str(event.get("event"))
        )
        if kind:
            detail = {k: v for k, v in event.items() if k in ("name", "exit_code", "seconds")}
            self.progress = {"check": detail.get("name")}
            self.services.events.note(self.state, "checking", kind, offset=offset, **detail)


handler = following_step(run)
