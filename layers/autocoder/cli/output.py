"""Bringing a task's files out of the local cloud. Their names were chosen by an agent."""

import json
import re
from pathlib import Path
from typing import Any

from autocoder.cli.problems import UsageError
from autocoder.local.cloud import LocalCloud
from autocoder.ports.tasks import to_plain


def prepare_keep(keep: Path) -> None:
    """Make the folder for the results now, not when they are there and it fails."""
    prepare("--keep", keep, force=False)
    (keep / "logs").mkdir()


def prepare(option: str, folder: Path, *, force: bool) -> None:
    """Make a folder to write to; nothing in it is overwritten unless that is asked for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not force:
            more = "" if option == "--keep" else ", or add --force to write over its files"
            raise UsageError(f"{option} {folder} is not empty: name a new folder{more}.")
    except OSError as error:
        raise UsageError(f"{option} {folder} can't be used: {error.strerror}.") from None


def folder_for(record: dict[str, Any], *, force: bool) -> Path:
    """A folder here that is named after the project: a new one, unless it may be written over."""
    named = (record.get("plan") or {}).get("name") or (record.get("project") or {}).get("name")
    name = re.sub(r"[^a-z0-9]+", "-", str(named or "").lower()).strip("-")[:64].strip("-")
    name = name or str(record["task_id"])
    number, folder = 1, Path(name)
    while not force and folder.exists():
        number += 1
        folder = Path(f"{name}-{number}")
    prepare("--output", folder, force=force)
    return folder


def objects(cloud: LocalCloud, task_id: str) -> list[tuple[str, int]]:
    """The names of the task's objects in its folder in S3, with their sizes."""
    prefix = f"tasks/{task_id}/"
    pages = cloud.client("s3").get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=cloud.outputs["BucketName"], Prefix=prefix)
    items = [item for page in found for item in page.get("Contents", [])]
    return [(item["Key"].removeprefix(prefix), item["Size"]) for item in items]


def download(cloud: LocalCloud, record: dict[str, Any], target: Path, only: str = "") -> None:
    """Bring the task's objects whose names begin with `only`, without it."""
    s3, top = cloud.client("s3"), target.resolve()
    for name, _ in objects(cloud, record["task_id"]):
        if not name.startswith(only):
            continue
        path = (top / name.removeprefix(only)).resolve()  # where a link that is there leads
        if not path.is_relative_to(top):
            raise UsageError(f"{name} leads out of {target}; it was not written.")
        key = f"tasks/{record['task_id']}/{name}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(cloud.outputs["BucketName"], key, str(path))
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}.") from None


def write_record(record: dict[str, Any], target: Path) -> None:
    """Write the task's record beside its results."""
    (target / "task.json").write_text(json.dumps(to_plain(record), indent=2) + "\n")
