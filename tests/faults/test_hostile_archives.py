"""Checkpoints that no honest packer wrote, through the step that reads them.

Names and broken archives one by one: tests/unit/test_archive.py.
"""

import gzip
import io
import tarfile
from collections.abc import Iterator

import pytest

from autocoder.errors import InputError
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from autocoder.task import AgentRun, Decision, State
from functions import extract_artifacts
from tests.steps.builders import queued

FINISH = Decision(next="finish", iteration=1, reason="Every check passed.")


def regular(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


def packed(*members: tuple[tarfile.TarInfo, bytes], encoding: str = "utf-8") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", encoding=encoding, format=tarfile.GNU_FORMAT) as t:
        for info, data in members:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def many(count: int) -> bytes:
    """So many empty files, made quickly: one header, with the name changed."""
    header = bytearray(tarfile.TarInfo("project/000000").tobuf())
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as tar:
        for number in range(count):
            header[8:14] = b"%06d" % number
            header[148:156] = b" " * 8
            header[148:156] = b"%06o\0 " % sum(header)
            tar.write(header)
        tar.write(bytes(1024))
    return out.getvalue()


def bomb() -> bytes:
    """A file of 200 MB in 200 KB: 1,000 to 1."""
    out = io.BytesIO()
    size = 200 * 1024 * 1024
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as tar:
        info = tarfile.TarInfo("project/zeros")
        info.size = size
        tar.write(info.tobuf())
        for _ in range(size // (1 << 20)):
            tar.write(bytes(1 << 20))
        tar.write(bytes(1024))
    return out.getvalue()


def decided(services: Services, archive: bytes) -> State:
    """A task whose checks are green and whose checkpoint is this archive."""
    state = queued(services, "archive")
    services.tasks.running(state.task_id, 1, stage="deciding")
    key = TaskFolder(state.task_id).checkpoint(1)
    services.objects.write(key, archive)
    run = AgentRun(iteration=1, status="done", checkpoint=key)
    return state.model_copy(update={"run": run, "decision": FINISH})


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (packed(regular("project/ok"), regular("project/../../escape")), "leads out"),
        (packed(regular("project/ok"), regular("/etc/cron.d/evil")), "leads out"),
        (packed(regular("project/ok"), regular("project/\udcff\udcfe")), "not valid text"),
        (many(200_000), "more than 20000 members"),
        (bomb(), "packed more than 200 to 1"),
    ],
    ids=["dots", "absolute", "bytes that are no text", "200,000 members", "1,000:1 bomb"],
)
def test_a_hostile_archive_ends_the_task_with_a_reason_and_no_result(
    services: Services, archive: bytes, why: str
) -> None:
    state = decided(services, archive)
    with pytest.raises(InputError) as refused:
        extract_artifacts.run(state, services)
    assert refused.value.code == "archive_unsafe"
    assert why in refused.value.message
    folder = TaskFolder(state.task_id)
    assert keys(services, state) == [folder.checkpoint(1), folder.message]


def test_links_and_devices_are_left_behind_and_odd_names_kept(services: Services) -> None:
    archive = packed(
        regular("project/naïve ‰ 名.txt"),
        special("project/sym", tarfile.SYMTYPE, "/etc/passwd"),
        special("project/hard", tarfile.LNKTYPE, "project/naïve ‰ 名.txt"),
        special("project/device", tarfile.CHRTYPE),
        special("project/block", tarfile.BLKTYPE),
        special("project/pipe", tarfile.FIFOTYPE),
        special("project/folder", tarfile.DIRTYPE),
    )
    state = decided(services, archive)
    assert extract_artifacts.run(state, services).files == 1
    folder = TaskFolder(state.task_id)
    stored = [key for key in keys(services, state) if key.startswith(folder.files)]
    assert stored == [f"{folder.files}naïve ‰ 名.txt"]


def keys(services: Services, state: State) -> list[str]:
    """The keys of all that the task has in S3."""
    return list(found(services, TaskFolder(state.task_id).prefix))


def found(services: Services, prefix: str) -> Iterator[str]:
    pages = services.objects.s3.get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=services.objects.bucket, Prefix=prefix):
        yield from (str(item["Key"]) for item in page.get("Contents", []))
