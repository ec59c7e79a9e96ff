"""Workflow: RunClaudeCode → here → DecideNext. Installs, builds and tests with our own commands.

Re-entrant, as RunClaudeCode is. The report goes to iterations/NN/checks.json; the state holds only
whether it is green.
"""

from autocoder.archive import project_files
from autocoder.checks import CheckReport, Finding
from autocoder.message import TaskMessage
from autocoder.model import Hashed
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.checking import CheckFeed, checking_of
from autocoder.sandbox.jobs import Job
from autocoder.services import Services, TimeIsUp, following_step, heartbeat
from autocoder.tamper import CHECK, examine, in_order, with_findings
from autocoder.tamper.case import Case, Snapshot
from autocoder.task import ChecksRun, State, seconds_left


def run(state: State, services: Services, time_is_up: TimeIsUp) -> ChecksRun:
    """Run the checks, or follow the run that is under way, to its end or until time is up."""
    assert state.sandbox and state.run  # noqa: S101 - those steps come before
    record = services.tasks.running(state.task_id, state.attempt, stage="checking")
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    box.withdraw_model()
    box.prepare()  # the agent could write our scripts
    job = Job(box, f"checks-{state.iteration}-{state.run.nonce}", state.run.seal)
    message = services.objects.message(state.task_id)
    checking = checking_of(job, message)
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
        agent=state.run.model_dump(include={"outcome", "turns"}),
        checks=checking.results(end, keep_log),
    )
    findings = tampering(state, services, message, report)
    return conclude(state, services, with_findings(report, findings))


def tampering(
    state: State, services: Services, message: TaskMessage, report: CheckReport
) -> list[Finding]:
    """Compare the project with what it was when it was last in order, by its checkpoints.

    An iteration that weakened the tests is not what the next one is compared with.
    """
    assert state.run and state.run.checkpoint  # noqa: S101 - what is checked was kept
    folder = TaskFolder(state.task_id)
    numbers = range(1, state.iteration)
    reports = {n: found for n in numbers if (found := services.objects.report(folder.checks(n)))}
    counts = {n: one.tests for n, found in reports.items() if (one := found.test) and one.tests}
    kept = {n: found for n, found in reports.items() if in_order(found)}
    last = max(kept, default=None)
    given = snapshot(folder.checkpoint(0), services) if message.source else None
    case = Case(
        report,
        snapshot(state.run.checkpoint, services),
        before=snapshot(folder.checkpoint(last), services) if last else given,
        ran_before=max((count.ran for count in counts.values()), default=None),
        skipped_before=counts[last].skipped if last in counts else 0,
        commands=message.checks,
        checks_before={
            check.name for found in kept.values() for check in found.checks if check.name != CHECK
        },
    )
    return examine(case, message.allow, given)


def snapshot(checkpoint: str, services: Services) -> Snapshot:
    """Read a checkpoint."""
    with services.objects.open(checkpoint) as archive:
        return Snapshot(project_files(archive))


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
