"""Following a job: start-or-attach, progress, heartbeat, and handing over before time is up."""

import json
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from autocoder.errors import TransientError
from autocoder.message import Frozen
from autocoder.sandbox.client import FOLDER, SandboxHandle

HEARTBEAT_S = 2.0
LEASE_EVERY_S = 60.0
RECONNECTS = 5


class JobEnd(Frozen):
    """How following ended: the job is done, was cancelled, or goes on without us."""

    status: Literal["running", "done", "cancelled"]
    offset: int
    commands: list[dict[str, Any]] = Field(default_factory=list)
    error: str | None = None


class Follower:
    """Follows one job in one sandbox."""

    def __init__(
        self,
        box: SandboxHandle,
        job: str,
        *,
        on_line: Callable[[int, str], None],
        heartbeat: Callable[[], bool],
        time_is_up: Callable[[], bool],
    ) -> None:
        """`heartbeat` writes the progress and says whether the task was cancelled."""
        self.box = box
        self.job = job
        self.on_line = on_line
        self.heartbeat = heartbeat
        self.time_is_up = time_is_up
        self.beat_at = self.leased_at = time.monotonic()
        self.offset = 0

    def follow(self, spec: dict[str, Any], offset: int) -> JobEnd:
        """Start the job by its spec, or attach to it, from `offset` of its feed on.

        A stream that breaks is taken up again where it ended: the feed is a file.
        """
        self.box.write(f"{FOLDER}/specs/{self.job}.json", json.dumps(spec))
        self.offset = offset
        broken: TransientError | None = None
        for _ in range(RECONNECTS):
            try:
                if end := self._listen():
                    return end
            except TransientError as problem:
                broken = problem
                time.sleep(1)
        message = "The stream from the sandbox breaks again and again."
        raise TransientError("sandbox_unavailable", message) from broken

    def _listen(self) -> JobEnd | None:
        """Listen until the job ends or time is up; None if the stream ended before."""
        for line in self.box.attach(self.job, self.offset):
            kind, _, rest = line.partition(" ")
            if kind == "!":
                self.heartbeat()
                return JobEnd(status="done", offset=self.offset, **json.loads(rest))
            if kind == "=":
                at, _, text = rest.partition(" ")
                self.offset = int(at)
                self.on_line(self.offset, text)
            if self._cancelled():
                self.box.stop(self.job)
                return JobEnd(status="cancelled", offset=self.offset)
            if self.time_is_up():
                return JobEnd(status="running", offset=self.offset)
        return None

    def _cancelled(self) -> bool:
        """Beat, at most every two seconds; extend the lease now and then."""
        now = time.monotonic()
        if now - self.leased_at > LEASE_EVERY_S:
            self.box.extend_lease()
            self.leased_at = now
        if now - self.beat_at < HEARTBEAT_S:
            return False
        self.beat_at = now
        return self.heartbeat()
