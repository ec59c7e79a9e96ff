"""The command line: `autocoder run`."""

from autocoder.cli.app import main

__all__ = ["main"]
