"""The port to E2B: the SDK's exceptions become ours, and every sandbox carries its task's name."""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import e2b
import httpx

from autocoder.archive import Caps
from autocoder.errors import (
    ConfigurationError,
    InputError,
    SandboxLost,
    ScriptError,
    TransientError,
)
from autocoder.sandbox.egress import Egress

FOLDER = ".autocoder"  # in the sandbox user's home, as every path here
OWNER, ATTEMPT = "autocoder_stack", "autocoder_attempt"  # what every sandbox says of itself
LEASE_S = 300  # how long a sandbox lives when nobody extends it
STREAM_S = 20  # a stream may stall without breaking: none lives longer, the next one goes on
CHECKPOINT = f"{FOLDER}/checkpoint.tar.gz"
RUNNER = f"{FOLDER}/runner.py"
PACKER = f"{FOLDER}/packer.py"
SCRIPTS = (RUNNER, PACKER, f"{FOLDER}/observer.py", f"{FOLDER}/observer.mjs")
SOURCES = Path(__file__).parent
SERVER_ERROR = re.compile(r"5\d\d\b")  # the SDK has no class for most of them, only this text


@contextmanager
def translated() -> Iterator[None]:
    """Say who acts on an exception of the SDK: what it raises has no common base."""
    try:
        yield
    except (e2b.SandboxNotRunningException, e2b.SandboxNotFoundException) as error:
        raise SandboxLost.because(str(error)) from error
    except e2b.FileNotFoundException as error:
        raise SandboxLost.because(f"a file of the service's is missing in it: {error}") from error
    except e2b.AuthenticationException as error:
        raise ConfigurationError("sandbox_refused", f"E2B refused the API key: {error}") from error
    except (
        e2b.RateLimitException,
        e2b.ServiceBusyException,
        e2b.TimeoutException,
        httpx.TransportError,
        json.JSONDecodeError,  # the SDK's answer to a 5xx that is not JSON
    ) as error:
        raise TransientError("sandbox_unavailable", f"E2B did not answer: {error}") from error
    except e2b.SandboxException as error:
        if not SERVER_ERROR.match(str(error)):
            raise
        raise TransientError("sandbox_unavailable", f"E2B failed: {error}") from error


class SandboxHandle:
    """One sandbox: its files, and the runner in it."""

    def __init__(self, sandbox: e2b.Sandbox, egress: Egress) -> None:
        """`sandbox` is the SDK's."""
        self.sandbox = sandbox
        self.egress = egress

    @property
    def sandbox_id(self) -> str:
        """E2B's name for it."""
        return str(self.sandbox.sandbox_id)

    def extend_lease(self) -> None:
        """Live on for another lease."""
        with translated():
            self.sandbox.set_timeout(LEASE_S)

    def admit_model(self) -> None:
        """Let the agent reach the model; E2B adds the key on the way, so it is never in here."""
        secret = self.egress.injected_secret
        header = e2b.Secret.fill(secret) if secret else None
        with translated():
            self.sandbox.update_network(cast(Any, self.egress.with_model(header)))

    def withdraw_model(self) -> None:
        """Close the way to the model: what checks run must not spend there."""
        with translated():
            self.sandbox.update_network(cast(Any, self.egress.closed()))

    def prepare(self) -> None:
        """Put our scripts in place."""
        for path in SCRIPTS:
            self.write(path, (SOURCES / Path(path).name).read_bytes())

    def write(self, path: str, data: "bytes | str | Any") -> None:
        """Write a file; `data` may also be an open file of any size."""
        with translated():
            self.sandbox.files.write(path, data)

    def read(self, path: str) -> bytes:
        """Read a file that the runner keeps small."""
        with translated():
            return bytes(self.sandbox.files.read(path, format="bytes"))

    def read_if_there(self, path: str, most: int) -> bytes | None:
        """Read a file of the project's if it exists and is no larger than `most` bytes."""
        with translated():
            try:
                info = self.sandbox.files.get_info(path)
                if info.type != e2b.FileType.FILE or info.size > most:
                    return None
                return bytes(self.sandbox.files.read(path, format="bytes"))
            except (e2b.NotFoundException, e2b.InvalidArgumentException):
                return None  # also a link or a pipe of that name: a project's oddity, not ours

    def stream(self, path: str) -> Iterator[bytes]:
        """Read a file of any size."""
        with translated(), self.sandbox.files.read(path, format="stream") as chunks:
            yield from chunks

    def run(self, script: str, *args: str) -> str:
        """Run a short action of one of our scripts."""
        with translated():
            try:
                command = shlex.join(["python3", script, *args])
                return str(self.sandbox.commands.run(command, timeout=300).stdout)
            except e2b.CommandExitException as error:
                detail = f"{error.stderr}"[-500:]
                raise ScriptError("internal_error", f"{args[0]} failed: {detail}") from error

    def shell(self, command: str) -> str:
        """Run a short command line and give what it printed, however it ended."""
        with translated():
            try:
                return str(self.sandbox.commands.run(command, timeout=60).stdout)
            except e2b.CommandExitException as error:
                return str(error.stdout)

    def stop(self, job: str) -> None:
        """End a job and all its commands."""
        self.run(RUNNER, "stop", job)

    def unpack(self, archive: IO[bytes], *, session: bool = True) -> None:
        """Restore a project from a checkpoint, and its agent's session."""
        self.write(CHECKPOINT, archive)
        self.run(PACKER, "unpack", CHECKPOINT, *([] if session else ["--leave-out", "session"]))

    def pack(self, leave_out: Iterable[str]) -> Iterator[bytes]:
        """Stream a checkpoint of the project and the agent's session."""
        packed = json.loads(self.run(PACKER, "pack", CHECKPOINT, *bounds(leave_out)))
        if packed.get("error"):
            raise InputError(
                "project_too_large",
                f"The project has {packed['files']} files with {packed['bytes']} bytes; "
                f"at most {Caps().members} with {Caps().bytes} are kept.",
            )
        return self.stream(CHECKPOINT)

    def project_files(self, leave_out: Iterable[str]) -> list[str]:
        """List the project's files."""
        return [str(path) for path in json.loads(self.run(PACKER, "files", *bounds(leave_out)))]

    def tools(self, pattern: str, question: str) -> dict[str, str]:
        """Ask the sandbox's programs with such names for their versions: name → answer."""
        found = json.loads(self.run(RUNNER, "tools", pattern, f"--question={question}"))
        return {str(name): str(answer) for name, answer in found.items()}

    def attach(self, job: str, spec: str, offset: int) -> Iterator[str]:
        """Start the job or find it running, and yield what the runner says of it, line by line."""
        rest = ""
        arguments = ["attach", job, "--spec", spec, "--offset", str(offset)]
        with translated():
            handle = self.sandbox.commands.run(
                shlex.join(["python3", RUNNER, *arguments]),
                background=True,
                timeout=STREAM_S,
                retain_output=False,
            )
            try:
                for stdout, _, _ in handle:
                    *lines, rest = (rest + (stdout or "")).split("\n")
                    yield from lines
            finally:
                handle.disconnect()


