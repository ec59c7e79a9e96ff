"""`autocoder`: the commands, by what people do with them; each lies in a module of its own.

Exit codes: 0 it succeeded, 1 the task or a check did not, 2 usage or environment, 130 Ctrl-C.
Nothing heavy is imported on the way to a command, so that the light ones answer at once.
"""

import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from autocoder.cli.commands import account, local, operate, run, send, tasks
from autocoder.cli.problems import in_words
from autocoder.text import printable

DEBUG = "AUTOCODER_DEBUG"


class Commands(TyperGroup):
    """The commands, of which Ctrl-C ends any: with 130, as programs do."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; those that have more to say of it catch it themselves."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write("Interrupted.\n")
            raise typer.Exit(128 + signal.SIGINT) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help is plain text: rich alone would take as long as all the rest
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (run.app, send.app, tasks.app, operate.app, local.app, account.app):
    app.add_typer(group)


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"autocoder {version('autocoder')}")
        raise typer.Exit


@app.callback()
def autocoder(
    debug: Annotated[
        bool, typer.Option("--debug", envvar=DEBUG, help="Show where in the code an error arose.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """A specification becomes a tested project.

    Commands on tasks go to the local cloud if one is running, else to AWS; --stack, --region and
    --profile, as for the aws CLI, or --local choose.
    """
    if debug:
        os.environ[DEBUG] = "1"


def main() -> NoReturn:
    """Run the command; what goes wrong is a sentence, and with --debug a traceback above it."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that everything is cleaned up
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    try:
        app()
    except BrokenPipeError:  # whoever read what we said has gone: so do we, as other tools do
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more is said at exit
        sys.exit(128 + signal.SIGPIPE)
    except Exception as problem:
        if os.environ.get(DEBUG):
            import traceback

            traceback.print_exc()
        said = "\n".join(map(printable, in_words(problem).splitlines()))  # it may quote a sandbox
        sys.stderr.write(f"autocoder: {said}\n")
        sys.exit(2)
    sys.exit(0)
