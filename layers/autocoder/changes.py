"""What an iteration did to the files: by what the service stored, not by what the agent said."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import IO

from pydantic import Field

from autocoder.archive import project_files
from autocoder.model import Frozen

AT_MOST = 50  # names a kind: the project's own list has them all

Digests = Mapping[str, str]  # path → SHA-256


class Changes(Frozen):
    """The files that one project has and another has not, or has otherwise."""

    added: list[str] = Field(default_factory=list)
    changed: list[str] = Field(default_factory=list)
    deleted: list[str] = Field(default_factory=list)
    more: int = 0  # so many are not named


def digests(checkpoint: IO[bytes]) -> Digests:
    """Hash a checkpoint's files, one in memory at a time."""
    return {file.path: hashlib.sha256(data).hexdigest() for file, data in project_files(checkpoint)}


def compare(before: Digests, after: Digests) -> Changes:
    """Say what it takes to come from one project to the other."""
    kinds: dict[str, Iterable[str]] = {
        "added": after.keys() - before.keys(),
        "changed": (path for path in after.keys() & before.keys() if after[path] != before[path]),
        "deleted": before.keys() - after.keys(),
    }
    found = {kind: sorted(paths) for kind, paths in kinds.items()}
    named = {kind: paths[:AT_MOST] for kind, paths in found.items()}
    more = sum(len(found[kind]) - len(named[kind]) for kind in kinds)
    return Changes(**named, more=more)
