"""Where `autocoder run` leaves what was made."""

import json
import re
from pathlib import Path

from autocoder.cli.problems import UsageError
from autocoder.record import TaskRecord, stable


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


def names_of(record: TaskRecord) -> list[str | None]:
    """What the planner and the sender call the project."""
    plan, project = record.get("plan"), record.get("project")
    return [plan.get("name") if plan else None, project["name"] if project else None]


def folder_for(record: TaskRecord, *, force: bool) -> Path:
    """A folder here that is named after the project: a new one, unless it may be written over."""
    named = next(filter(None, names_of(record)), "")
    name = re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-")[:64].strip("-")
    name = name or str(record["task_id"])
    number, folder = 1, Path(name)
    while not force and folder.exists():
        number += 1
        folder = Path(f"{name}-{number}")
    prepare("--output", folder, force=force)
    return folder


def write_record(record: TaskRecord, target: Path) -> None:
    """Write the task's record beside its results."""
    (target / "task.json").write_text(json.dumps(stable(record), indent=2) + "\n")
