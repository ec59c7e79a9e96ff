"""Watches a folder from inside a sandbox: one file, standard library only, Linux.

Usage: python3 watcher.py FOLDER [--recursive]

Writes a line of JSON for every event: first `null`, when nothing can be missed any more, then
objects with the entry's path below the folder and what happened to it.
"""

import ctypes
import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 2, 4, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _ONLY_FOLDERS, _IS_FOLDER = 0x4000, 0x1000000, 0x40000000
_KINDS = {
    _CREATE: "create",
    _MOVED_TO: "create",
    _MODIFY: "write",
    _DELETE: "remove",
    _MOVED_FROM: "rename",
    _ATTRIB: "chmod",
}


class Watcher:
    """The kernel's notifications (inotify) for a folder and, if asked, those below it."""

    def __init__(self, folder: Path, *, recursive: bool) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC)
        self._root = folder
        self._recursive = recursive
        self._folders: dict[int, Path] = {}
        self._add(folder)

    def _add(self, folder: Path) -> None:
        mask = _ONLY_FOLDERS
        for kind in _KINDS:
            mask |= kind
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
        if number < 0:
            problem = ctypes.get_errno()
            if folder != self._root:
                return  # it went away, or is not ours to read
            raise OSError(problem, os.strerror(problem), str(folder))
        self._folders[number] = folder
        if self._recursive:
            for child in _folders_in(folder):
                self._add(child)

    def events(self) -> Iterator[tuple[Path, str]]:
        """What happens from now on."""
        while True:
            data = os.read(self._fd, _BUFFER)
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    raise OSError("too many events at once: some were lost")
                name = data[at - length : at].rstrip(b"\0")
                if name and number in self._folders:
                    yield from self._event(self._folders[number] / os.fsdecode(name), mask)

    def _event(self, path: Path, mask: int) -> Iterator[tuple[Path, str]]:
        yield path.relative_to(self._root), next(_KINDS[x] for x in _KINDS if mask & x)
        if self._recursive and mask & _IS_FOLDER and mask & (_CREATE | _MOVED_TO):
            self._add(path)
            # What was put there before the watch was: it would never be heard of.
            for child in _everything_in(path):
                yield child.relative_to(self._root), "create"


def _folders_in(folder: Path) -> list[Path]:
    return [x for x in _children(folder) if x.is_dir() and not x.is_symlink()]


def _everything_in(folder: Path) -> Iterator[Path]:
    for child in _children(folder):
        yield child
        if child.is_dir() and not child.is_symlink():
            yield from _everything_in(child)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # it went away, or is not ours to read


def _say(event: "dict[str, str] | None") -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    watcher = Watcher(Path(sys.argv[1]), recursive="--recursive" in sys.argv[2:])
    _say(None)
    for path, kind in watcher.events():
        _say({"name": os.fsencode(path).decode(errors="replace"), "kind": kind})


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
