"""Workflow: RunClaudeCode → here → DecideNext. Installs, builds and tests with our own commands.

Re-entrant, as RunClaudeCode is. The report goes to iterations/NN/checks.json; the state holds only
whether it is green.
"""

from autocoder.checks import CheckReport
from autocoder.model import Hashed
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.checking import CheckFeed, checking_of
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
    checking = checking_of(job, services.objects.message(state.task_id))
    feed = CheckFeed(state, services.events, "checking")
    end = job.follow(
        checking.commands(),
        deadline_s=seconds_left(record),
        on_line=feed.line,
        heartbeat=lambda: heartbeat(state, services, feed.progress),
        time_is_up=time_is_up,
    )
    if end.status != "done":
        return ChecksRun(iteration=state.iteration, status=end.status)
    folder = TaskFolder(state.task_id)

    def keep_log(check: str, log: bytes) -> Hashed:
        return services.objects.keep(folder, folder.log(state.iteration, check), log)

    report = CheckReport(
        toolchain=checking.toolchain.name if checking.toolchain else None,
        sandbox_id=box.sandbox_id,
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
    return ChecksRun(iteration=state.iteration, status="done", **report.verdict())


handler = following_step(run)
