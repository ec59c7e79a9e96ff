"""The local cloud that `autocoder local up` keeps running: how other commands find it.

Its owner holds a lock as long as it lives, so that what a killed one left behind deceives nobody.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from autocoder.local.cloud import REGION, LocalCloud, LocalCloudError
from autocoder.model import Frozen

ENDS_WITHIN_S = 30


class Running(Frozen):
    """A local cloud, as others reach it."""

    pid: int
    since: datetime
    endpoint: str
    outputs: dict[str, str]
    isolation: str
    model: str

    def environment(self) -> dict[str, str]:
        """What makes the aws CLI and every SDK reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "TASK_QUEUE_URL": self.outputs["TaskQueueUrl"],
            "TASKS_TABLE": self.outputs["TasksTable"],
            "BUCKET": self.outputs["BucketName"],
        }


def folder() -> Path:
    """Where it is written down, for this user alone."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    found = Path(state) / "autocoder"
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = f"{found} can't be made: {error.strerror}"
        raise LocalCloudError(f"{reason}. Name another place in XDG_STATE_HOME.") from None
    return found


@contextmanager
def owner() -> Iterator[Path]:
    """Be the one whose cloud others find; give the file that describes it."""
    with (folder() / "local.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalCloudError(
                "a local cloud is running already: `autocoder local status` shows it, "
                "`autocoder local down` ends it."
            ) from None
        file = folder() / "local.json"
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)


def find() -> Running | None:
    """The cloud that is running, if one is."""
    try:
        with (folder() / "local.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except FileNotFoundError:
        return None
    else:
        return None  # nobody holds the lock
    try:
        return Running.model_validate_json((folder() / "local.json").read_bytes())
    except FileNotFoundError:
        return None  # it is only starting, or ending


def describe(cloud: LocalCloud, since: datetime, model: str) -> Running:
    """Write down where a cloud is."""
    return Running(
        pid=os.getpid(),
        since=since,
        endpoint=cloud.endpoint,
        outputs=cloud.outputs,
        isolation=cloud.sandboxes["isolation"],
        model=model,
    )


def stop(running: Running) -> None:
    """Ask its owner to end it, and wait until it has."""
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while find():
        if time.monotonic() > deadline:
            raise LocalCloudError(f"process {running.pid} does not end: kill it.")
        time.sleep(0.1)
