"""Workflow: DecideNext (green) → here → DecideNext. The same checks, where the agent never was.

The coding sandbox is released first. A fresh one, with no way to the model, gets the checkpoint's
project and nothing else, installs from its own manifests and runs every check again; then the
sender's acceptance tests, which no agent ever sees. Only what is green here has succeeded.

Re-entrant, as TestAndBuild is; a sandbox that vanishes is followed by another.
"""

from autocoder.checks import CheckReport, CheckResult
from autocoder.errors import SandboxLost
from autocoder.model import Hashed
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.checking import (
    CheckFeed,
    Checking,
    acceptance_of,
    ask_versions,
    checking_of,
)
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import Job, JobEnd
from autocoder.services import (
    Services,
    TimeIsUp,
    following_step,
    heartbeat,
    logger,
    make_sandbox,
    note_lost,
    release_sandbox,
)
from autocoder.tamper import examine, with_findings
from autocoder.tamper.case import Case, Snapshot
from autocoder.task import CleanRun, State, seconds_left

MAX_SANDBOXES = 3  # an iteration
GRACE_S = 900  # also for a project that was green when the task's time was over
BEHIND_THE_CHECKS = 5 * 10**8  # where the feed of the acceptance tests begins


def run(state: State, services: Services, time_is_up: TimeIsUp) -> CleanRun:
    """Check the project in a clean room, or follow the checks that are under way there."""
    assert state.sandbox  # noqa: S101 - CreateSandbox comes before
    release_sandbox(state, services, state.sandbox.sandbox_id)
    begun = under_way(state)
    try:
        return verify(state, begun, services, time_is_up)
    except SandboxLost as lost:
        if begun.sandboxes >= MAX_SANDBOXES:
            raise
        logger.warning("clean room lost", extra={"why": lost.message})
        note_lost(state, services)
        return begun.model_copy(update={"sandbox_id": None, "sandboxes": begun.sandboxes + 1})


def under_way(state: State) -> CleanRun:
    """What an earlier call began; where there is none, or it is to be repeated, a new one."""
    known = state.clean if state.clean and state.clean.iteration == state.iteration else None
    if known and known.status == "running":
        return known
    used = known.sandboxes if known else 0
    return CleanRun(iteration=state.iteration, status="running", sandboxes=used + 1)


def verify(state: State, begun: CleanRun, services: Services, time_is_up: TimeIsUp) -> CleanRun:
    """Run the checks, then the acceptance tests, and report."""
    assert state.run  # noqa: S101 - what is green ran
    message = services.objects.message(state.task_id)
    box, begun = clean_room(state, begun, services)
    checking = checking_of(Job(box, f"clean-{state.iteration}", state.run.seal), message)
    end, results = check(state, checking, services, time_is_up)
    if end.status == "done" and message.acceptance:
        job = Job(box, f"acceptance-{state.iteration}-{state.run.nonce}", state.run.seal)
        hidden = acceptance_of(job, checking, message)
        if all(result.status == "passed" for result in results):
            hidden.place()
            end, found = check(state, hidden, services, time_is_up, offset=BEHIND_THE_CHECKS)
            results += found
        else:
            results += hidden.not_run()
    if end.status == "running":
        return begun
    if end.status == "done":
        toolchain = checking.toolchain.name if checking.toolchain else None
        report = CheckReport(
            toolchain=toolchain,
            sandbox_id=box.sandbox_id,
            versions=begun.versions,
            checks=results,
        )
        findings = examine(compared(state, services, report), message.allow)
        begun = conclude(begun, state, services, with_findings(report, findings))
    release_sandbox(state, services, box.sandbox_id)
    return begun.model_copy(update={"status": end.status, "sandbox_id": None})


def clean_room(state: State, begun: CleanRun, services: Services) -> tuple[SandboxHandle, CleanRun]:
    """Make the sandbox and put the project into it, or find the one that is there."""
    if begun.sandbox_id:
        return services.sandboxes.connect(begun.sandbox_id), begun
    assert state.run and state.run.checkpoint  # noqa: S101 - what is green was kept
    box = make_sandbox(state, services, f"clean-{state.iteration}-{begun.sandboxes}")
    box.prepare()
    versions = ask_versions(box)  # now: nothing of the project's can answer in their place
    with services.objects.open(state.run.checkpoint) as archive:
        box.unpack(archive, session=False)
    services.tasks.running(
        state.task_id, state.attempt, stage="verifying", sandbox_id=box.sandbox_id
    )
    services.events.note(state, "verifying", "clean_room", sandbox_id=box.sandbox_id)
    return box, begun.model_copy(update={"sandbox_id": box.sandbox_id, "versions": versions})


def check(
    state: State, checking: Checking, services: Services, time_is_up: TimeIsUp, offset: int = 0
) -> tuple[JobEnd, list[CheckResult]]:
    """Follow a job of checks; once it is done, read what they found and keep their logs."""
    record = services.tasks.running(state.task_id, state.attempt, stage="verifying")
    feed = CheckFeed(state, services.events, "verifying", offset)
    end = checking.job.follow(
        checking.commands(),
        deadline_s=max(seconds_left(record), GRACE_S),
        on_line=feed.line,
        heartbeat=lambda: heartbeat(state, services, feed.progress),
        time_is_up=time_is_up,
    )

    folder = TaskFolder(state.task_id)

    def keep_log(name: str, log: bytes) -> Hashed:
        key = folder.log(state.iteration, f"clean-room-{name}")
        return services.objects.keep(folder, key, log)

    return end, checking.results(end, keep_log) if end.status == "done" else []


def compared(state: State, services: Services, report: CheckReport) -> Case:
    """The same files, so only what ran can differ from what ran in the coding sandbox."""
    coding = services.objects.report(TaskFolder(state.task_id).checks(state.iteration))
    counts = coding.test.tests if coding and coding.test else None
    return Case(
        report,
        Snapshot(),
        ran_before=counts.ran if counts else None,
        skipped_before=counts.skipped if counts else 0,
    )


def conclude(begun: CleanRun, state: State, services: Services, report: CheckReport) -> CleanRun:
    """Store the report and tell of it."""
    key = TaskFolder(state.task_id).clean_room(state.iteration)
    services.objects.write_json(key, report.model_dump(mode="json"))
    services.tasks.running(state.task_id, state.attempt, checks=report.summary())
    said = {"green": report.green, "checks": report.describe()}
    services.events.note(state, "verifying", "clean_room_ended", offset=10**9 - 1, **said)
    return begun.model_copy(update=report.verdict())


handler = following_step(run)
