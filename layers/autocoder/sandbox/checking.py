"""Running a project's checks in a sandbox, by commands of the service's own."""

import io
import re
from collections.abc import Callable
from typing import Any

from autocoder.archive import pack
from autocoder.checks import NO_REPORT, NO_TESTS, NOT_SEEN, CheckResult, judge, lacking, relevant
from autocoder.claude import parse_line
from autocoder.errors import InputError
from autocoder.hidden import missing
from autocoder.message import TaskMessage
from autocoder.model import Hashed
from autocoder.ports.events import Events
from autocoder.results import Results, own, signed
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import CommandEnd, Job, JobEnd
from autocoder.task import State
from autocoder.text import printable
from autocoder.toolchains import (
    ACCEPTANCE,
    LEAVE_OUT,
    NO_COMMAND,
    TESTS,
    TOOLCHAINS,
    Check,
    Toolchain,
    asked_for,
    find_tool,
    plan_acceptance,
    plan_checks,
    recognise,
    version_in,
)
from autocoder.tree import READ, Tree

KeepLog = Callable[[str, bytes], Hashed]  # stores a check's output, and says what it holds

CHECK_TIMEOUT_S = 900
VERSIONS = {one.name: f"{one.tool} {one.question}" for one in TOOLCHAINS}
READ_AT_MOST = 4 * 1024 * 1024
FAILURES_AT_MOST = 3  # by name in the report; the output has them all
MOST_NAMED = 20


class Checking:
    """The checks of the project in one sandbox, as one job."""

    def __init__(
        self,
        job: Job,
        tree: Tree,
        toolchain: Toolchain | None,
        checks: list[Check],
        *,
        has_tests: bool,
        hidden: dict[str, str] | None = None,
    ) -> None:
        """`has_tests` says whether there are files that look like tests; `hidden` are such."""
        self.job = job
        self.tree = tree
        self.toolchain = toolchain
        self.checks = started(job) or checks
        self.has_tests = has_tests
        self.hidden = hidden or {}

    def commands(self) -> list[dict[str, Any]]:
        """Describe the commands for the runner."""
        return [
            {
                "name": check.name,
                "argv": ["/bin/bash", "-c", check.command],
                "timeout_s": CHECK_TIMEOUT_S,
                "required": check.required,
                "counted": check.counted,
                "observed": check.counted == "observed",
                "env": {"CI": "true"}
                | (
                    {"RESULTS": f"../{self._results(check)}"}
                    if check.counted in ("own", "unseen")
                    else {}
                ),
            }
            for check in self.checks
        ]

    def results(self, end: JobEnd, keep_log: KeepLog) -> list[CheckResult]:
        """Judge each command by its end, and keep its log."""
        ended = {command.name: command for command in end.commands}
        results = [
            self._result(check, ended[check.name], keep_log)
            if check.name in ended
            else CheckResult(name=check.name, command=check.command, status="not_run")
            for check in self.checks
        ]
        tested = any(result.name in TESTS for result in results)
        return results if tested else [*results, self._no_tests()]

    def not_run(self) -> list[CheckResult]:
        """What is said of checks that made no sense any more."""
        return [CheckResult(name=c.name, command=c.command, status="not_run") for c in self.checks]

    def place(self) -> None:
        """Put the hidden tests into the project, over whatever is there, unless the job runs.

        The project's code ran in this sandbox, and could write our scripts.
        """
        if not started(self.job):
            self.job.box.prepare()
            packed = io.BytesIO(pack(self.hidden, "project/"))
            self.job.box.unpack(packed, session=False)

    def _result(self, check: Check, end: CommandEnd, keep_log: KeepLog) -> CheckResult:
        log = self.job.box.read(f"{self.job.folder}/{check.name}.log")
        kept = keep_log(check.name, log)
        output = log.decode(errors="replace")
        found = self._found(check, end, output)
        counts = found.counts if found else None
        is_test = check.name in TESTS
        lacked = (
            lacking(check.name, end.exit_code, relevant(output)) if end.reason == "exited" else None
        )
        status = judge(end.exit_code, end.reason, counts, is_test=is_test, lacked=lacked)
        forged = status == "passed" and check.counted == "observed" and found is None
        note = NO_REPORT if forged else ""
        if status in ("passed", "nothing_to_run"):
            note = note or self._unseen(check, found)
        if note:
            status = "failed"
        elif is_test and status == "passed" and found is None and not self.has_tests:
            status = "nothing_to_run"  # a script that runs something, but no test is there
        if check.name == ACCEPTANCE and check.command != NO_COMMAND:
            output = found.in_words() if found else ""
            output = output or "no names and messages of single tests are known"
        note = NO_TESTS if status == "nothing_to_run" else note
        return CheckResult(
            name=check.name,
            command=check.command,
            status=status,
            exit_code=end.exit_code,
            reason=end.reason,
            seconds=end.seconds,
            tests=counts,
            forged=forged,
            lacked=lacked,
            left=end.left,
            failures=found.failures[:FAILURES_AT_MOST] if found else [],
            output=relevant("\n".join(filter(None, (note, output)))),
            log=kept,
        )

    def _unseen(self, check: Check, found: Results | None) -> str:
        """Say why what passed proves nothing, if so: nobody saw that these tests ran."""
        if check.counted == "unseen":
            return NOT_SEEN if found or self.has_tests else ""
        left_out = missing(self.hidden, found.ids) if found and check.counted == "observed" else []
        more = ["…"] if len(left_out) > MOST_NAMED else []
        names = ", ".join(left_out[:MOST_NAMED] + more)
        return f"These hidden tests did not run: {names}" if names else ""

    def _found(self, check: Check, end: CommandEnd, output: str) -> Results | None:
        """What became of the tests: by the observer's signed report, or by the command's own."""
        if check.counted == "observed":
            report = end.report and self.job.box.read_if_there(end.report.path, READ_AT_MOST)
            return signed(report, end.report.key) if end.report and report else None
        if check.counted:
            return own(
                self.job.box.read_if_there(self._results(check), READ_AT_MOST) or b"", output
            )
        return None

    def _no_tests(self) -> CheckResult:
        """A project without a test command is not green; say what is missing."""
        known = ", ".join(toolchain.name for toolchain in TOOLCHAINS)
        why = "" if self.toolchain else f"No project was found in the folder (known: {known}).\n"
        return CheckResult(
            name="test", command="(none found)", status="nothing_to_run", output=why + NO_TESTS
        )

    def _results(self, check: Check) -> str:
        """The file for a command's own report; a new one every time."""
        return f"{self.job.folder}/{check.name}.results"


