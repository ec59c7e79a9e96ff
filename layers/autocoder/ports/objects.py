"""The bucket: one folder a task."""

import hashlib
import io
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from autocoder.checks import CheckReport
from autocoder.claude import Outcome, read_outcome
from autocoder.message import TaskMessage
from autocoder.model import Hashed
from autocoder.plan import StoredPlan

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class TaskFolder:
    """The keys of one task's objects: the layout of the result is a contract."""

    def __init__(self, task_id: str) -> None:
        """Every key of the task begins with `prefix`."""
        self.prefix = f"tasks/{task_id}/"
        self.message = f"{self.prefix}message.json"
        self.plan = f"{self.prefix}plan.json"
        self.result = f"{self.prefix}result.json"
        self.summary = f"{self.prefix}summary.md"
        self.archive = f"{self.prefix}project.tar.gz"
        self.evidence = f"{self.prefix}evidence.json"
        self.signature = f"{self.prefix}evidence.sig"
        self.public_key = f"{self.prefix}evidence.pem"
        self.manifest = f"{self.prefix}manifest.json"
        self.files = f"{self.prefix}files/"

    def rejected(self, message_id: str) -> str:
        """A message that was not accepted, as it came."""
        return f"{self.prefix}rejected/{message_id}"

    def prompt(self, iteration: int) -> str:
        """The prompt that a run began with."""
        return f"{self.prefix}iterations/{iteration:02}/prompt.md"

    def transcript(self, iteration: int) -> str:
        """What Claude Code printed."""
        return f"{self.prefix}iterations/{iteration:02}/claude.jsonl"

    def checks(self, iteration: int) -> str:
        """What the service's commands found."""
        return f"{self.prefix}iterations/{iteration:02}/checks.json"

    def clean_room(self, iteration: int) -> str:
        """What the same commands found in a sandbox that the agent never touched."""
        return f"{self.prefix}iterations/{iteration:02}/clean-room.json"

    def log(self, iteration: int, check: str) -> str:
        """One check's output."""
        return f"{self.prefix}iterations/{iteration:02}/logs/{check}.log"

    def checkpoint(self, iteration: int) -> str:
        """The project and the agent's session after a run; 0 is what the sender gave."""
        return f"{self.prefix}checkpoints/{iteration:02}.tar.gz"


def as_json(content: Any) -> bytes:
    """Write JSON that people can read."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def hashed(folder: TaskFolder, key: str, body: bytes) -> Hashed:
    """Say what an object of a task's holds."""
    path = key.removeprefix(folder.prefix)
    return Hashed(path=path, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())


class Objects:
    """Reads and writes the bucket."""

    def __init__(self, s3: "S3Client", bucket: str) -> None:
        """`s3` is a client, `bucket` the stack's."""
        self.s3 = s3
        self.bucket = bucket

    def claim(self, key: str, body: bytes) -> bool:
        """Write the object if there is none or the same; say whether it now holds `body`.

        S3 decides between two writers: of two different bodies, one is stored, for good.
        """
        try:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            # 412: there is one. 409: another writer is at it; SQS brings the message again.
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return self.read(key) == body
        return True

    def read(self, key: str) -> bytes:
        """Read a small object."""
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def read_json(self, key: str) -> Any:
        """Read a small object that the service itself wrote as JSON."""
        return json.loads(self.read(key))

    def message(self, task_id: str) -> TaskMessage:
        """The task's message."""
        return TaskMessage.model_validate(self.read_json(TaskFolder(task_id).message))

    def plan(self, task_id: str) -> StoredPlan | None:
        """The task's plan; None if it runs without one."""
        try:
            content = self.read_json(TaskFolder(task_id).plan)
        except self.s3.exceptions.NoSuchKey:
            return None
        return StoredPlan.model_validate(content)

    def report(self, key: str) -> CheckReport | None:
        """What checks found; None if the task was cut short before them."""
        try:
            return CheckReport.model_validate(self.read_json(key))
        except self.s3.exceptions.NoSuchKey:
            return None

    def outcome(self, key: str) -> Outcome | None:
        """What a run's transcript says; None if the task was cut short before its end."""
        try:
            with self.open(key) as lines:
                return read_outcome(lines)
        except self.s3.exceptions.NoSuchKey:
            return None

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            self.s3.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                raise
            return False
        return True

    def open(self, key: str) -> IO[bytes]:
        """Open an object of any size, to be read once from start to end."""
        body = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"]
        return io.BufferedReader(_Stream(body.iter_chunks(1 << 20)), 1 << 20)

    def renew(self, key: str) -> bool:
        """Have an object expire a whole term from now; say whether it is there."""
        if not self.exists(key):
            return False
        self.s3.copy_object(
            Bucket=self.bucket,
            Key=key,
            CopySource={"Bucket": self.bucket, "Key": key},
            MetadataDirective="REPLACE",  # without a change S3 refuses to copy onto itself
        )
        return True

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        self.s3.delete_object(Bucket=self.bucket, Key=key)

    def write(self, key: str, body: bytes | str, content_type: str = "text/plain") -> None:
        """Write a small object."""
        data = body.encode() if isinstance(body, str) else body
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=data, ContentType=content_type)

    def write_json(self, key: str, content: Any) -> None:
        """Write a small object as JSON that people can read."""
        self.write(key, as_json(content), "application/json")

    def keep(
        self, folder: TaskFolder, key: str, body: bytes, content_type: str = "text/plain"
    ) -> Hashed:
        """Write a small object of a task's, and say what it holds."""
        self.write(key, body, content_type)
        return hashed(folder, key, body)

    def upload(self, key: str, chunks: Iterator[bytes]) -> None:
        """Write an object of any size with flat memory."""
        self.s3.upload_fileobj(io.BufferedReader(_Stream(chunks), 1 << 20), self.bucket, key)

    def upload_file(self, key: str, file: IO[bytes]) -> None:
        """Write an object from an open file."""
        self.s3.upload_fileobj(file, self.bucket, key)


class _Stream(io.RawIOBase):
    """Chunks as a file: boto3 and tarfile want one."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            try:
                self.rest = next(self.chunks)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count
