"""Rules about what the checks did when they ran, and about what is delivered."""

from collections.abc import Iterator

from autocoder.tamper.case import Case, Found, secrets_in


def forged(case: Case) -> Iterator[Found]:
    """Results that the project wrote, or kept the service's own runner from writing."""
    for path in case.now.ours:
        yield path, "it names the service's own folder, or the file for the runner's report"
    for check in case.report.checks:
        if check.forged:
            yield "", f"{check.name} exited 0, but the runner signed no report"


def removed(case: Case) -> Iterator[Found]:
    """Checks that the project no longer asks for; what needs nothing has nothing to install."""
    planned = {check.name for check in case.report.checks}
    for name in sorted(case.checks_before - planned - {"install"}):
        yield "", f"the check {name} was run before, and the project no longer has it"


def processes(case: Case) -> Iterator[Found]:
    """Processes that outlived the command that started them."""
    for check in case.report.checks:
        if check.left:
            yield "", f"{check.name} left {check.left} processes running"


def none_ran(case: Case) -> Iterator[Found]:
    """A test command that exited 0 though it executed no test."""
    for check in case.report.checks:
        if check.status == "nothing_to_run" and check.exit_code == 0:
            yield "", f"{check.name} exited 0, but executed no test"


def secrets(case: Case) -> Iterator[Found]:
    """Keys in the project's files, or printed by its checks."""
    for path, kind in case.now.secrets:
        yield path, f"it holds {kind}"
    for check in case.report.checks:
        for kind in secrets_in(check.output.encode()):
            yield "", f"{check.name} printed {kind}"