def bounds(leave_out: Iterable[str]) -> list[str]:
    """The packer's arguments for what is part of a project, and how large that may be."""
    caps = Caps()
    most = ["--max-files", str(caps.members), "--max-bytes", str(caps.bytes)]
    return [*most, "--leave-out", ",".join(leave_out)]


def digest(*parts: str) -> str:
    """One key for several names; no two lists of names give the same."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


class Sandboxes:
    """Makes, finds and ends sandboxes."""

    def __init__(
        self,
        *,
        api_key: str,
        template: str,
        owner: str,
        egress: Egress,
        model_key: Callable[[], str],
    ) -> None:
        """`owner` is the stack: it keeps apart those that share an E2B team.

        `model_key` is asked only where the deployer chose to have the key inside sandboxes.
        """
        self.api_key = api_key
        self.template = template
        self.owner = owner
        self.egress = egress
        self.model_key = model_key

    def create(self, name: str, which: int | str) -> SandboxHandle:
        """Make a sandbox of an attempt; asked again (its answer was lost), it gives the same.

        It is made closed: the model is let in when the agent runs, and out again before the checks.
        """
        if not self.egress.has_key:
            message = "Neither does E2B know the model's key nor may it be put into sandboxes."
            raise ConfigurationError("model_not_configured", message)
        key = self.model_key() if self.egress.key_in_sandbox else None
        with translated():
            sandbox = e2b.Sandbox.create(
                template=self.template,
                timeout=LEASE_S,
                metadata=self._metadata(name),
                envs=self.egress.variables(key),
                network=cast(Any, self.egress.closed()),
                idempotency_key=digest(self.owner, name, str(which)),
                api_key=self.api_key,
            )
        return SandboxHandle(sandbox, self.egress)

    def connect(self, sandbox_id: str) -> SandboxHandle:
        """Find a sandbox that lives; SandboxLost if it does not."""
        with translated():
            sandbox = e2b.Sandbox.connect(sandbox_id, timeout=LEASE_S, api_key=self.api_key)
        return SandboxHandle(sandbox, self.egress)

    def kill(self, sandbox_id: str) -> None:
        """End a sandbox, if it is still there."""
        with translated():
            e2b.Sandbox.kill(sandbox_id, api_key=self.api_key)

    def kill_all(self, name: str) -> int:
        """End every sandbox of an attempt, also one whose id was lost on the way to us."""
        found = self._list(self._metadata(name))
        with translated():
            return sum(e2b.Sandbox.kill(x.sandbox_id, api_key=self.api_key) for x in found)

    def all(self) -> list[e2b.SandboxInfo]:
        """The sandboxes of the whole stack."""
        return self._list({OWNER: self.owner})

    def by_attempt(self) -> dict[str, list[str]]:
        """The sandboxes of the whole stack: attempt → ids."""
        found: dict[str, list[str]] = {}
        for info in self.all():
            found.setdefault(info.metadata.get(ATTEMPT, ""), []).append(info.sandbox_id)
        return found

    def _list(self, metadata: dict[str, str]) -> list[e2b.SandboxInfo]:
        found: list[e2b.SandboxInfo] = []
        with translated():
            query = e2b.SandboxQuery(metadata=metadata)
            pages = e2b.Sandbox.list(query=query, api_key=self.api_key)
            while pages.has_next:
                found += pages.next_items()
        return found

    def _metadata(self, name: str) -> dict[str, str]:
        return {OWNER: self.owner, ATTEMPT: name}
