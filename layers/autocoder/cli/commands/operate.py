"""Running the service: its queues, its sandboxes, what it costs, and whether all is well."""

from typing import Annotated, Literal

import typer

from autocoder.cli.problems import UsageError
from autocoder.cli.target import AsJson, Local, Profile, Region, Stack, Target

app = typer.Typer()
queue = typer.Typer(rich_markup_mode=None)
sandboxes = typer.Typer(rich_markup_mode=None)
app.add_typer(queue, name="queue")
app.add_typer(sandboxes, name="sandboxes")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def alone(context: typer.Context) -> bool:
    """Whether a group was called without one of its commands; options before one would be lost."""
    if context.invoked_subcommand and any(context.params.values()):
        raise UsageError(f"options go behind `{context.invoked_subcommand}`, not before it.")
    return context.invoked_subcommand is None


@queue.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Show what waits, and dead letters.

    Messages, how old the oldest is, tasks that wait for a slot, and how many slots are taken.
    """
    if not alone(context):
        return
    from autocoder.cli.queue import show_queue
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_queue(service, as_json=as_json))


@queue.command()
def peek(
    dead: Annotated[
        bool,
        typer.Option("--dead-letters/--waiting", help="Which queue; --waiting is the service's."),
    ] = True,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many, at most.")] = 10,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Look at dead letters, and why they are.

    What they say, why they were rejected, and whether they would be now.
    They are received for that and given back at once; nobody else receives dead letters. A look at
    the service's own queue (--waiting) competes with the service, and SQS counts it: after 20
    receives a message becomes a dead letter.
    """
    from autocoder.cli.redrive import show_letters
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_letters(service, count, dead=dead, as_json=as_json))


@queue.command()
def redrive(
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Also those that are rejected again, and come back as new ones."
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Send dead letters again.

    Those that would be accepted now; exit 1 if others stay. A message without a task_id gets the
    one that it had, so that it stays the same task. One that cancels or retries gets a new SQS id,
    by which it is listed should it be rejected once more.
    """
    from autocoder.cli.redrive import redrive as send_again
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(send_again(service, everything=everything, yes=yes, as_json=as_json))


@queue.command()
def discard(
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="The message's id, as peek shows it.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Delete a dead letter for good, or all.

    The records of tasks stay: only what lies in the queue of dead letters is deleted.
    """
    from autocoder.cli.redrive import discard as delete
    from autocoder.cli.service import open_service

    if (message is None) is not everything:
        raise UsageError("name one message, or --all: `autocoder queue peek` shows them.")
    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(delete(service, message, yes=yes, as_json=as_json))


@sandboxes.callback(invoke_without_command=True)
def show_all(
    context: typer.Context,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """List sandboxes, with age and cost so far.

    Those of this stack, each with its task; an orphan is one whose attempt is over.
    """
    if not alone(context):
        return
    from autocoder.cli.sandboxes import show_sandboxes
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_sandboxes(service, as_json=as_json))


@sandboxes.command()
def kill(
    sandbox: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The sandbox's id.", show_default=False)
    ] = None,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="All whose attempt is over, or that no record knows.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """End a sandbox of the stack, or all that were left behind.

    A task that runs goes on in a new one, from its last checkpoint. Orphans are also ended every
    ten minutes by the service itself.
    """
    from autocoder.cli.sandboxes import kill_sandboxes
    from autocoder.cli.service import open_service

    if (sandbox is None) is not orphans:
        raise UsageError("name one sandbox, or --orphans: `autocoder sandboxes` lists them.")
    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(kill_sandboxes(service, sandbox, yes=yes, as_json=as_json))


@app.command()
def cost(
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="7d, 12h, 2w, or a date: 2026-11-01.")
    ] = "30d",
    by: Annotated[Literal["task", "day", "model"], typer.Option(help="A line for each.")] = "day",
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Add up what tasks cost that were sent since then.

    Reckoned from tokens and sandbox seconds by dated prices. Claude Code's own figure is shown
    beside it as an estimate, and is in no sum.
    """
    from autocoder.cli.cost import show_cost
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_cost(service, since, by, as_json=as_json))


@app.command()
def doctor(
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Check all that a task needs.

    A line each, with a remedy; exit 1 if anything is wrong. A sandbox is made for it and ended
    again, which costs next to nothing.
    """
    from autocoder.cli.doctor import examine

    raise typer.Exit(examine(Target(stack, region, profile, local), as_json=as_json))
