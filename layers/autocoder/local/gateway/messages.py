"""The tasks' messages, as the service stored them in its bucket: they say what a task may spend."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from autocoder.local.gateway.errors import RefusedError
from autocoder.ports.objects import Objects, TaskFolder

CLOUD_FILE = "cloud.json"  # in the state folder: where the embedded AWS and the bucket are


class StoredMessages:
    """Reads messages from the embedded AWS, which is started beside the gateway."""

    def __init__(self, state_dir: Path) -> None:
        """Nothing is connected yet: the cloud says later where it is."""
        self.cloud = state_dir / CLOUD_FILE

    def read(self, task: str) -> dict[str, Any]:
        """A task's message; no task is without one."""
        if not self.cloud.exists():
            raise RefusedError(403, "The service is not deployed yet.")
        import boto3  # only now: a replay does without, and starts sooner

        where = json.loads(self.cloud.read_text())
        with closing(boto3.client("s3", **where["aws"])) as s3:
            try:
                return dict(Objects(s3, where["bucket"]).read_json(TaskFolder(task).message))
            except s3.exceptions.NoSuchKey:
                raise RefusedError(403, f"There is no task {task} to answer for.") from None
