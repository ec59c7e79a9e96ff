"""What a task made, as it lies in S3: its list, its hashes, and single files."""

import sys
from typing import Any, NoReturn

from pydantic import TypeAdapter

from autocoder.cli.problems import UsageError
from autocoder.cli.records import read_record
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json, size
from autocoder.evidence import Evidence
from autocoder.model import Hashed
from autocoder.ports.objects import Objects, TaskFolder
from autocoder.record import TERMINAL, TaskRecord
from autocoder.text import printable

FILES = TypeAdapter(list[Hashed])


def objects_of(service: Service) -> Objects:
    """The stack's bucket."""
    return Objects(service.client("s3"), service.outputs["BucketName"])


def show_files(service: Service, task_id: str, *, as_json: bool) -> int:
    """List the project's files, with their sizes."""
    files = manifest(service, read_record(service, task_id))
    if as_json:
        print_json([file.model_dump() for file in files])
        return 0
    width = max((len(size(file.bytes)) for file in files), default=0)
    for file in files:
        sys.stdout.write(f"{size(file.bytes):>{width}}  {printable(file.path)}\n")
    return 0


def show_file(service: Service, task_id: str, path: str) -> int:
    """Write one file to stdout."""
    record = read_record(service, task_id)
    objects, folder = objects_of(service), TaskFolder(task_id)
    names = {file.path: folder.files + file.path for file in manifest(service, record)}
    names |= {name: folder.prefix + name for name, _ in stored(service, task_id)}
    if path not in names:
        raise UsageError(
            f"{task_id} has no file {printable(path)!r}: `autocoder files {task_id}` lists them."
        )
    write_out(objects, names[path])
    return 0


def write_out(objects: Objects, key: str) -> None:
    """Write an object to stdout: a pipe gets its bytes, a terminal nothing that could move it."""
    with objects.open(key) as content:
        if sys.stdout.isatty():
            for line in content:
                sys.stdout.write(harmless(line))
            return
        while data := content.read(1 << 20):
            sys.stdout.buffer.write(data)


def harmless(line: bytes) -> str:
    """A line for a terminal: tabs and its end stay, other control characters are escaped."""
    text = line.decode(errors="replace")
    end = "\n" if text.endswith("\n") else ""
    return "".join(map(escaped, text.rstrip("\r\n"))) + end


def escaped(char: str) -> str:
    """A character as it may be shown."""
    if char.isprintable() or char == "\t":
        return char
    return char.encode("unicode_escape").decode()


def manifest(service: Service, record: TaskRecord) -> list[Hashed]:
    """The project's files, of a result that is complete; else why there is none."""
    objects = objects_of(service)
    key = TaskFolder(record["task_id"]).manifest
    try:
        content = objects.read_json(key)
    except objects.s3.exceptions.NoSuchKey:
        no_result(record, service)
    return FILES.validate_python(content["files"])


def no_result(record: TaskRecord, service: Service) -> NoReturn:
    """Say why a task has no result."""
    task_id, status = record["task_id"], record["status"]
    if status not in TERMINAL:
        raise UsageError(
            f"{task_id} is {status}: `autocoder watch {task_id}` waits for its result."
        )
    if record.get("result"):
        raise UsageError(
            f"the result of {task_id} has expired: {service.where} keeps results as long as "
            "cdk.json's retention_days says, and the record a little longer."
        )
    failure = record.get("failure")
    reason = f" ({failure['code']}: {failure['message']})" if failure else ""
    raise UsageError(f"{task_id} is {status} and has no result{reason}.")


def stored(service: Service, task_id: str) -> list[tuple[str, int]]:
    """The names of everything in the task's folder in S3, with their sizes."""
    prefix = TaskFolder(task_id).prefix
    pages = service.client("s3").get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=service.outputs["BucketName"], Prefix=prefix)
    items: list[dict[str, Any]] = [item for page in found for item in page.get("Contents", [])]
    return [(item["Key"].removeprefix(prefix), item["Size"]) for item in items]


def hashes(service: Service, task_id: str) -> dict[str, str]:
    """What is known of the folder's objects: manifest and evidence have the hashes of most."""
    objects, folder = objects_of(service), TaskFolder(task_id)
    found: dict[str, str] = {}
    try:
        files = FILES.validate_python(objects.read_json(folder.manifest)["files"])
        found |= {f"files/{file.path}": file.sha256 for file in files}
        proof = Evidence.model_validate(objects.read_json(folder.evidence))
    except objects.s3.exceptions.NoSuchKey:
        return found
    parts = [*proof.documents, *proof.logs, *proof.files, *filter(None, [proof.archive])]
    return {**{part.path: part.sha256 for part in parts}, **found}
