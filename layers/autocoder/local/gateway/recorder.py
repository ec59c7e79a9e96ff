"""What passed between a task and the model, kept for `autocoder record` and for people to read.

    <recordings>/<task_id>/message.json                the task's message
                           NNNN-request.json           what was asked
                           NNNN-answer                 what was answered, byte for byte
                           index.jsonl                 a line an exchange, written when it has ended

No header is kept, so neither the key nor a token is, and the token is taken out of requests too: an
agent may have printed it.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from autocoder.local.gateway.asker import Asker
from autocoder.local.state import state_home

TASK_BYTES = 64 << 20  # more than this of a task is not kept
EXCHANGES = 10_000  # beyond this, only those that were paid for are listed
TASKS = 100  # the newest are kept

log = logging.getLogger(__name__)


class Entry(BaseModel):
    """A line of the index. `kept` says that request and answer lie there whole."""

    number: int
    at: str
    run: int
    step: int
    sandbox_id: str
    home: str
    model: str
    priced_as: str
    status: int
    complete: bool
    kept: bool
    usd: float


def recordings() -> Path:
    """Where recordings lie: they outlive the local cloud's own folder."""
    return state_home() / "recordings"


def entries(folder: Path) -> Iterator[Entry]:
    """A recording's exchanges, in the order in which they ended."""
    index = folder / "index.jsonl"
    if index.exists():
        with index.open() as lines:
            yield from map(Entry.model_validate_json, lines)


class Recorder:
    """Keeps one task's exchanges; what was kept of an earlier task of this id goes."""

    def __init__(self, folder: Path, message: dict[str, Any]) -> None:
        """`folder` is the task's own."""
        self.folder = folder
        self.left = TASK_BYTES
        self.count = 0
        self.run = 0  # the newest that was seen: a subagent's requests name none
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        forget_old(folder.parent)
        self.keep("message.json", json.dumps(message, indent=2, ensure_ascii=False).encode())

    def begin(self, asker: Asker, request: bytes) -> "Exchange":
        """Begin an exchange."""
        self.count += 1
        self.run = self.run if asker.run is None else asker.run
        return Exchange(self, asker, self.count, request)

    def keep(self, name: str, data: bytes) -> bool:
        """Write a file, if there is room."""
        return self.has_room(data) and self.attempt((self.folder / name).write_bytes, data)

    def has_room(self, data: bytes) -> bool:
        """Take the room; when there is too little, nothing is kept any more."""
        room = len(data) <= self.left
        self.left = self.left - len(data) if room else 0
        return room

    def list(self, entry: Entry) -> None:
        """Append to the index."""
        with (self.folder / "index.jsonl").open("ab") as index:
            index.write(entry.model_dump_json().encode() + b"\n")

    def attempt(self, write: Callable[..., object], *args: object) -> bool:
        """Write; a disk that is full must not end the task."""
        try:
            write(*args)
        except OSError as error:
            log.warning("the recording in %s goes no further: %s", self.folder, error)
            self.left = 0
            return False
        return True


class Exchange:
    """One request and its answer."""

    def __init__(self, recorder: Recorder, asker: Asker, number: int, request: bytes) -> None:
        """Keep the request."""
        self.recorder = recorder
        self.asker = asker
        self.number = number
        self.run = recorder.run
        without_token = request.replace(asker.token.encode(), b"[token]")
        self.kept = recorder.keep(f"{number:04}-request.json", without_token)
        self.file: BinaryIO | None = None

    def answer(self, chunk: bytes) -> None:
        """Keep a part of the answer."""
        room = self.kept and self.recorder.has_room(chunk)
        self.kept = room and self.recorder.attempt(self.write, chunk)

    def write(self, chunk: bytes) -> None:
        """Write to the answer's file, which is there from the first part on."""
        if self.file is None:
            self.file = (self.recorder.folder / f"{self.number:04}-answer").open("wb")
        self.file.write(chunk)

    def end(self, *, model: str, priced_as: str, status: int, complete: bool, usd: float) -> None:
        """Write the index."""
        if self.file and not self.recorder.attempt(self.file.close):
            self.kept = False
        entry = Entry(
            number=self.number,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            run=self.run,
            step=self.asker.step,
            sandbox_id=self.asker.sandbox_id,
            home=self.asker.home,
            model=model[:200],
            priced_as=priced_as,
            status=status,
            complete=complete,
            kept=self.kept,
            usd=usd,
        )
        if usd or self.number <= EXCHANGES:
            self.recorder.attempt(self.recorder.list, entry)


def forget_old(top: Path) -> None:
    """Remove the oldest recordings beyond those that are kept."""
    with suppress(FileNotFoundError):  # another gateway is at it
        folders = sorted(top.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[TASKS:]:
            shutil.rmtree(folder, ignore_errors=True)
