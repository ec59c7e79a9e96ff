"""The command line: `autocoder run`, `autocoder setup`."""

from autocoder.cli.app import main

__all__ = ["main"]
