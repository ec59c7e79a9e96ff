"""A job in a sandbox: start-or-attach, progress, heartbeat, handing over before time is up."""

import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from autocoder.errors import SandboxLost, TransientError
from autocoder.model import Frozen
from autocoder.sandbox.client import FOLDER, SandboxHandle

HEARTBEAT_S = 2.0
LEASE_EVERY_S = 60.0
RECONNECTS = 5
SPEC_BYTES = 4 * 1024 * 1024
GRACE_S = 60.0  # the runner ends a job in time; one that was tampered with is not waited for


def canonical(end: dict[str, Any]) -> bytes:
    """An end as it is sealed (runner.py does the same)."""
    return json.dumps(end, sort_keys=True).encode()


class SignedReport(Frozen):
    """Where an observer of tests was to write its report, and the key it was to sign it with."""

    path: str
    key: str


class CommandEnd(Frozen):
    """How a command of a job ended, as the runner saw it."""

    name: str
    exit_code: int
    reason: Literal["exited", "timed_out", "silent", "lingered", "not_started"]
    seconds: float
    report: SignedReport | None = None
    left: int = 0  # so many processes outlived it


class JobEnd(Frozen):
    """How following ended: the job is done, was cancelled, or goes on without us."""

    status: Literal["running", "done", "cancelled"]
    offset: int = 0  # how much of the feed was heard
    commands: list[CommandEnd] = Field(default_factory=list)


class Job:
    """A job by its name; whoever calls first starts it."""

    def __init__(self, box: SandboxHandle, name: str, seal: str = "") -> None:
        """Nothing is started yet.

        With a `seal`, only an end is believed that the job's supervisor sealed with it: what it
        runs could end it, and write an end of its own.
        """
        self.box = box
        self.name = name
        self.seal = hmac.new(seal.encode(), name.encode(), hashlib.sha256).hexdigest() * bool(seal)
        self.folder = f"{FOLDER}/jobs/{name}"

    def spec(self) -> dict[str, Any] | None:
        """What the job runs, if it was started."""
        content = self.box.read_if_there(f"{self.folder}/spec.json", SPEC_BYTES)
        return dict(json.loads(content)) if content else None

    def follow(
        self,
        commands: list[dict[str, Any]],
        *,
        deadline_s: float,
        offset: int = 0,
        on_line: Callable[[int, str], None],
        heartbeat: Callable[[], bool],
        time_is_up: Callable[[], bool],
    ) -> JobEnd:
        """Start the job, or attach to it, and hear its feed from `offset` on.

        `on_line` gets each line with its offset, `heartbeat` says whether the task was cancelled.
        A stream that breaks is taken up again where it ended: the feed is a file. All commands
        together may take `deadline_s`.
        """
        spec = (
            f"{FOLDER}/specs/{self.name}-{secrets.token_hex(4)}.json"  # no other caller writes it
        )
        content = {"commands": commands, "deadline_s": max(deadline_s, 1)}
        if self.seal and self.spec() is None:  # later, what it runs could read it
            content["seal"] = self.seal
        self.box.write(spec, json.dumps(content))
        listener = _Listener(self, spec, offset, on_line, heartbeat, time_is_up)
        listener.over_at = time.monotonic() + max(deadline_s, 1) + GRACE_S
        broken: TransientError | None = None
        in_vain = 0
        while in_vain < RECONNECTS:
            try:
                if end := listener.listen():
                    return end
            except TransientError as problem:
                broken = problem
            if end := listener.leave():
                return end
            in_vain = 0 if listener.heard else in_vain + 1
            if in_vain:
                time.sleep(1)
        if not broken:
            raise SandboxLost.because("our runner does not answer in it")
        message = "No stream from the sandbox says anything."
        raise TransientError("sandbox_unavailable", message) from broken


class _Listener:
    """Listens to a job's feed, over as many streams as it takes."""

    def __init__(
        self,
        job: Job,
        spec: str,
        offset: int,
        on_line: Callable[[int, str], None],
        heartbeat: Callable[[], bool],
        time_is_up: Callable[[], bool],
    ) -> None:
        self.job = job
        self.spec = spec
        self.on_line = on_line
        self.heartbeat = heartbeat
        self.time_is_up = time_is_up
        self.offset = offset
        self.heard = False
        self.over_at = math.inf
        self.beat_at = self.leased_at = time.monotonic()

    def listen(self) -> JobEnd | None:
        """Listen until the job ends or time is up; None if the stream ended before."""
        self.heard = False
        for line in self.job.box.attach(self.job.name, self.spec, self.offset):
            self.heard = True
            kind, _, rest = line.partition(" ")
            if kind == "!":
                return self._ended(json.loads(rest))
            if kind == "=":
                at, _, text = rest.partition(" ")
                self.offset = int(at)
                self.on_line(self.offset, text)
            if end := self.leave():
                return end
        return None

    def leave(self) -> JobEnd | None:
        """Say how following ends before the job does, if it must."""
        if self._cancelled():
            self.job.box.stop(self.job.name)
            return JobEnd(status="cancelled")
        if time.monotonic() > self.over_at:
            raise SandboxLost.because("its runner does not end what is out of time")
        return JobEnd(status="running", offset=self.offset) if self.time_is_up() else None

    def _ended(self, end: dict[str, Any]) -> JobEnd:
        cancelled = self.heartbeat()
        if end["error"] == "stopped" and cancelled:  # a retry of a step that saw the cancel
            return JobEnd(status="cancelled")
        if end["error"]:
            raise SandboxLost.because(end["error"])  # what it left can't be trusted to be whole
        if not self._sealed(end):
            raise SandboxLost.because("something in it ended the job's supervisor")
        return JobEnd(status="done", commands=end["commands"])

    def _sealed(self, end: dict[str, Any]) -> bool:
        """Say whether the job's supervisor wrote this end, where it was given a seal."""
        told = {name: end.get(name) for name in ("commands", "error")}
        expected = hmac.new(self.job.seal.encode(), canonical(told), hashlib.sha256).hexdigest()
        return not self.job.seal or hmac.compare_digest(
            str(end.get("seal")).encode(), expected.encode()
        )

    def _cancelled(self) -> bool:
        """Beat, at most every two seconds; extend the lease now and then."""
        now = time.monotonic()
        if now - self.leased_at > LEASE_EVERY_S:
            self.job.box.extend_lease()
            self.leased_at = now
        if now - self.beat_at < HEARTBEAT_S:
            return False
        self.beat_at = now
        return self.heartbeat()
