"""One task on a cloud of its own, and what is made of its results."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from autocoder.cli.target import AsJson

app = typer.Typer()


@app.command()
def run(
    specification: Annotated[
        str | None, typer.Argument(help="What to build, in words; - reads it from standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with the specification.")] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(help="A shipped scenario's name, or a folder: message and model's answers."),
    ] = None,
    message: Annotated[
        Path | None, typer.Option(help="A file with the task message to send, as it is.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.01, help="The most it may cost, in USD (5).")
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="How often the agent may work on it (10).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A full model id.")] = None,
    environment: Annotated[
        str | None, typer.Option(help="The toolchain, if the files should not tell.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A folder for the project's files, instead of a new one.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are in that folder.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the final task record as JSON, last on stdout.")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option(help="A folder to keep the results and the logs in.")
    ] = None,
) -> None:
    """Build what a specification describes, here.

    It runs on a local cloud of its own: no account, no Docker. With ANTHROPIC_API_KEY, Claude works
    on it. Without, a scenario replays one that it worked on.
    """
    from autocoder.cli.compose import Options
    from autocoder.cli.request import Asked
    from autocoder.cli.run import Places, run_task

    options = Options(budget, max_iterations, model, environment)
    asked = Asked(specification, file, scenario, message, options)
    try:
        code = run_task(asked, Places(output, force, keep), as_json=as_json)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; everything is cleaned up.\n")
        code = 130
    raise typer.Exit(code)


@app.command()
def record(
    task: Annotated[str, typer.Argument(help="The id of a task that a model worked on.")],
    folder: Annotated[
        Path | None, typer.Option("--as", help="The scenario's folder (scenarios/TASK).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a scenario of a task, to replay it.

    What the model answered is replayed, without any key.
    """
    from autocoder.cli.record import record_task

    raise typer.Exit(record_task(task, folder, as_json=as_json))


@app.command()
def verify(
    folder: Annotated[
        Path, typer.Argument(help="A task's results, as they lie in S3 or --keep left them.")
    ],
    key: Annotated[
        str | None,
        typer.Option(help="The public key that you trust: a PEM file, or its fingerprint."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that results are what was signed.

    Exits with 1, and names the first mismatch, if they are not what the service signed.
    """
    from autocoder.cli.verify import verify as verify_folder

    raise typer.Exit(verify_folder(folder, key, typer.echo, as_json=as_json))
