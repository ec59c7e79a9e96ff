"""What the service's commands found out about a project, and how it is told to the agent."""

import hashlib
import json
import re
from typing import Any, Literal

from pydantic import Field

from autocoder.model import Frozen, Hashed

CheckStatus = Literal[
    "passed", "failed", "timed_out", "nothing_to_run", "infrastructure", "not_run"
]
Resource = Literal["memory", "disk", "network"]

# What each status means: docs/failures.md is made from this.
STATUSES: dict[str, str] = {
    "passed": "The command exited 0, and if it is the test command, tests ran and none failed.",
    "failed": "The command exited with another code, or a test failed all the same, or the runner's"
    " report of the tests is missing or forged. Its output goes to the agent.",
    "timed_out": "The command took longer than 15 minutes, or than the task had left.",
    "nothing_to_run": "No test was found or executed. A project without tests is not green.",
    "infrastructure": "The sandbox ran out of memory or disk, or the installer reached no registry."
    " The checks are repeated once, in a fresh sandbox, and no iteration is used. Memory or disk"
    " again: it goes to the agent as a failure. The registry again: `registry_unreachable`.",
    "not_run": "A check before it, without which it makes no sense, did not pass.",
}

# Told by the command's last words. Who prints them to be excused gains one repetition, no more.
MEMORY = re.compile(
    r"^(.*: )?Killed$|\bMemoryError\b|Cannot allocate memory|heap out of memory", re.M
)
DISK = re.compile(r"No space left on device|\bENOSPC\b|Disk quota exceeded")
NETWORK = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT)\b|NewConnectionError"
    r"|ConnectTimeoutError|ReadTimeoutError|Temporary failure in name resolution"
)
KILLED = (-9, 137)
# What may have to bring a tool from a registry.
INSTALLERS = ("install", "build", "types", "lint")

# What differs between two runs of the same failure.
VARYING = re.compile(
    r"0x[0-9a-f]+|\d\d:\d\d:\d\d[.,\d]*|\d{4}-\d\d-\d\d|/tmp/\S+|duration_ms:? [\d.]+"
    r"|\d+(?:\.\d+)? ?(?:ms|s|sec|seconds?)\b",
    re.IGNORECASE,
)

NO_TESTS = "No test ran. A project without tests is not green: add tests that the runner finds."

NO_REPORT = "The runner's report is missing or was not written by the runner."
NOT_SEEN = (
    "No runner that is known ran these tests, so nobody saw what became of them. Let the script"
    " `test` of package.json call `node --test`, jest, vitest, mocha, ava, tap or tape itself; or"
    " the sender names the command as `checks.test`."
)


class Counts(Frozen):
    """What became of the tests: `ran` are those that passed or failed, and no others."""

    ran: int
    failed: int
    skipped: int
    xfailed: int = 0  # failed, as expected
    deselected: int = 0  # found, and left out


class CheckResult(Frozen):
    """One check: the command that the service ran, and what came of it."""

    name: str
    command: str
    status: CheckStatus
    exit_code: int | None = None
    reason: str | None = None  # how it ended: by itself, or ended by our runner
    seconds: float = 0.0
    tests: Counts | None = None
    forged: bool = False  # it exited 0, but our runner signed no report
    lacked: Resource | None = None
    left: int = 0  # so many processes outlived the command
    failures: list[tuple[str, str]] = Field(default_factory=list)  # names and messages of a few
    output: str = ""
    log: Hashed | None = None  # all of its output

    def in_words(self) -> str:
        """Say how it went in a few words, with its counts and its time."""
        if self.status == "not_run":
            return "not run: what comes before it failed"
        said = self.status.replace("_", " ")
        if self.tests:
            ran, failed, skipped = self.tests.ran, self.tests.failed, self.tests.skipped
            counts = f"{failed} of {ran} failed" if failed else f"{ran} passed"
            counts += f", {skipped} skipped" if skipped else ""
            expected = self.status == ("failed" if failed else "passed")
            said = counts if expected else f"{said} ({counts})"
        return f"{said}, {self.seconds:.1f} s"

    def last_lines(self, most: int = 6) -> str:
        """How the output of a check that failed ended."""
        if self.status in ("passed", "not_run"):
            return ""
        lines = [line[:160] for line in self.output.splitlines() if line.strip()]
        return "\n".join(lines[-most:])


