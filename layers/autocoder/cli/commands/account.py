"""An AWS account and an E2B team, made ready."""

import sys
from typing import Annotated

import typer

app = typer.Typer()


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
    """Make an AWS account and an E2B team ready.

    Tries and stores the keys, hands the model's to E2B, builds the template, and checks it all.
    """
    from autocoder.cli.setup import set_up

    try:
        code = set_up(profile=profile, region=region, stage=stage, from_env=from_env)
    except (KeyboardInterrupt, typer.Abort):  # at a prompt, Ctrl-C is the latter
        sys.stderr.write("\nInterrupted; `autocoder setup` again does what is left.\n")
        code = 130
    raise typer.Exit(code)
