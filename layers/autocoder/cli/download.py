"""`autocoder download`: a task's results in a folder here. Their names were chosen by an agent.

What is there with the right hash is not fetched again. A file gets its name when it is whole and
verified, so an interrupted download leaves nothing that looks like a result.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from autocoder.cli.problems import UsageError
from autocoder.cli.records import read_record
from autocoder.cli.results import hashes, manifest, objects_of, stored
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json, size
from autocoder.ports.objects import Objects, TaskFolder
from autocoder.record import TaskRecord
from autocoder.text import printable

AT_ONCE = 8
CHUNK = 1 << 20
PARTS = ".autocoder-download"  # where files are until they are whole


class MismatchError(Exception):
    """What came is not what manifest or evidence says."""


class Wanted(NamedTuple):
    """One object, where it goes, and what it must hold, where that is known."""

    key: str
    path: Path
    bytes: int
    sha256: str | None


class Fetched(NamedTuple):
    """What was done."""

    new: list[Path]
    there: list[Path]
    bytes: int


def download(
    service: Service, task_id: str, folder: Path, only: str | None, *, force: bool, as_json: bool
) -> int:
    """Bring a task's results, verified; 1 if something is not what was signed for."""
    record = read_record(service, task_id)
    manifest(service, record)  # an incomplete or expired result is said, not half fetched
    try:
        done = fetch(service, record, folder, only=only, force=force)
    except MismatchError as mismatch:
        sys.stderr.write(f"MISMATCH: {mismatch}\n")
        return 1
    if as_json:
        fetched = {"new": [str(path) for path in done.new], "bytes": done.bytes}
        print_json({"folder": str(folder), **fetched, "there": [str(p) for p in done.there]})
        return 0
    there = f", {len(done.there)} were there" if done.there else ""
    sys.stdout.write(f"{folder}: {len(done.new)} files, {size(done.bytes)}{there}\n")
    return 0


def fetch(
    service: Service,
    record: TaskRecord,
    folder: Path,
    *,
    only: str | None = None,
    force: bool = False,
) -> Fetched:
    """Bring everything, or the project's files alone (`only` is "files"), without their prefix."""
    wanted = list(plan(service, record["task_id"], folder, only))
    there = [one for one in wanted if one.sha256 and sha256_of(one.path) == one.sha256]
    missing = [one for one in wanted if one not in there]
    if not force:
        for one in missing:
            if one.sha256 and os.path.lexists(one.path):
                raise in_the_way(one.path)
    objects = objects_of(service)
    try:
        with parts_of(folder) as parts, ThreadPoolExecutor(AT_ONCE) as pool:
            written = list(pool.map(lambda one: bring(objects, one, parts, force), missing))
    except OSError as error:
        name = error.filename or folder
        raise UsageError(f"{name} can't be written: {error.strerror}.") from None
    new = [one for one, was in zip(missing, written, strict=True) if was]
    paths = [one.path for one in wanted if one not in new]
    return Fetched([one.path for one in new], paths, sum(one.bytes for one in new))


@contextmanager
def parts_of(folder: Path) -> Iterator[Path]:
    """A folder beside the results for what is not whole yet; what a killed download left goes."""
    parts = folder / PARTS
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another download into {folder} is under way.") from None
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        yield parts
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        os.close(lock)


def plan(service: Service, task_id: str, folder: Path, only: str | None) -> Iterator[Wanted]:
    """Say what goes where; a name that leads out of the folder stops it all."""
    below = f"{only}/" if only else ""
    known, prefix, top = hashes(service, task_id), TaskFolder(task_id).prefix, folder.resolve()
    there = dict(stored(service, task_id))
    for name in sorted(known.keys() - there.keys()):
        raise MismatchError(f"{printable(name)} is in the manifest, and not in the bucket.")
    for name, count in there.items():
        if name.startswith("files/") and name not in known:
            raise MismatchError(f"{printable(name)} is in the bucket, and not in the manifest.")
        if name.startswith(below):
            path = inside(top, folder, name.removeprefix(below))
            yield Wanted(prefix + name, path, count, known.get(name))


def inside(top: Path, folder: Path, name: str) -> Path:
    """Where a name leads: also by links that are there already."""
    parts = name.split("/")
    control = any(unicodedata.category(char) == "Cc" for char in name)
    plain = not control and not {"", ".", ".."} & set(parts) and parts[0] != PARTS
    path = folder.joinpath(*parts) if plain else folder
    if not plain or not path.parent.resolve().is_relative_to(top):
        raise UsageError(f"{printable(name)} leads out of {folder}; nothing was written.")
    return path


def bring(objects: Objects, wanted: Wanted, parts: Path, force: bool) -> bool:
    """Fetch one object aside, verify it, and give it its name; False if it was there already."""
    part = parts / hashlib.sha256(wanted.key.encode()).hexdigest()
    digest = hashlib.sha256()
    with part.open("xb") as out, objects.open(wanted.key) as content:
        while data := content.read(CHUNK):
            digest.update(data)
            out.write(data)
    if wanted.sha256 and digest.hexdigest() != wanted.sha256:
        raise MismatchError(f"{wanted.path} is not what was stored; it was not kept.")
    if sha256_of(wanted.path) == digest.hexdigest():
        return False
    if not force and os.path.lexists(wanted.path):
        raise in_the_way(wanted.path)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    part.replace(wanted.path)
    return True


def sha256_of(path: Path) -> str | None:
    """What a file holds; None if there is none, or something else."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def in_the_way(path: Path) -> UsageError:
    """Say that something else has the name."""
    return UsageError(
        f"{printable(str(path))} is there with other content: name another folder, or add --force."
    )
