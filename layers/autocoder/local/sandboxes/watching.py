"""A watched folder: a command in the sandbox that writes a line for every event."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass

from autocoder.local.sandboxes.channel import AgentError, SandboxGoneError
from autocoder.local.sandboxes.command import Command, Event, Exit, Output

_READY_SECONDS = 30.0
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True)
class Change:
    """What happened to one entry; the name is its path below the watched folder."""

    name: str
    kind: str


class WatchEndedError(Exception):
    """No more events will come; the text says why."""


class Watch:
    """Events wait here until they are asked for; beyond that in the pipe, then in the kernel."""

    def __init__(self, command: Command, folder: str, *, with_entries: bool) -> None:
        self.folder = folder
        self.with_entries = with_entries
        self._command = command
        self._queue = command.listen()
        self._ready = False
        self._found: list[Change] = []
        self._rest = b""
        self._errors = b""

    async def wait_ready(self) -> None:
        """Return when no event can be missed any more."""
        async with asyncio.timeout(_READY_SECONDS):
            while not self._ready:
                self._hear(await self._queue.get())

    async def wait_for_changes(self) -> list[Change]:
        """The events since the last call, at least one."""
        while not (found := self.changes()):
            self._hear(await self._queue.get())
        return found

    def changes(self) -> list[Change]:
        """The events since the last call."""
        while not self._queue.empty():
            self._hear(self._queue.get_nowait())
        found, self._found = self._found, []
        return found

    async def stop(self) -> None:
        self._command.leave(self._queue)
        try:
            await self._command.send_signal(signal.SIGKILL)
        except (AgentError, SandboxGoneError):
            return  # it ended by itself

    def _hear(self, event: Event) -> None:
        if isinstance(event, Exit):
            reason = self._errors.decode(errors="replace").strip()
            raise WatchEndedError(reason or f"the watcher ended with code {event.code}")
        if not isinstance(event, Output):
            raise SandboxGoneError("the sandbox ended")
        if event.stream == "stderr":
            self._errors = (self._errors + event.data)[-1000:]
            return
        *lines, self._rest = (self._rest + event.data).split(b"\n")
        try:
            if len(self._rest) > _LONGEST_LINE:
                raise ValueError("a line without an end")
            for line in map(json.loads, lines):
                self._ready = True  # the first line says no more than that
                if line is not None:
                    self._found.append(Change(str(line["name"]), str(line["kind"])))
        except (ValueError, TypeError, KeyError) as error:
            # The sandbox's programs share the watcher's user.
            raise WatchEndedError("the sandbox's watcher was tampered with") from error
