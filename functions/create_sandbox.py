"""Workflow: PlanTask → here → RunClaudeCode. After a SandboxLost it restores the checkpoint."""

from autocoder.errors import SandboxLost
from autocoder.services import Services, begin, step
from autocoder.task import SandboxRef, State

MAX_GENERATIONS = 5


def run(state: State, services: Services) -> SandboxRef:
    """Make a sandbox, or its replacement; asked again with the same state, it is the same one."""
    generation = state.generation + 1
    if generation > MAX_GENERATIONS:
        message = f"{MAX_GENERATIONS} sandboxes vanished while the task ran."
        raise SandboxLost("sandbox_lost", message)
    begin(state, services, "creating_sandbox")
    if state.sandbox:
        services.sandboxes.kill(state.sandbox.sandbox_id)  # lost to us, but perhaps not gone
    box = services.sandboxes.create(state.name, generation)
    box.prepare()
    checkpoint = state.run.checkpoint if state.run else None
    if checkpoint:
        with services.objects.open(checkpoint) as archive:
            box.unpack(archive)
    services.tasks.running(state.task_id, state.attempt, sandbox_id=box.sandbox_id)
    made = SandboxRef(sandbox_id=box.sandbox_id, generation=generation)
    services.events.note(
        state.model_copy(update={"sandbox": made}),
        "creating_sandbox",
        "sandbox",
        sandbox_id=box.sandbox_id,
        restored=bool(checkpoint),
    )
    return made


handler = step(run)