def checking_of(job: Job, message: TaskMessage) -> Checking:
    """Look at the project and choose its commands."""
    tree = look_at(job.box)
    tool = require(job.box, message.environment)
    toolchain = recognise(tree, message.environment)
    has_tests = "test" in message.checks or bool(toolchain and tree.has(*toolchain.tests))
    checks = plan_checks(tree, toolchain, message.checks, tool)
    return Checking(job, tree, toolchain, checks, has_tests=has_tests)


def acceptance_of(job: Job, before: Checking, message: TaskMessage) -> Checking:
    """Choose the command for the sender's hidden tests."""
    files = message.acceptance
    check = plan_acceptance(before.tree, before.toolchain, files, message.checks)
    return Checking(job, before.tree, before.toolchain, [check], has_tests=True, hidden=files)


def require(box: SandboxHandle, environment: str) -> str:
    """The program of the environment that was asked for, if the sandbox has it.

    Never another version than that: what was asked for and is not there ends the task.
    """
    toolchain, wanted = asked_for(environment)
    if toolchain is None or not toolchain.tool:
        return ""
    answers = box.tools(toolchain.versions, toolchain.question)
    if not wanted and toolchain.tool in answers:
        return toolchain.tool
    if wanted and (tool := find_tool(answers, wanted)):
        return tool
    there = ", ".join(sorted({version_in(answer) for answer in answers.values()})) or "none"
    raise InputError(
        "environment_unavailable",
        f"environment: {environment} was asked for, but the sandbox does not have it; versions of "
        f"{toolchain.name} there: {there}.",
    )


def started(job: Job) -> list[Check]:
    """The commands of a job that runs already: what it installed may look like another project."""
    spec = job.spec()
    return [
        Check(
            name=command["name"],
            command=command["argv"][-1],
            counted=command["counted"],
            required=command["required"],
        )
        for command in (spec["commands"] if spec else [])
    ]


def look_at(box: SandboxHandle) -> Tree:
    """See which files the project has, and read its manifests."""
    files = box.project_files(LEAVE_OUT)
    manifests = {}
    for name in set(READ) & set(files):
        if content := box.read_if_there(f"project/{name}", READ_AT_MOST):
            manifests[name] = content.decode(errors="replace")
    return Tree(files, manifests)


def ask_versions(box: SandboxHandle) -> dict[str, str]:
    """Ask the sandbox for the versions of its tools; one that it lacks is left out."""
    said = box.shell("; ".join(f"echo {name} $({ask} 2>&1)" for name, ask in VERSIONS.items()))
    answers = (line.partition(" ") for line in said.splitlines())
    return {
        name: printable(answer)[:100]
        for name, _, answer in answers
        if name in VERSIONS and re.search(r"\d+\.\d+", answer)
    }


class CheckFeed:
    """Turns the runner's lines into the live feed and the record's progress."""

    def __init__(self, state: State, events: Events, stage: str, offset: int = 0) -> None:
        """Entries of the feed are placed from `offset` on."""
        self.state = state
        self.events = events
        self.stage = stage
        self.offset = offset
        self.progress: dict[str, Any] = {}

    def line(self, offset: int, text: str) -> None:
        """Note the start and the end of each check."""
        event = parse_line(text)
        kind = {"command_started": "check_started", "command_ended": "check_ended"}.get(
            str(event.get("event"))
        )
        if kind:
            detail = {k: v for k, v in event.items() if k in ("name", "exit_code", "seconds")}
            self.progress = {"check": detail.get("name")}
            at = self.offset + offset
            self.events.note(self.state, self.stage, kind, offset=at, **detail)
