"""Workflow: CreateSandbox → here → TestAndBuild. Runs the agent, then keeps what it wrote.

Re-entrant: called again it attaches to the run that is under way, and a run whose checkpoint is
there is not run again (the sandbox was lost after it).
"""

from typing import Any

from autocoder import claude, prompts
from autocoder.checks import CheckReport
from autocoder.errors import AgentError
from autocoder.message import TaskMessage
from autocoder.ports.events import place
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.client import FOLDER, SandboxHandle
from autocoder.sandbox.jobs import Follower, JobEnd
from autocoder.services import Services, TimeIsUp, following_step
from autocoder.task import AgentRun, State, seconds_left
from autocoder.toolchains import LEAVE_OUT


def run(state: State, services: Services, time_is_up: TimeIsUp) -> AgentRun:
    """Run Claude Code, or follow the run that is under way, to its end or until time is up."""
    if state.run and state.run.iteration == state.iteration and state.run.checkpoint:
        return state.run
    assert state.sandbox  # noqa: S101 - CreateSandbox comes before
    record = services.tasks.running(
        state.task_id, state.attempt, stage="coding", iteration=state.iteration
    )
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    watch = Watch(state, services)
    job = f"claude-{state.iteration}"
    follower = Follower(
        box, job, on_line=watch.line, heartbeat=watch.heartbeat, time_is_up=time_is_up
    )
    here = state.run if state.run and state.run.iteration == state.iteration else None
    end = follower.follow(describe(state, services, record), here.offset if here else 0)
    if end.status == "running":
        return before(state).model_copy(
            update={"iteration": state.iteration, "status": "running", "offset": end.offset}
        )
    return conclude(state, services, box, end)


def before(state: State) -> AgentRun:
    """What the runs so far come to."""
    return state.run or AgentRun(iteration=state.iteration, status="running")


def describe(state: State, services: Services, record: dict[str, Any]) -> dict[str, Any]:
    """Write the prompt and describe the run; the same for every caller of one iteration."""
    folder = TaskFolder(state.task_id)
    message = TaskMessage.model_validate(services.objects.read_json(folder.message))
    if state.iteration == 1:
        prompt = prompts.first_prompt(state.task_id, message)
    else:
        found = services.objects.read_json(folder.checks(state.iteration - 1))
        report = CheckReport.model_validate(found)
        prompt = prompts.fix_prompt(state.task_id, state.iteration, message, report)
    services.objects.write(folder.prompt(state.iteration), prompt, "text/markdown")
    return claude.job(
        prompt=prompt,
        model=message.model or services.settings.model,
        max_turns=message.limits.max_turns,
        budget_usd=max(message.limits.budget_usd - before(state).cost_usd, 0.01),
        timeout_s=max(seconds_left(record), 1),
        resume=before(state).session_id,
    )


def conclude(state: State, services: Services, box: SandboxHandle, end: JobEnd) -> AgentRun:
    """Keep transcript and checkpoint; what the run comes to is read from its whole transcript."""
    folder = TaskFolder(state.task_id)
    services.objects.upload(folder.transcript(state.iteration), box.stream(job_file(state, "feed")))
    with services.objects.open(folder.transcript(state.iteration)) as transcript:
        summary = claude.summarize(transcript)
    if end.status == "done":
        raise_if_hopeless(state, services, box, end, summary)
    key = folder.checkpoint(state.iteration)
    services.objects.upload(key, box.pack(LEAVE_OUT))
    services.events.note(
        state.task_id,
        place(state.attempt, state.iteration, "coding", 10**11),
        "agent_ended",
        outcome=summary.outcome,
        turns=summary.turns,
        cost_usd=summary.cost_usd,
    )
    return AgentRun(
        iteration=state.iteration,
        status=end.status,
        session_id=summary.session_id or before(state).session_id,
        outcome=summary.outcome,
        turns=before(state).turns + summary.turns,
        cost_usd=max(summary.cost_usd, before(state).cost_usd),
        checkpoint=key,
    )


def raise_if_hopeless(
    state: State,
    services: Services,
    box: SandboxHandle,
    end: JobEnd,
    summary: claude.RunSummary,
) -> None:
    """Raise where another iteration would end the same way: the API said no, or the CLI died."""
    claude.raise_if_hopeless(summary)
    if summary.outcome != "no_result" or [c["reason"] for c in end.commands] != ["exited"]:
        return
    stderr = box.read(job_file(state, "claude.log")).decode(errors="replace")
    services.objects.write(TaskFolder(state.task_id).log(state.iteration, "claude"), stderr)
    code = end.commands[0]["exit_code"]
    raise AgentError("agent_failed", f"Claude Code ended with {code} and no result: {stderr[:300]}")


def job_file(state: State, name: str) -> str:
    """A file of this iteration's job."""
    return f"{FOLDER}/jobs/claude-{state.iteration}/{name}"


class Watch:
    """Turns the agent's lines into the live feed and the record's progress."""

    def __init__(self, state: State, services: Services) -> None:
        """Nothing was seen yet."""
        self.state = state
        self.services = services
        self.messages: set[str] = set()
        self.progress: dict[str, Any] = {"turn": 0}

    def line(self, offset: int, text: str) -> None:
        """Note the tools that the agent uses."""
        event = claude.parse_line(text)
        if event.get("type") != "assistant":
            return
        self.messages.add(str(claude.as_dict(event.get("message")).get("id")))
        for tool, target in claude.tool_uses(event):
            self.progress = {"turn": len(self.messages), "tool": tool, "target": target}
            self.services.events.note(
                self.state.task_id,
                place(self.state.attempt, self.state.iteration, "coding", offset),
                "tool",
                **self.progress,
            )

    def heartbeat(self) -> bool:
        """Write the progress; say whether the task was cancelled."""
        record = self.services.tasks.progress(
            self.state.task_id, self.state.attempt, **self.progress
        )
        return bool(record.get("cancel_requested"))


handler = following_step(run)
