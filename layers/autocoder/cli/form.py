"""The form: a task message in a few answers, for who starts `autocoder submit` with nothing."""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from autocoder.cli.compose import Options, composed
from autocoder.cli.problems import UsageError

Answer = str | list[str] | None
ENDS = "an empty line ends it"


def fill_in(options: Options) -> dict[str, Any]:
    """Ask for what a message is made of; what the service would refuse is asked for again."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - lines can then be edited, and be longer than 4,095 bytes
    tell("A task in six answers. Enter leaves one out; Ctrl-C ends it, and nothing is sent.")
    project: dict[str, Answer] = {}
    message: dict[str, Any] = {"specification": "to come", "project": project}

    def take(place: dict[str, Any], field: str, answer: Callable[[], Answer]) -> None:
        before = dict(place)
        while True:
            if given := answer():
                place[field] = given
            try:
                composed(message, options)
            except UsageError as error:
                tell(str(error))
                place.clear()
                place.update(before)
            else:
                return

    composed(message, options)  # options that can't be are said before anything is asked
    take(project, "name", lambda: line("Project name: "))
    take(project, "type", lambda: line("Type (api, library, …): "))
    take(message, "specification", description)
    take(project, "requirements", lambda: lines(f"Requirements, one a line; {ENDS}."))
    take(project, "apis", lambda: lines(f"APIs, one a line; {ENDS}."))
    if options.environment is None:
        take(message, "environment", lambda: line("Environment (auto): "))
    if not project:
        del message["project"]
    return composed(message, options)


def description() -> str:
    """What should be built: the one answer that is needed."""
    while not (found := "\n".join(lines(f"What should it do? As many lines as you like; {ENDS}."))):
        tell("Without a description there is nothing to build.")
    return found


def confirmed(message: dict[str, Any], where: str) -> bool:
    """Show the message and ask whether it may go."""
    tell(json.dumps(message, indent=2, ensure_ascii=False))
    return line(f"Send it to {where}? [Y/n] ").lower() in ("", "y", "yes")


def line(question: str) -> str:
    """Ask for a line; the end of the input is a Ctrl-C, too."""
    try:
        return input(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None


def lines(question: str) -> list[str]:
    """Ask for lines, until an empty one."""
    tell(question)
    return list(iter(lambda: line("> "), ""))


def tell(text: str) -> None:
    """Say something."""
    sys.stdout.write(f"{text}\n")
