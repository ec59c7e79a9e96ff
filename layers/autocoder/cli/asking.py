"""Asking before something is done that can't be taken back."""

import sys

import typer

from autocoder.cli.problems import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the caller says so, beforehand (`--yes`) or now; without a terminal nobody can.

    A no is no mistake: the command ends with 1, as one that did not do what it is for.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked without a terminal: add --yes.")
    if not typer.confirm(question, err=True):
        sys.stderr.write("Nothing was done.\n")
        raise typer.Exit(1)