class Finding(Frozen):
    """A tamper rule that was broken, and where; `allowed` if the sender said that it may be."""

    rule: str
    path: str
    what: str
    allowed: bool

    @property
    def where(self) -> str:
        """The file, where it is one."""
        return f"{self.path}: " if self.path else ""

    @property
    def verdict(self) -> str:
        """What a reader is told first."""
        return "Allowed" if self.allowed else "Broken"


class CheckReport(Frozen):
    """All checks of one iteration, as stored in iterations/NN/checks.json."""

    toolchain: str | None
    sandbox_id: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)  # of the tools in that sandbox
    agent: dict[str, Any] = Field(default_factory=dict)
    checks: list[CheckResult] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)

    @property
    def green(self) -> bool:
        """Every check passed, and tests were among them."""
        names = {check.name for check in self.checks}
        return "test" in names and all(check.status == "passed" for check in self.checks)

    @property
    def test(self) -> CheckResult | None:
        """The result of the project's tests."""
        return next((check for check in self.checks if check.name == "test"), None)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that did not pass."""
        return [check.name for check in self.checks if check.status != "passed"]

    def describe(self) -> list[dict[str, str]]:
        """Say each check in a few words, and of one that failed how its output ended."""
        return [
            {"name": check.name, "says": check.in_words(), "end": check.last_lines()}
            for check in self.checks
        ]

    @property
    def broken(self) -> Resource | None:
        """What the sandbox lacked for a check; None if every check could do its work."""
        return next((check.lacked for check in self.checks if check.lacked), None)

    @property
    def tampered(self) -> list[str]:
        """The tamper rules that were broken and may not be."""
        return list(dict.fromkeys(one.rule for one in self.findings if not one.allowed))

    @property
    def signature(self) -> str:
        """A short text that is the same as long as the same checks fail in the same way."""
        failed = [
            [check.name, check.status, check.exit_code, VARYING.sub("#", check.output)]
            for check in self.checks
            if check.status != "passed"
        ]
        return hashlib.sha256(json.dumps(failed).encode()).hexdigest()[:16]

    def verdict(self) -> dict[str, Any]:
        """What a ChecksRun says of it."""
        return {
            "green": self.green,
            "failed": self.failed,
            "signature": "" if self.green else self.signature,
            "broken": self.broken,
            "tampered": self.tampered,
        }

    def summary(self) -> dict[str, Any]:
        """What the task's record shows of it."""
        return {
            check.name: {
                "status": check.status,
                "exit_code": check.exit_code,
                "seconds": check.seconds,
                **({"tests": check.tests.model_dump()} if check.tests else {}),
            }
            for check in self.checks
        }


def lacking(check: str, exit_code: int, output: str) -> Resource | None:
    """Say what a command that failed lacked, if that was not the project's doing."""
    if exit_code == 0:
        return None
    if exit_code in KILLED or MEMORY.search(output):
        return "memory"
    if DISK.search(output):
        return "disk"
    # Only who installs must reach the registry: a test that calls out is the project's own.
    return "network" if check in INSTALLERS and NETWORK.search(output) else None


def judge(
    exit_code: int,
    reason: str,
    counts: Counts | None,
    *,
    is_test: bool,
    lacked: Resource | None = None,
) -> CheckStatus:
    """Say what a command's end means."""
    if reason == "timed_out":
        return "timed_out"
    if lacked:
        return "infrastructure"
    nothing = counts.ran == 0 if counts else exit_code == 5
    if is_test and nothing and exit_code in (0, 5):
        return "nothing_to_run"  # pytest and unittest exit 5 when they collected nothing
    return "passed" if exit_code == 0 and not (counts and counts.failed) else "failed"


def relevant(output: str, most: int = 8000) -> str:
    """Cut an output to what a reader needs: how it began, and above all how it ended."""
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).strip()
    if len(output) <= most:
        return output
    head, tail = output[: most // 4], output[-(most * 3 // 4) :]
    return f"{head}\n[… {len(output) - most} characters left out …]\n{tail}"
