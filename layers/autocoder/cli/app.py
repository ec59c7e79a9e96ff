"""`autocoder`: every command in one place; what they do lies in modules of their own.

Exit codes: 0 it succeeded, 1 the task ended otherwise, 2 usage or environment, 130 Ctrl-C.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def autocoder() -> None:
    """A specification becomes a tested project."""


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
    """Build what a specification describes, on a local cloud: no account, no Docker.

    With ANTHROPIC_API_KEY, Claude works on it. Without, a scenario replays one that it worked on.
    """
    from autocoder.cli.request import Asked
    from autocoder.cli.run import Places, run_task

    asked = Asked(
        specification, file, scenario, message, budget, max_iterations, model, environment
    )
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
) -> None:
    """Make a scenario of a task, which replays what the model answered, without any key."""
    from autocoder.cli.record import record_task

    raise typer.Exit(record_task(task, folder))


@app.command()
def verify(
    folder: Annotated[
        Path, typer.Argument(help="A task's results, as they lie in S3 or --keep left them.")
    ],
    key: Annotated[
        str | None,
        typer.Option(help="The public key that you trust: a PEM file, or its fingerprint."),
    ] = None,
) -> None:
    """Check that results are what the service signed; exit 1 and name the first mismatch if not."""
    from autocoder.cli.verify import verify as verify_folder

    raise typer.Exit(verify_folder(folder, key, typer.echo))


local = typer.Typer(no_args_is_help=True, help="A local cloud that stays, for other terminals.")
app.add_typer(local, name="local")


@local.command("up")
def local_up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where AWS is served; 0 is any that is free.")
    ] = 4566,
    keep: Annotated[Path | None, typer.Option(help="A folder to keep the logs in.")] = None,
) -> None:
    """Start it and keep it running, until Ctrl-C or `autocoder local down`.

    With ANTHROPIC_API_KEY, tasks are answered by Claude; the shipped scenarios are replayed.
    """
    from autocoder.cli.local import up

    try:
        code = up(port=port, keep=keep)
    except (KeyboardInterrupt, SystemExit):  # both are how it is meant to end
        sys.stderr.write("The local cloud is gone, and everything in it.\n")
        code = 0
    raise typer.Exit(code)


@local.command("status")
def local_status(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Only the lines that a shell evaluates.")
    ] = False,
) -> None:
    """Say where it is and how to reach it; exit 1 if none is running."""
    from autocoder.cli.local import status

    raise typer.Exit(status(as_json=as_json, export=export))


@local.command("down")
def local_down() -> None:
    """End it, and everything in it."""
    from autocoder.cli.local import down

    raise typer.Exit(down())


@app.command()
def setup(
    profile: Annotated[
        str | None, typer.Option(help="The AWS profile, as for the aws CLI.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="The AWS region, as for the aws CLI.")] = None,
    stage: Annotated[
        str | None, typer.Option(help="Another stage than cdk.json's, as for `cdk -c stage=`.")
    ] = None,
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Never ask: take keys from the environment.")
    ] = False,
) -> None:
    """Make an AWS account and an E2B team ready: keys, injection, template, checks."""
    from autocoder.cli.setup import set_up

    try:
        code = set_up(profile=profile, region=region, stage=stage, from_env=from_env)
    except (KeyboardInterrupt, typer.Abort):  # at a prompt, Ctrl-C is the latter
        sys.stderr.write("\nInterrupted; `autocoder setup` again does what is left.\n")
        code = 130
    raise typer.Exit(code)


def main() -> NoReturn:
    """Run the command; an error that the caller can mend is a sentence, not a traceback."""
    from autocoder.cli.problems import PROBLEMS

    for number in (signal.SIGTERM, signal.SIGHUP):  # so that everything is cleaned up
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    try:
        app()
    except PROBLEMS as problem:
        sys.stderr.write(f"autocoder: {problem}\n")
        sys.exit(2)
    except BrokenPipeError:  # whoever read what we said has gone: so do we, as other tools do
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more is said at exit
        sys.exit(128 + signal.SIGPIPE)
    sys.exit(0)
