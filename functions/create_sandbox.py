"""Workflow: PlanTask → here → RunClaudeCode. After a SandboxLost it restores the checkpoint."""

import tempfile

from autocoder.archive import as_checkpoint
from autocoder.errors import SandboxLost
from autocoder.ports.objects import TaskFolder
from autocoder.sandbox.checking import require
from autocoder.sandbox.client import SandboxHandle
from autocoder.services import (
    Services,
    begin,
    logger,
    make_sandbox,
    note_lost,
    release_sandbox,
    step,
)
from autocoder.task import SandboxRef, State

MAX_AN_ITERATION = 5


def run(state: State, services: Services) -> SandboxRef:
    """Make a sandbox, or its replacement; asked again with the same state, it is the same one."""
    begin(state, services, "creating_sandbox")
    if state.sandbox:
        release_sandbox(state, services, state.sandbox.sandbox_id)  # lost to us, but perhaps there
    checkpoint = state.checkpoint or source(state, services)
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
    before = state.sandbox
    used = 1 if before else 0  # an iteration may begin with the sandbox of the one before
    if before and before.iteration == state.iteration:
        used = before.of_iteration
    for number in range(1, MAX_AN_ITERATION - used + 1):
        generation = state.generation + number
        try:
            box = make_sandbox(state, services, generation)
            fill(box, state, checkpoint, services)
        except SandboxLost as lost:
            logger.warning("sandbox lost", extra={"generation": generation, "why": lost.message})
            note_lost(state, services)
            continue
        return SandboxRef(
            sandbox_id=box.sandbox_id,
            generation=generation,
            iteration=state.iteration,
            of_iteration=used + number,
        )
    message = f"{MAX_AN_ITERATION} sandboxes vanished in one iteration."
    raise SandboxLost("sandbox_lost", message)


def fill(box: SandboxHandle, state: State, checkpoint: str | None, services: Services) -> None:
    """Put in place what the agent goes on from; a further attempt begins a session of its own."""
    box.prepare()
    require(box, services.objects.message(state.task_id).environment)
    if checkpoint:
        with services.objects.open(checkpoint) as archive:
            box.unpack(archive, session=state.run is not None)


def source(state: State, services: Services) -> str | None:
    """The project that the sender gave, as a checkpoint; None if the task begins with nothing."""
    given = services.objects.message(state.task_id).source
    key = TaskFolder(state.task_id).checkpoint(0)
    if given is None or services.objects.exists(key):
        return key if given else None
    _, _, name = given.s3.removeprefix("s3://").partition("/")
    with tempfile.TemporaryFile() as packed:
        with services.objects.open(name) as archive:
            as_checkpoint(archive, packed)
        packed.seek(0)
        services.objects.upload_file(key, packed)
    return key


handler = step(run)
