"""Workflow: the first step, and again after a SandboxLost: then it restores the checkpoint."""

from autocoder.errors import SandboxLost
from autocoder.ports.events import place
from autocoder.services import Services, step
from autocoder.task import SandboxRef, State

MAX_GENERATIONS = 5


def run(state: State, services: Services) -> SandboxRef:
    """Make a sandbox, or its replacement; asked again with the same state, it is the same one."""
    generation = state.sandbox.generation + 1 if state.sandbox else 1
    if generation > MAX_GENERATIONS:
        message = f"{MAX_GENERATIONS} sandboxes vanished while the task ran."
        raise SandboxLost("sandbox_lost", message)
    services.tasks.running(state.task_id, state.attempt, stage="creating_sandbox")
    box = services.sandboxes.create(state.name, generation)
    box.prepare()
    if state.run and state.run.checkpoint:
        with services.objects.open(state.run.checkpoint) as archive:
            box.unpack(archive)
    services.tasks.running(state.task_id, state.attempt, sandbox_id=box.sandbox_id)
    services.events.note(
        state.task_id,
        place(state.attempt, state.iteration, "creating_sandbox", generation),
        "sandbox",
        sandbox_id=box.sandbox_id,
        restored=bool(state.run and state.run.checkpoint),
    )
    return SandboxRef(sandbox_id=box.sandbox_id, generation=generation)


handler = step(run)
