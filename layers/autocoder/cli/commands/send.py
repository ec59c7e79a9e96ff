"""Tasks onto the queue."""

from pathlib import Path
from typing import Annotated

import typer

from autocoder.cli.completion import examples
from autocoder.cli.target import AsJson, Local, Profile, Region, Stack, Target

app = typer.Typer()


@app.command()
def submit(
    specification: Annotated[
        str | None, typer.Argument(help="What to build, in words; - reads it from standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with the specification.")] = None,
    message: Annotated[
        Path | None, typer.Option(help="A file with a whole task message, as JSON.")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="A file with many: each line a task message; - is stdin.")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A ready example; `list` shows them.", autocompletion=examples
        ),
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--id", help="The task's id (made of the project's name).")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="The most the model may cost, in USD (5).")
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="How often the agent may work on it (10).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A full model id.")] = None,
    environment: Annotated[
        str | None, typer.Option(help="The toolchain, if the files should not tell.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="normal, or high to overtake.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Echoed in record and events; repeatable."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it as it goes; exit 1 if it does not succeed.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the message and the most it may cost; send nothing."),
    ] = False,
    as_json: AsJson = False,
    stack: Stack = None,
    region: Region = None,
    profile: Profile = None,
    local: Local = False,
) -> None:
    """Send a task, or many.

    With nothing given, a form asks for it. Prints the task's id; what to type next goes to stderr.
    Messages are checked by the service's own rules before anything is sent. A line of --jsonl
    without task_id gets one that is made of its content: the same file sent again is no task
    twice.
    """
    from autocoder.cli.compose import Options, pairs
    from autocoder.cli.outgoing import Given
    from autocoder.cli.submit import How
    from autocoder.cli.submit import submit as send

    options = Options(
        budget, max_iterations, model, environment, task_id, priority, pairs(metadata)
    )
    given = Given(specification, file, message, jsonl, example, options)
    target = Target(stack, region, profile, local)
    raise typer.Exit(send(target, given, How(watch, dry_run, as_json)))
