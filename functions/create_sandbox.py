"""Workflow: PlanTask → here → RunClaudeCode. After a SandboxLost it restores the checkpoint."""

from autocoder.errors import SandboxLost
from autocoder.services import Services, begin, logger, step
from autocoder.task import SandboxRef, State

MAX_GENERATIONS = 5


def run(state: State, services: Services) -> SandboxRef:
    """Make a sandbox, or its replacement; asked again with the same state, it is the same one."""
    begin(state, services, "creating_sandbox")
    if state.sandbox:
        services.sandboxes.kill(state.sandbox.sandbox_id)  # lost to us, but perhaps not gone
    checkpoint = state.run.checkpoint if state.run else None
    made = make(state, checkpoint, services)
    services.tasks.running(state.task_id, state.attempt, sandbox_id=made.sandbox_id)
    services.events.note(
        state.model_copy(update={"sandbox": made}),
        "creating_sandbox",
        "sandbox",
        sandbox_id=made.sandbox_id,
        restored=bool(checkpoint),
    )
    return made


def make(state: State, checkpoint: str | None, services: Services) -> SandboxRef:
    """Make the next sandbox and fill it; one that vanishes meanwhile is followed by another."""
    for generation in range(state.generation + 1, MAX_GENERATIONS + 1):
        try:
            box = services.sandboxes.create(state.name, generation)
            box.prepare()
            if checkpoint:
                with services.objects.open(checkpoint) as archive:
                    box.unpack(archive)
            return SandboxRef(sandbox_id=box.sandbox_id, generation=generation)
        except SandboxLost as lost:
            logger.warning("sandbox lost", extra={"generation": generation, "why": lost.message})
    message = f"{MAX_GENERATIONS} sandboxes vanished while the task ran."
    raise SandboxLost("sandbox_lost", message)


handler = step(run)
