"""What can go wrong in a command, said in a sentence: no traceback without `--debug`."""

import sys

from autocoder.errors import AutocoderError, Mendable


class UsageError(Mendable):
    """The caller must act before the command can work; the text says how."""


def in_words(problem: Exception) -> str:
    """Say what went wrong; what nobody here thought of is a fault of ours, and is called one."""
    if isinstance(problem, Mendable):
        return str(problem)
    if isinstance(problem, AutocoderError):  # whose text is for machines
        return f"{problem.message.rstrip('.')}. {problem.hint}"
    if "botocore.exceptions" in sys.modules:  # else none of its errors can be here
        from autocoder.cli.refusals import refusal

        if said := refusal(problem):
            return said
    kind = type(problem).__name__
    return f"this is a fault in autocoder: {kind}: {problem}; `autocoder --debug …` shows where."
