"""Tasks that were sent: how they are, what they made, and how to end or repeat them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from autocoder.cli.completion import statuses as statuses_known
from autocoder.cli.completion import task_ids
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
            autocompletion=statuses_known,
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
    """List tasks, newest first.

    Where there are more, stderr says the --after that goes on; with --json, too. It is the last
    task's created_at and task_id, with a slash between them.
    """
    from autocoder.cli.service import open_service
    from autocoder.cli.status import show_list

    service = open_service(Target(stack, region, profile, local))
    most = None if everything else limit
    raise typer.Exit(show_list(service, statuses or [], most, after, as_json=as_json))


@app.command()
def watch(
    tasks: Annotated[
        list[str], typer.Argument(metavar="ID…", help="The tasks' ids.", autocompletion=task_ids)
    ],
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Show tasks as they go, until all have ended.

    Exits with 0 if all succeeded, else with 1. Ctrl-C ends the watching, not the tasks. With
    --json, the records come last, on stdout.
    """
    from autocoder.cli.service import open_service
    from autocoder.cli.watch import watch_tasks

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(watch_tasks(service, tasks, as_json=as_json))


@app.command()
def logs(
    task: TaskId,
    iteration: Annotated[
        int | None, typer.Option(min=1, help="Which one, instead of the newest.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this check's output, as it is.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print each line as JSON, {"line": …}.')
    ] = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Show what agent and checks said.

    An iteration at a time: what the agent did, then what each check printed. While the agent is at
    work, the live feed tells of it.
    """
    from autocoder.cli.logs import show_logs
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_logs(service, task, iteration, check, follow=follow, as_json=as_json))


@app.command()
def files(
    task: TaskId,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """List the files that a task made."""
    from autocoder.cli.results import show_files
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_files(service, task, as_json=as_json))


@app.command()
def show(
    task: TaskId,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="One of its files; or result.json, summary.md, plan.json, …"
        ),
    ],
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Print one file that a task made.

    A pipe gets its bytes; in a terminal, control characters are escaped.
    """
    from autocoder.cli.results import show_file
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(show_file(service, task, path))


@app.command()
def download(
    task: TaskId,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to (./ID).", show_default=False)
    ] = None,
    only: Annotated[
        Literal["files"] | None,
        typer.Option(help="The project's files alone, without prompts, logs and evidence."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are there with other content.")
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Bring a task's results here, verified.

    Each file is held against its hash; what is there already is not fetched again. `autocoder
    verify DIR` then proves who signed it.
    """
    from autocoder.cli.download import download as bring
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(bring(service, task, folder or Path(task), only, force=force, as_json=as_json))


@app.command()
def cancel(
    task: TaskId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end; exit 1 if it is another one.")
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """End a task that waits or runs.

    One that waits ends at once, one that runs at its next heartbeat; what it made is kept.
    """
    from autocoder.cli.control import cancel as end
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(end(service, task, wait=wait, as_json=as_json))


@app.command()
def retry(
    task: TaskId,
    watch: Annotated[bool, typer.Option("--watch", help="Show the attempt as it goes.")] = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Begin a new attempt at a task.

    At one that failed or was cancelled, from its last checkpoint.
    """
    from autocoder.cli.control import retry as again
    from autocoder.cli.service import open_service

    service = open_service(Target(stack, region, profile, local))
    raise typer.Exit(again(service, task, watch=watch, as_json=as_json))
