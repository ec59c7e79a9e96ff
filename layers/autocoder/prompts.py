"""What Claude Code and the planner are told. The first line of every prompt names the task."""

import re
from typing import NamedTuple

from autocoder.checks import CheckReport, CheckResult
from autocoder.message import Project, TaskMessage
from autocoder.plan import Plan
from autocoder.toolchains import ENVIRONMENTS

HEADING = "Autocoder task {task_id}, iteration {iteration} of {most}."
HEADING_PATTERN = re.compile(r"^Autocoder task \S+, iteration (\d+) of \d+\.$", re.MULTILINE)

PLAN_HEADING = "Autocoder task {task_id}, plan."
PLAN_HEADING_PATTERN = re.compile(r"Autocoder task (\S+), plan\.\n")  # only a prompt's first line

PLAN = """\
{heading}

Plan the project that the specification describes. A coding agent then builds it from the same
specification, with your plan as advice; after that a service installs, builds and tests it with
commands of its own.

## Specification

{specification}
{form}
## The plan

- name: what the project is called.
- environment: one of {environments}. The sender asked for {environment}.
- files: those that the project needs, tests among them, each with its purpose.
- checks: commands that show that it works, run in the project's folder.
- acceptance_criteria: what must be true of the project, each to be shown by a test.
- risks: what the specification leaves open, and what is easily got wrong.

Be concrete and short. Plan nothing that the specification does not ask for.
"""

BUILD = "Build the project that the specification describes, in the current folder."
CHANGE = """\
The current folder holds a project. Change it as the specification says, and leave all else as it
is: what works now must work then."""

AGAIN = """
An earlier attempt has worked on it: its files are in the folder. Look at them first, keep what is
good, and finish it."""

FIRST = """\
{heading}

{task}

## Specification

{specification}
{form}{plan}
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

The service ran the project's checks{where}. These did not pass:

{failures}
Find the cause and fix it in the project. Do not delete, skip or weaken a test to make it pass,
unless the test contradicts the specification; then correct the test and say why.
{given}"""

GIVEN = """
The current folder holds the project, as an earlier attempt left it. This is what it is to be:

## Specification

{specification}
{form}"""

AFRESH = """ again, in a fresh sandbox that had the
project's files and nothing else, after they had passed here"""

FAILURE = """\
### {name}: {how}

Command: `{command}`

```
{output}
```
"""


ADVICE = """
## Plan

Advice, made from the specification alone. Where the two differ, the specification counts. The
commands are suggestions: the service runs its own.

- Name: {name}
- Environment: {environment}
"""


def plan_prompt(task_id: str, message: TaskMessage) -> str:
    """Ask for a plan."""
    return PLAN.format(
        heading=PLAN_HEADING.format(task_id=task_id),
        specification=message.specification,
        form=form(message.project),
        environments=", ".join(ENVIRONMENTS),
        environment=message.environment,
    )


class Place(NamedTuple):
    """Which run a prompt is for."""

    task_id: str
    iteration: int
    most: int  # the last iteration that this attempt may have


def first_prompt(
    at: Place, message: TaskMessage, plan: Plan | None = None, *, again: bool = False
) -> str:
    """Ask for the project; `again`: an earlier attempt has begun it."""
    return FIRST.format(
        heading=HEADING.format(**at._asdict()),
        task=(CHANGE if message.source else BUILD) + (AGAIN if again else ""),
        specification=message.specification,
        form=form(message.project),
        plan=advice(plan) if plan else "",
    )


def advice(plan: Plan) -> str:
    """Show a plan to the agent."""
    lists = {
        "Files": [f"`{file.path}`: {file.purpose}" for file in plan.files],
        "Checks": [f"{check.name}: `{check.command}`" for check in plan.checks],
        "Acceptance criteria": plan.acceptance_criteria,
        "Risks": plan.risks,
    }
    parts = [ADVICE.format(name=plan.name, environment=plan.environment)]
    for title, lines in lists.items():
        if lines:
            parts.append(f"\n{title}:\n\n" + "".join(f"- {line}\n" for line in lines))
    return "".join(parts)


def fix_prompt(
    at: Place,
    message: TaskMessage,
    report: CheckReport,
    cleanly: bool = False,
    *,
    anew: bool = False,
) -> str:
    """Send the failures back; `cleanly`: those of the clean room; `anew`: to a new session."""
    failures = "\n".join(
        FAILURE.format(
            name=check.name, how=ended(check), command=check.command, output=check.output
        )
        for check in report.checks
        if check.status not in ("passed", "not_run")
    )
    return FIX.format(
        heading=HEADING.format(**at._asdict()),
        where=AFRESH if cleanly else "",
        failures=failures,
        given=GIVEN.format(specification=message.specification, form=form(message.project))
        if anew
        else "",
    )


def ended(check: CheckResult) -> str:
    """Say how a check ended; not every one is a command."""
    code = "" if check.exit_code is None else f", exit code {check.exit_code}"
    return check.status.replace("_", " ") + code


def form(project: Project) -> str:
    """Show the form's filled-in fields."""
    lines = [
        f"- {name.capitalize()}: {'; '.join(value) if isinstance(value, list) else value}"
        for name, value in project.model_dump().items()
        if value
    ]
    return "\n## Project\n\n" + "\n".join(lines) + "\n" if lines else ""
