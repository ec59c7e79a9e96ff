"""Reading an archive that came out of a sandbox: hostile until proven otherwise.

It is streamed member by member; nothing is ever unpacked to a disk by its own names. Only regular
files with plain relative names come through, under caps on count, bytes and compression ratio.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from autocoder.errors import InputError
from autocoder.model import Frozen


class Caps(Frozen):
    """How large a project may be: extract_artifacts holds the packed one on its 512 MB of disk."""

    members: int = 20_000
    bytes: int = 256 * 1024 * 1024
    ratio: int = 200  # source code packs about 5:1


class ArchiveFile(Frozen):
    """A regular file of an archive."""

    path: str
    size: int
    executable: bool


HEADERS = 4096  # what a member may take besides its content
FREE_OF_RATIO = 10 * 1024 * 1024  # a small archive of zeros is no bomb


class _Counted(io.RawIOBase):
    """A stream that counts what is read from it, and stops at a limit."""

    def __init__(self, source: IO[bytes] | gzip.GzipFile) -> None:
        self.source = source
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.source.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        self.check()
        return len(data)

    def check(self) -> None:
        """Nothing to check on the packed side."""


class _Unpacked(_Counted):
    def __init__(self, packed: _Counted, caps: Caps) -> None:
        super().__init__(gzip.GzipFile(fileobj=packed))
        self.packed = packed
        self.caps = caps

    def check(self) -> None:
        if self.count > self.caps.bytes + HEADERS * self.caps.members:
            raise unsafe(f"it unpacks to more than {self.caps.bytes} bytes")
        if self.count > FREE_OF_RATIO and self.count > self.caps.ratio * max(self.packed.count, 1):
            raise unsafe(f"it is packed more than {self.caps.ratio} to 1")


def unsafe(reason: str) -> InputError:
    """Make the error for an archive that is refused."""
    return InputError("archive_unsafe", f"The project's archive was refused: {reason}.")


def project_files(
    archive: IO[bytes], caps: Caps | None = None, *, below: str = "project"
) -> Iterator[tuple[ArchiveFile, bytes]]:
    """Yield the regular files below a folder of the archive, each with its content.

    Links and devices are passed over: no result holds them. A name that tries to leave the project
    condemns the whole archive, because no honest tool wrote it.
    """
    caps = caps or Caps()
    unpacked = _Unpacked(_Counted(archive), caps)
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=unpacked, mode="r|", errorlevel=2) as tar:
            for count, member in enumerate(tar, start=1):
                if count > caps.members:
                    raise unsafe(f"it has more than {caps.members} members")
                if member.issparse() or member.size < 0:
                    raise unsafe(f"{member.name[:80]!r} is larger than what was packed of it")
                if member.size > caps.bytes:
                    raise unsafe(f"it unpacks to more than {caps.bytes} bytes")
                path = inner_path(member.name, below)
                if path is None or not member.isreg():
                    continue
                if path in seen:
                    raise unsafe(f"it holds {path!r} twice")
                seen.add(path)
                content = tar.extractfile(member)
                data = content.read() if content else b""
                if len(data) != member.size:
                    raise unsafe(f"{path!r} is not whole")
                executable = bool(member.mode & 0o100)
                yield ArchiveFile(path=path, size=len(data), executable=executable), data
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise unsafe(f"it is broken ({error})") from error


def inner_path(name: str, below: str) -> str | None:
    """Give a member's path below a folder; None for what lies beside it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise unsafe(f"the name {name!r} is not valid text") from None
    if size > 900 or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        raise unsafe(f"the name {name[:80]!r} is too long or holds control characters")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise unsafe(f"the name {name!r} leads out of it")
    top = PurePosixPath(below).parts
    inner = path.parts[len(top) :]
    return str(PurePosixPath(*inner)) if inner and path.parts[: len(top)] == top else None


def header(file: ArchiveFile, folder: str = "") -> tarfile.TarInfo:
    """A member with nothing in it that the project did not choose: no owner, no time."""
    member = tarfile.TarInfo(f"{folder}{file.path}")
    member.size = file.size
    member.mode = 0o755 if file.executable else 0o644
    return member


def as_checkpoint(source: IO[bytes], target: IO[bytes]) -> None:
    """Write a sender's archive as a checkpoint: its regular files, and nothing else of it."""
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=3) as tar:
        for file, data in project_files(source, below=""):
            tar.addfile(header(file, "project/"), io.BytesIO(data))


def pack(files: dict[str, str], folder: str = "") -> bytes:
    """Make an archive of texts."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, content in files.items():
            data = content.encode()
            file = ArchiveFile(path=path, size=len(data), executable=False)
            tar.addfile(header(file, folder), io.BytesIO(data))
    return packed.getvalue()
