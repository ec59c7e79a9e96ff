"""Workflow: CreateSandbox → here → TestAndBuild. Runs the agent, then keeps what it wrote.

Re-entrant: called again it attaches to the run that is under way, and a run that is done is not run
again (the sandbox was lost after it).
"""

import secrets
from typing import Any

from autocoder import claude, prompts
from autocoder.errors import InputError
from autocoder.ledger import Ledger, Spent, together
from autocoder.message import TaskMessage
from autocoder.ports.objects import TaskFolder
from autocoder.ports.tasks import Entries
from autocoder.prices import Tokens
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import Job, JobEnd
from autocoder.services import Services, TimeIsUp, following_step, heartbeat, logger
from autocoder.task import AgentRun, Failure, State, seconds_left
from autocoder.toolchains import LEAVE_OUT


def run(state: State, services: Services, time_is_up: TimeIsUp) -> AgentRun:
    """Run Claude Code, or follow the run that is under way, to its end or until time is up."""
    if state.run and state.run.iteration == state.iteration and state.run.status == "done":
        return state.run
    assert state.sandbox  # noqa: S101 - CreateSandbox comes before
    record = services.tasks.running(
        state.task_id, state.attempt, stage="coding", iteration=state.iteration
    )
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    box.admit_model()
    job = Job(box, f"claude-{state.iteration}")
    watch = Watch(state, services)
    attached = state.run if state.run and state.run.iteration == state.iteration else None
    if attached:
        watch.turns_before, watch.heard_before = attached.turns, attached.heard
    end = job.follow(
        [describe(state, services, Ledger.of(record))],
        deadline_s=seconds_left(record),
        offset=attached.offset if attached else 0,
        on_line=watch.line,
        heartbeat=lambda: heartbeat(state, services, watch.progress, watch.spent()),
        time_is_up=time_is_up,
    )
    if end.status == "running":
        under_way = {"iteration": state.iteration, "status": "running", "offset": end.offset}
        heard = {"turns": watch.turns, "heard": watch.models}
        return so_far(state).model_copy(update={**under_way, **heard})
    return conclude(state, services, job, end)


def entry_of(state: State) -> str:
    """The run's name in the ledger: one that is repeated in another sandbox is another one."""
    return f"{state.attempt}-{state.iteration}-{state.generation}"


def so_far(state: State) -> AgentRun:
    """What the runs before this one come to."""
    return state.run or AgentRun(iteration=state.iteration, status="running")


def describe(state: State, services: Services, ledger: Ledger) -> dict[str, Any]:
    """Describe the run; only what the first caller of one iteration says counts."""
    message = services.objects.message(state.task_id)
    prompt = write_prompt(state, message, services)
    key = TaskFolder(state.task_id).prompt(state.iteration)
    services.objects.write(key, prompt, "text/markdown")
    return claude.command(
        prompt=prompt,
        model=message.model or services.settings.model,
        max_turns=message.limits.max_turns,
        budget_usd=max(message.limits.budget_usd - ledger.model_usd(state.attempt), 0.01),
        resume=so_far(state).session_id,
    )


def write_prompt(state: State, message: TaskMessage, services: Services) -> str:
    """Ask for the project, or for what the checks before found to be fixed."""
    at = prompts.Place(state.task_id, state.iteration, state.before + message.limits.max_iterations)
    key = failures_of(state)
    if key is None:
        stored = services.objects.plan(state.task_id)
        plan = stored.plan if stored else None
        return prompts.first_prompt(at, message, plan, again=state.checkpoint is not None)
    report = services.objects.report(key)
    assert report  # noqa: S101 - an iteration that is fixed was checked
    cleanly = key.endswith("/clean-room.json")
    return prompts.fix_prompt(at, message, report, cleanly, anew=state.run is None)


def failures_of(state: State) -> str | None:
    """Where the report is that this run is to mend; None if the run is a beginning."""
    last, folder = state.iteration - 1, TaskFolder(state.task_id)
    if last == state.before:
        return state.resumes.report if state.resumes else None
    cleanly = state.clean is not None and state.clean.iteration == last
    return folder.clean_room(last) if cleanly else folder.checks(last)


