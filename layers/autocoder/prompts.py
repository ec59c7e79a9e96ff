"""What Claude Code is told. The first line names task and iteration, in every prompt."""

import re

from autocoder.checks import CheckReport
from autocoder.message import Project, TaskMessage

HEADING = "Autocoder task {task_id}, iteration {iteration} of {most}."
HEADING_PATTERN = re.compile(r"^Autocoder task \S+, iteration (\d+) of \d+\.$", re.MULTILINE)

FIRST = """\
{heading}

Build the project that the specification describes, in the current folder.

## Specification

{specification}
{form}
## What counts

- Write the whole project: code, a manifest where the language has one, a short README.md, and
  tests that cover what the specification asks for. A project without tests is not accepted.
- When you are done, the service installs, builds and tests the project with its own commands in
  this folder. Only their results count. If one fails, you get its output and go on from there.
- Work only in the current folder, use no network but the package registries, leave no process
  running, and ask no questions: nobody is there to answer.
"""

FIX = """\
{heading}

The service ran the project's checks. These did not pass:

{failures}
Find the cause and fix it in the project. Do not delete, skip or weaken a test to make it pass,
unless the test contradicts the specification; then correct the test and say why.
"""

FAILURE = """\
### {name}: {status}, exit code {exit_code}

Command: `{command}`

```
{output}
```
"""


def first_prompt(task_id: str, message: TaskMessage) -> str:
    """Ask for the project."""
    return FIRST.format(
        heading=heading(task_id, 1, message),
        specification=message.specification,
        form=form(message.project),
    )


def fix_prompt(task_id: str, iteration: int, message: TaskMessage, report: CheckReport) -> str:
    """Send the failures back."""
    failures = "\n".join(
        FAILURE.format(**check.model_dump())
        for check in report.checks
        if check.status not in ("passed", "not_run")
    )
    return FIX.format(heading=heading(task_id, iteration, message), failures=failures)


def heading(task_id: str, iteration: int, message: TaskMessage) -> str:
    """Name task and iteration."""
    most = message.limits.max_iterations
    return HEADING.format(task_id=task_id, iteration=iteration, most=most)


def form(project: Project) -> str:
    """Show the form's filled-in fields."""
    lines = [
        f"- {name.capitalize()}: {'; '.join(value) if isinstance(value, list) else value}"
        for name, value in project.model_dump().items()
        if value
    ]
    return "\n## Project\n\n" + "\n".join(lines) + "\n" if lines else ""
