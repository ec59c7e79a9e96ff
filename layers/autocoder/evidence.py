"""What proves a result: evidence.json, whose exact bytes the stack's key signs.

A contract: another field is another version. `autocoder verify` reads it, and checks what it says.
"""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from autocoder import prompts
from autocoder.checks import CheckReport, CheckStatus, Counts, Finding
from autocoder.ledger import Cost
from autocoder.model import Frozen, Hashed
from autocoder.task import Failure, Status

PACKAGE = Path(__file__).parent


class Command(Frozen):
    """A command that the service ran, and what came of it."""

    name: str
    command: str
    status: CheckStatus
    exit_code: int | None
    reason: str | None
    seconds: float
    tests: Counts | None
    log: Hashed | None


class Ran(Frozen):
    """One run of the checks, with every rule that was broken, be it by the sender's leave."""

    sandbox_id: str | None
    toolchain: str | None
    green: bool
    findings: list[Finding]
    commands: list[Command]

    @classmethod
    def of(cls, report: CheckReport) -> "Ran":
        """Take from a report what proves something; outputs lie in the logs."""
        content = report.model_dump()
        taken = {name: content.get(name) for name in ("sandbox_id", "toolchain")}
        commands = [
            {name: check[name] for name in Command.model_fields} for check in content["checks"]
        ]
        return cls(**taken, green=report.green, findings=report.findings, commands=commands)


class Agent(Frozen):
    """What a run of Claude Code came to; the cost is reckoned by the service from its tokens."""

    outcome: str | None
    turns: int
    tokens: dict[str, int]
    model_usd: float


class Iteration(Frozen):
    """One round: the agent's run, the checks where it worked, and where it never was."""

    iteration: int
    agent: Agent
    checks: Ran | None
    clean_room: Ran | None


class Service(Frozen):
    """Who says so: the stack, its code, and what it told the agent."""

    stack: str
    code_sha256: str
    prompts_sha256: str


class Software(Frozen):
    """What did the work. The tools' versions are those of the deciding clean room."""

    claude_code: str | None
    model: str | None
    replayed: bool  # the model's answers came from a scenario
    tools: dict[str, str]


class Evidence(Frozen):
    """Everything that a result rests on."""

    version: Literal[2] = 2
    task_id: str
    attempt: int
    status: Status
    failure: Failure | None
    created_at: str
    started_at: str
    written_at: str
    service: Service
    software: Software
    cost: Cost
    iterations: list[Iteration]
    documents: list[Hashed]
    archive: Hashed | None
    files: list[Hashed]

    @property
    def logs(self) -> list[Hashed]:
        """The outputs of all commands."""
        return [command.log for ran in self._runs() for command in ran.commands if command.log]

    @property
    def allowed(self) -> list[str]:
        """The rules that were broken by the sender's leave."""
        found = [one for ran in self._runs() for one in ran.findings]
        return list(dict.fromkeys(one.rule for one in found if one.allowed))

    def _runs(self) -> Iterator[Ran]:
        for iteration in self.iterations:
            yield from filter(None, (iteration.checks, iteration.clean_room))


def service(stack: str) -> Service:
    """Say which code this is."""
    said = hashlib.sha256(Path(prompts.__file__).read_bytes()).hexdigest()
    return Service(stack=stack, code_sha256=code_digest(PACKAGE), prompts_sha256=said)


def code_digest(package: Path) -> str:
    """Hash our package's sources, as the code layer holds them."""
    digest = hashlib.sha256()
    for file in sorted(path for path in package.rglob("*") if path.is_file()):
        if "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def pem(public_key: bytes) -> str:
    """Write a public key as others' tools read it."""
    text = base64.encodebytes(public_key).decode().replace("\n", "")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""])


def fingerprint(public_key: bytes) -> str:
    """Name a key by the SHA-256 of its DER form."""
    return hashlib.sha256(public_key).hexdigest()
