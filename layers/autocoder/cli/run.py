"""`autocoder run`: one task on a local cloud of its own, from the queue to the files in S3."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from autocoder.cli.problems import UsageError
from autocoder.cli.watch import Watcher
from autocoder.errors import InputError
from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario, load
from autocoder.message import decode, own_id, parse
from autocoder.ports.tasks import to_plain
from autocoder.text import printable

Say = Callable[[str, str], None]


def run_task(
    *, scenario: Path | None, message: Path | None, as_json: bool, keep: Path | None
) -> int:
    """Run the task, show it, and say by the exit code how it ended."""
    script = load(scenario) if scenario else None
    body = message_body(script, message)
    if keep:
        prepare(keep)
    forget_the_account()
    say = printer(sys.stderr if as_json else sys.stdout)
    with LocalCloud(lambda line: say("local cloud", line), keep) as cloud:
        sys.stderr.write(cloud.sandboxes["warning"])
        say("isolation", cloud.sandboxes["isolation"])
        if script:
            cloud.add_scenario(script)
            if script.source:
                body = json.dumps(cloud.with_source(script, json.loads(body)))
            say("model", f"replayed from the scenario {script.name!r}: nothing is paid for")
        message_id = cloud.send(body)
        say("queue", f"message {message_id} sent")
        record = Watcher(cloud, say).watch(candidates(body, message_id))
        show(cloud, record, say)
        if keep:
            download(cloud, record, keep)
            say("kept", f"results and logs are in {keep}")
        else:
            say("", "all of it is gone now; --keep DIR keeps files, prompts, transcripts and logs")
        sys.stderr.write(cloud.sandboxes["warning"])
    if as_json:
        sys.stdout.write(json.dumps(record, indent=2, sort_keys=True) + "\n")
    return 0 if record["status"] == "SUCCEEDED" else 1


def forget_the_account() -> None:
    """Let nothing of the caller's AWS or proxy set-up reach servers that are on loopback."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))


def prepare(keep: Path) -> None:
    """Make the folder for the results now, not when they are there and it fails."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(f"--keep {keep} is not empty: name a new folder.")
        (keep / "logs").mkdir()
    except OSError as error:
        raise UsageError(f"--keep {keep} can't be used: {error.strerror}.") from None


NO_MODEL = (
    "the message is valid, but nobody would answer for the model: give the scenario that does, "
    "with --scenario DIR. Alone, --message shows only how a bad message is rejected."
)


def message_body(script: Scenario | None, file: Path | None) -> str:
    """The body to send: the file's, byte for byte, or the scenario's."""
    if file is None:
        if script is None:
            raise UsageError("say what to run: --scenario DIR [--message FILE].")
        return json.dumps(script.task_message())
    try:
        body = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--message {file} can't be read: {error}.") from None
    if script is None and accepted(body):
        raise UsageError(f"--message {file}: {NO_MODEL}")
    return body


def accepted(body: str) -> bool:
    """Whether the service would take the message; one that it rejects needs no model."""
    try:
        parse(decode(body))
    except InputError:
        return False
    return True


def candidates(body: str, message_id: str) -> list[str]:
    """The ids that the task may get: its own, or SQS's id of the message."""
    try:
        own = own_id(decode(body))
    except InputError:
        own = None
    return [own, message_id] if own else [message_id]


def printer(out: IO[str]) -> Say:
    """Print lines with the seconds since the start."""
    began = time.monotonic()

    def say(subject: str, line: str) -> None:
        # What an agent wrote is shown too: it must not move the cursor or forge a line.
        out.write(f"{time.monotonic() - began:6.1f}s  {subject:<13} {printable(line)}\n")
        out.flush()

    return say


def show(cloud: LocalCloud, record: dict[str, Any], say: Say) -> None:
    """Show what is left at the end: the files in S3 and the row in DynamoDB."""
    result = record.get("result")
    if result:
        say("S3", f"s3://{result['bucket']}/{result['prefix']}files/")
        for key, size in objects(cloud, record["task_id"]):
            if "/files/" in key:
                say("", f"{size:>8}  {key.partition('/files/')[2]}")
    if failure := record.get("failure"):
        say("failure", f"{failure['code']}: {failure['message']}")
        say("", failure["hint"])
    if number := record.get("iteration"):
        say("result", f"{record['status']} in iteration {number}")


def objects(cloud: LocalCloud, task_id: str) -> list[tuple[str, int]]:
    """The task's objects in S3 with their sizes."""
    pages = cloud.client("s3").get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=cloud.outputs["BucketName"], Prefix=f"tasks/{task_id}/")
    return [(item["Key"], item["Size"]) for page in found for item in page.get("Contents", [])]


def download(cloud: LocalCloud, record: dict[str, Any], target: Path) -> None:
    """Bring the task's folder from S3, and its record."""
    s3 = cloud.client("s3")
    top = target.resolve()
    for key, _ in objects(cloud, record["task_id"]):
        path = (top / key.split("/", 2)[2]).resolve()
        if not path.is_relative_to(top):
            raise UsageError(f"{key} leads out of {target}; it was not written.")
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(cloud.outputs["BucketName"], key, str(path))
    (top / "task.json").write_text(json.dumps(to_plain(record), indent=2) + "\n")