def conclude(state: State, services: Services, job: Job, end: JobEnd) -> AgentRun:
    """Keep transcript and checkpoint; what the run comes to is read from its whole transcript."""
    folder = TaskFolder(state.task_id)
    transcript = folder.transcript(state.iteration)
    services.objects.upload(transcript, job.box.stream(f"{job.folder}/feed"))
    with services.objects.open(transcript) as lines:
        outcome = claude.read_outcome(lines)
    failure = None
    if end.status == "done":
        outcome = without_result(outcome, end)
        failure = claude.hopeless(outcome) or died(state, services, job, end, outcome)
    checkpoint = keep_project(state, services, job.box, cancelled=end.status == "cancelled")
    cost_usd = settle(state, services, outcome)
    services.events.note(
        state,
        "coding",
        "agent_ended",
        offset=10**9 - 1,  # behind all that the run said
        outcome=outcome.outcome,
        turns=outcome.turns,
        cost_usd=cost_usd,
        estimate_usd=outcome.cost_usd,
    )
    before = so_far(state)
    return AgentRun(
        iteration=state.iteration,
        status="failed" if failure else end.status,
        failure=failure,
        session_id=outcome.session_id or before.session_id,
        outcome=outcome.outcome,
        turns=outcome.turns,
        cost_usd=cost_usd,
        checkpoint=checkpoint,
        nonce=secrets.token_hex(8),
        seal=secrets.token_hex(32),
    )


def keep_project(
    state: State, services: Services, box: SandboxHandle, *, cancelled: bool
) -> str | None:
    """Store the checkpoint; of a task that is cancelled, what can be kept."""
    checkpoint = TaskFolder(state.task_id).checkpoint(state.iteration)
    box.prepare()  # the agent could write our scripts
    try:
        services.objects.upload(checkpoint, box.pack(LEAVE_OUT))
    except InputError as refused:
        if not cancelled:
            raise
        logger.warning("not kept", extra={"reason": refused.message})
        return so_far(state).checkpoint
    return checkpoint


def settle(state: State, services: Services, outcome: claude.Outcome) -> float:
    """Put what the run took into the ledger; say what the model cost the attempt by then."""
    name = entry_of(state)
    ledger = Ledger.of(services.tasks.running(state.task_id, state.attempt))
    spent = Spent(
        attempt=state.attempt,
        iteration=state.iteration,
        models=ledger.took(name, outcome),
        session_id=outcome.session_id,
        estimate_usd=ledger.estimate(name, outcome),
        ended=True,
    )
    entries: Entries = {("runs", name): spent.as_entry()}
    record = services.tasks.running(state.task_id, state.attempt, entries)
    return Ledger.of(record).model_usd(state.attempt)


def without_result(outcome: claude.Outcome, end: JobEnd) -> claude.Outcome:
    """Say why there is no result, where the CLI could not help it."""
    (command,) = end.commands
    killed = command.exit_code < 0 or command.exit_code > 128
    why = {"timed_out": "timed_out", "silent": "silent"}.get(command.reason)
    if outcome.outcome != "no_result" or not (why or killed):
        return outcome
    return outcome.model_copy(update={"outcome": why or "killed"})


def died(
    state: State, services: Services, job: Job, end: JobEnd, outcome: claude.Outcome
) -> Failure | None:
    """Say that the CLI ended by itself and said nothing, if it did: it would do so again."""
    if outcome.outcome != "no_result":
        return None
    (command,) = end.commands
    stderr = job.box.read(f"{job.folder}/claude.log").decode(errors="replace")
    services.objects.write(TaskFolder(state.task_id).log(state.iteration, "claude"), stderr)
    message = f"Claude Code ended with {command.exit_code} and no result: {stderr[:300]}"
    return Failure.of("agent_failed", message)


class Watch:
    """Turns the agent's lines into the live feed and the record's progress."""

    def __init__(self, state: State, services: Services) -> None:
        """Nothing was seen yet."""
        self.state = state
        self.services = services
        self.messages: set[str] = set()
        self.turns_before = 0
        self.heard = claude.Heard()
        self.heard_before: dict[str, Tokens] = {}
        self.progress: dict[str, Any] = {"turn": 0}

    @property
    def turns(self) -> int:
        """The agent's turns, with those that an earlier call saw."""
        return self.turns_before + len(self.messages)

    @property
    def models(self) -> dict[str, Tokens]:
        """What the run took so far, as far as it was heard."""
        return together([self.heard_before, self.heard.models])

    def spent(self) -> Entries:
        """What goes into the ledger while the run is under way: all there is if it is lost."""
        here = Spent(attempt=self.state.attempt, iteration=self.state.iteration, models=self.models)
        return {("runs", entry_of(self.state)): here.as_entry()}

    def line(self, offset: int, text: str) -> None:
        """Note the tools that the agent uses, and those that fail."""
        event = claude.parse_line(text)
        self.heard.hear(event)
        for problem in claude.tool_failures(event):
            self.services.events.note(
                self.state, "coding", "tool_failed", offset=offset, problem=problem
            )
        if event.get("type") != "assistant":
            return
        self.messages.add(str(claude.as_dict(event.get("message")).get("id")))
        for tool, target in claude.tool_uses(event):
            self.progress = {"turn": self.turns, "tool": tool, "target": target}
            self.services.events.note(self.state, "coding", "tool", offset=offset, **self.progress)


handler = following_step(run)
