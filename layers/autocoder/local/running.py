"""The local cloud that `autocoder local up` keeps running: how other commands find it.

Its owner holds a lock as long as it lives, so that what a killed one left behind deceives nobody.
"""

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autocoder.local.state import REGION, LocalCloudError, ensure_state_home, unusable

if TYPE_CHECKING:  # every command looks here first, and most do without what a cloud imports
    from autocoder.local.cloud import LocalCloud

ENDS_WITHIN_S = 30
LOOK_AGAIN_S = 1.0  # somebody who only looks holds the lock for a moment, too


@dataclass(frozen=True)
class Running:
    """A local cloud, as others reach it; without an endpoint it is only starting.

    `only_scenarios` is one without a key: there is no model for tasks that no scenario answers.
    """

    pid: int = field(default_factory=os.getpid)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    endpoint: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    isolation: str = ""
    model: str = ""
    only_scenarios: bool = False
    sandboxes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cloud: "LocalCloud", model: str, *, only_scenarios: bool = False) -> "Running":
        """Describe a cloud of this process."""
        return cls(
            endpoint=cloud.endpoint,
            outputs=cloud.outputs,
            isolation=cloud.sandboxes["isolation"],
            model=model,
            only_scenarios=only_scenarios,
            sandboxes=cloud.sandboxes,
        )

    def reachable(self) -> dict[str, str]:
        """The outputs, with queues' URLs of the endpoint: some SDKs go where the URL says."""
        aws = re.compile(r"https://sqs\.[^/]+\.amazonaws\.com(?=/)")
        return {name: aws.sub(self.endpoint, value) for name, value in self.outputs.items()}

    def environment(self) -> dict[str, str]:
        """What makes the aws CLI and every SDK reach it."""
        outputs = self.reachable()
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "TASK_QUEUE_URL": outputs["TaskQueueUrl"],
            "TASKS_TABLE": outputs["TasksTable"],
            "BUCKET": outputs["BucketName"],
        }


def folder() -> Path:
    """Where it is written down, for this user alone."""
    found = ensure_state_home()
    try:
        (found / "local.lock").touch(mode=0o600)
    except OSError as error:
        raise unusable(found, error) from None
    return found


@contextmanager
def owner() -> Iterator[Callable[[Running], None]]:
    """Be the one whose cloud others find; give what writes down where it is."""
    home = folder()
    with (home / "local.lock").open("w") as lock:
        if not locked(lock.fileno(), fcntl.LOCK_EX, LOOK_AGAIN_S):
            raise LocalCloudError(
                "a local cloud is running already: `autocoder local status` shows it, "
                "`autocoder local down` ends it."
            )
        file, aside = home / "local.json", home / "local.json.part"

        def write(running: Running) -> None:
            aside.write_text(json.dumps(asdict(running)))
            aside.replace(file)

        write(Running())  # over what a killed one left
        try:
            yield write
        finally:
            file.unlink(missing_ok=True)


def locked(file: int, how: int, patience_s: float = 0.0) -> bool:
    """Take the lock, if nobody holds it for longer than that."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def find() -> Running | None:
    """The cloud that is running or starting, if one is."""
    home = folder()
    with (home / "local.lock").open() as lock:
        if locked(lock.fileno(), fcntl.LOCK_SH):
            return None
    with suppress(FileNotFoundError, ValueError, TypeError):  # begun or ended this very moment
        return Running(**json.loads((home / "local.json").read_bytes()))
    return None


def stop(running: Running) -> None:
    """Ask its owner to end it, and wait until it has."""
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    with (folder() / "local.lock").open() as lock:
        if not locked(lock.fileno(), fcntl.LOCK_SH, ENDS_WITHIN_S):
            raise LocalCloudError(f"process {running.pid} does not end: kill it.")
