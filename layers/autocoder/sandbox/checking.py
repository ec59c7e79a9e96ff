"""Running a project's checks in a sandbox, by commands of the service's own."""

import io
import json
from collections.abc import Callable
from typing import Any

from autocoder.archive import pack
from autocoder.checks import NO_TESTS, CheckResult, judge, lacking, relevant
from autocoder.claude import parse_line
from autocoder.message import TaskMessage
from autocoder.ports.events import Events
from autocoder.results import READERS, failures
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import CommandEnd, Job, JobEnd
from autocoder.task import State
from autocoder.toolchains import (
    ACCEPTANCE,
    LEAVE_OUT,
    MANIFESTS,
    NO_COMMAND,
    TOOLCHAINS,
    Rule,
    Toolchain,
    Tree,
    always,
    plan_acceptance,
    plan_checks,
    recognise,
)

TESTS = ("test", ACCEPTANCE)

CHECK_TIMEOUT_S = 900
READ_AT_MOST = 4 * 1024 * 1024


class Checking:
    """The checks of the project in one sandbox, as one job."""

    def __init__(
        self, job: Job, toolchain: Toolchain | None, rules: list[Rule], *, has_tests: bool
    ) -> None:
        """`has_tests` says whether there are files that look like tests."""
        self.job = job
        self.toolchain = toolchain
        self.rules = started(job) or rules
        self.has_tests = has_tests

    def commands(self) -> list[dict[str, Any]]:
        """Describe the commands for the runner."""
        return [
            {
                "name": rule.check,
                "argv": ["/bin/bash", "-c", rule.command],
                "timeout_s": CHECK_TIMEOUT_S,
                "required": rule.required,
                "results": rule.results,
                "env": {"CI": "true", "RESULTS": f"../{self._results(rule)}"},
            }
            for rule in self.rules
        ]

    def results(self, end: JobEnd, keep_log: Callable[[str, bytes], None]) -> list[CheckResult]:
        """Judge each command by its end, and keep its log."""
        ended = {command.name: command for command in end.commands}
        results = [
            self._result(rule, ended[rule.check], keep_log)
            if rule.check in ended
            else CheckResult(name=rule.check, command=rule.command, status="not_run")
            for rule in self.rules
        ]
        tested = any(result.name in TESTS for result in results)
        return results if tested else [*results, self._no_tests()]

    def not_run(self) -> list[CheckResult]:
        """What is said of checks that made no sense any more."""
        return [CheckResult(name=r.check, command=r.command, status="not_run") for r in self.rules]

    def place(self, files: dict[str, str]) -> None:
        """Put files into the project, over whatever is there; a job that runs has them already."""
        if not started(self.job):
            packed = io.BytesIO(pack(files, "project/"))
            self.job.box.unpack(packed, session=False)

    def _result(
        self, rule: Rule, end: CommandEnd, keep_log: Callable[[str, bytes], None]
    ) -> CheckResult:
        log = self.job.box.read(f"{self.job.folder}/{rule.check}.log")
        keep_log(rule.check, log)
        output = log.decode(errors="replace")
        counts = None
        if rule.results:
            report = self.job.box.read_if_there(self._results(rule), READ_AT_MOST) or b""
            counts = READERS[rule.results](report, output)
            if rule.check == ACCEPTANCE and rule.command != NO_COMMAND:
                output = failures(report) or "no names and messages of single tests are known"
        is_test = rule.check in TESTS
        lacked = (
            lacking(rule.check, end.exit_code, relevant(output)) if end.reason == "exited" else None
        )
        status = judge(end.exit_code, end.reason, counts, is_test=is_test, lacked=lacked)
        if is_test and status == "passed" and counts is None and not self.has_tests:
            status = "nothing_to_run"  # a script that runs something, but no test is there
        if status == "nothing_to_run":
            output = f"{NO_TESTS}\n{output}"
        return CheckResult(
            name=rule.check,
            command=rule.command,
            status=status,
            exit_code=end.exit_code,
            seconds=end.seconds,
            tests=counts,
            lacked=lacked,
            left=end.left,
            output=relevant(output),
        )

    def _no_tests(self) -> CheckResult:
        """A project without a test command is not green; say what is missing."""
        known = ", ".join(toolchain.name for toolchain in TOOLCHAINS)
        why = "" if self.toolchain else f"No project was found in the folder (known: {known}).\n"
        return CheckResult(
            name="test", command="(none found)", status="nothing_to_run", output=why + NO_TESTS
        )

    def _results(self, rule: Rule) -> str:
        """The file for the runner's report; a new one every time."""
        return f"{self.job.folder}/{rule.check}.results"


def checking_of(job: Job, message: TaskMessage) -> Checking:
    """Look at the project and choose its commands."""
    tree = look_at(job.box)
    toolchain = recognise(tree, message.environment)
    has_tests = "test" in message.checks or bool(toolchain and tree.has(*toolchain.tests))
    rules = plan_checks(tree, toolchain, message.checks)
    return Checking(job, toolchain, rules, has_tests=has_tests)


def acceptance_of(job: Job, before: Checking, message: TaskMessage) -> Checking:
    """Choose the command for the sender's hidden tests."""
    rule = plan_acceptance(before.toolchain, list(message.acceptance), message.checks)
    return Checking(job, before.toolchain, [rule], has_tests=True)


def started(job: Job) -> list[Rule]:
    """The commands of a job that runs already: what it installed may look like another project."""
    spec = job.box.read_if_there(f"{job.folder}/spec.json", READ_AT_MOST)
    return [
        Rule(
            check=command["name"],
            command=command["argv"][-1],
            applies=always,
            results=command["results"],
            required=command["required"],
        )
        for command in (json.loads(spec)["commands"] if spec else [])
    ]


def look_at(box: SandboxHandle) -> Tree:
    """See which files the project has, and read its manifests."""
    manifests = {}
    for name in MANIFESTS:
        if content := box.read_if_there(f"project/{name}", READ_AT_MOST):
            manifests[name] = content.decode(errors="replace")
    return Tree(box.project_files(LEAVE_OUT), manifests)


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
