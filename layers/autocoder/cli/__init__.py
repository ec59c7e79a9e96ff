"""The command line, `autocoder`."""

from autocoder.cli.app import main

__all__ = ["main"]
