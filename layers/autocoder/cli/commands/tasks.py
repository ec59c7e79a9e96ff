"""Tasks that were sent: how they are, what they made, and how to end or repeat them."""

from typing import Annotated

import typer

from autocoder.cli.target import AsJson, Local, Profile, Region, Stack, Target, TaskId

app = typer.Typer()


@app.command()
def status(
    task: TaskId,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Show where a task is, or how it ended."""
    from autocoder.cli.service import open_service
    from autocoder.cli.status import show_status

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_status(service, task, as_json=as_json))


@app.command("list")
def list_tasks(
    statuses: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            help="Only those: queued, running, succeeded, failed, cancelled, rejected; repeatable.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show.")] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Where to go on, as a page's end says.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """List tasks, newest first."""
    from autocoder.cli.service import open_service
    from autocoder.cli.status import show_list

    service = open_service(Target(stack, region, profile, local))
    most = None if everything else limit
    raise typer.Exit(show_list(service, statuses or [], most, after, as_json=as_json))
