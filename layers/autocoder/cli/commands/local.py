"""The local cloud that stays."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from autocoder.cli.target import AsJson

app = typer.Typer(
    name="local",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A local cloud that stays, for other terminals.",
)


@app.command("up")
def local_up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where AWS is served; 0 is any that is free.")
    ] = 4566,
    keep: Annotated[Path | None, typer.Option(help="A folder to keep the logs in.")] = None,
) -> None:
    """Start it, and keep it running.

    It runs until Ctrl-C or `autocoder local down`. With ANTHROPIC_API_KEY, tasks are answered by
    Claude; the shipped scenarios are replayed.
    """
    from autocoder.cli.local import up

    try:
        code = up(port=port, keep=keep)
    except (KeyboardInterrupt, SystemExit):  # both are how it is meant to end
        sys.stderr.write("The local cloud is gone, and everything in it.\n")
        code = 0
    raise typer.Exit(code)


@app.command("status")
def local_status(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Only the lines that a shell evaluates.")
    ] = False,
) -> None:
    """Say where it is, and how to reach it.

    Exits with 1 if none is running.
    """
    from autocoder.cli.local import status

    raise typer.Exit(status(as_json=as_json, export=export))


@app.command("down")
def local_down(as_json: AsJson = False) -> None:
    """End it, and everything in it."""
    from autocoder.cli.local import down

    raise typer.Exit(down(as_json=as_json))
