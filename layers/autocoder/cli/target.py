"""Where a command goes: a stack in AWS, named as for the aws CLI, or the local cloud."""

from typing import Annotated, NamedTuple

import typer

from autocoder.cli.completion import task_ids

Stack = Annotated[
    str | None,
    typer.Option("--stack", help="The stack in AWS (cdk.json's)."),
]
Region = Annotated[str | None, typer.Option("--region", help="Its region, as for the aws CLI.")]
Profile = Annotated[
    str | None, typer.Option("--profile", help="The AWS profile, as for the aws CLI.")
]
Local = Annotated[
    bool,
    typer.Option(
        "--local",
        help="The running local cloud; without any of these it is taken if there is one, else AWS.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON, with stable fields.")]
TaskId = Annotated[
    str, typer.Argument(metavar="ID", help="The task's id.", autocompletion=task_ids)
]


class Target(NamedTuple):
    """What the command line says of it; nothing is asked yet."""

    stack: str | None = None
    region: str | None = None
    profile: str | None = None
    local: bool = False
