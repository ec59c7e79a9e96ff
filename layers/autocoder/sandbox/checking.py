"""Running a project's checks in a sandbox, by commands of the service's own."""

import json
from collections.abc import Callable
from typing import Any

from autocoder.checks import NO_TESTS, CheckResult, judge, lacking, relevant
from autocoder.message import TaskMessage
from autocoder.results import READERS
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import CommandEnd, Job, JobEnd
from autocoder.toolchains import (
    LEAVE_OUT,
    MANIFESTS,
    TOOLCHAINS,
    Rule,
    Tree,
    always,
    plan_checks,
    recognise,
)

CHECK_TIMEOUT_S = 900
READ_AT_MOST = 4 * 1024 * 1024


class Checking:
    """The checks of the project in one sandbox, as one job."""

    def __init__(self, job: Job, message: TaskMessage) -> None:
        """Look at the project and choose its commands."""
        self.job = job
        tree = look_at(job.box)
        self.toolchain = recognise(tree, message.environment)
        self.rules = started(job) or plan_checks(tree, self.toolchain, message.checks)
        self.has_tests = "test" in message.checks or bool(
            self.toolchain and tree.has(*self.toolchain.tests)
        )

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
        return results if any(r.name == "test" for r in results) else [*results, self._no_tests()]

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
        is_test = rule.check == "test"
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
