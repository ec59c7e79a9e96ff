"""Archives from a sandbox are hostile."""

import io
import tarfile

import pytest

from autocoder.archive import Caps, project_files
from autocoder.errors import InputError


def archive(*members: tuple[str, bytes], links: dict[str, str] | None = None) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.LNKTYPE if target.startswith("hard:") else tarfile.SYMTYPE
            info.linkname = target.removeprefix("hard:")
            tar.addfile(info)
    out.seek(0)
    return out


def read(packed: io.BytesIO, caps: Caps | None = None) -> dict[str, bytes]:
    return {file.path: data for file, data in project_files(packed, caps)}


def test_regular_files_of_the_project_come_through() -> None:
    packed = archive(
        ("project/a.py", b"1"), ("project/deep/é.txt", b"2"), ("session/s.jsonl", b"secret")
    )
    assert read(packed) == {"a.py": b"1", "deep/é.txt": b"2"}


def test_executables_stay_executable() -> None:
    found = {f.path: f.executable for f, _ in project_files(archive(("project/run.sh", b"")))}
    assert found == {"run.sh": True}


def test_links_and_devices_are_passed_over() -> None:
    packed = archive(
        ("project/a", b"1"), links={"project/l": "/etc/passwd", "project/h": "hard:project/a"}
    )
    assert read(packed) == {"a": b"1"}


@pytest.mark.parametrize(
    "name",
    [
        "project/../../etc/passwd",
        "/etc/passwd",
        "project/a\nb",
        "project/a\\b",
        "project/" + "n" * 1000,
        "project/\udcff",
    ],
)
def test_a_name_that_no_honest_tool_writes_condemns_the_archive(name: str) -> None:
    with pytest.raises(InputError, match="archive_unsafe"):
        read(archive((name, b"x")))


def test_the_same_file_twice_is_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        read(archive(("project/a", b"1"), ("project/./a", b"2")))


def test_too_many_members_are_refused() -> None:
    with pytest.raises(InputError, match="more than 3 members"):
        read(archive(*((f"project/{n}", b"") for n in range(4))), Caps(members=3))


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(InputError, match="more than 20000 bytes"):
        read(archive(("project/a", bytes(range(256)) * 100)), Caps(bytes=20_000))


def test_a_file_that_grows_when_it_is_read_is_refused() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("project/holes")
        data = b"1\n0\n4\n".ljust(512, b"\0") + b"data"
        info.size = len(data)
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": str(2**40),
            "GNU.sparse.name": "project/holes",
        }
        tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    with pytest.raises(InputError, match="larger than what was packed"):
        read(out)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(InputError, match="200 to 1"):
        read(archive(("project/zeros", b"\0" * 50_000_000)))


CUT = archive(("project/a", b"1" * 999)).getvalue()[:-30]


@pytest.mark.parametrize("broken", [b"", b"not gzip", CUT], ids=["empty", "not gzip", "cut"])
def test_a_broken_archive_is_refused(broken: bytes) -> None:
    with pytest.raises(InputError, match="archive_unsafe"):
        read(io.BytesIO(broken))
