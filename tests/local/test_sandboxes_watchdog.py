"""The watchdog's rules that a test can't bring about without harm to its machine."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autocoder.local.sandboxes import watchdog

MIB = watchdog.MIB


@dataclass
class Box:
    """A sandbox as the watchdog sees it: a shell with children, and a folder."""

    id: str
    process: "subprocess.Popen[bytes]"
    scratch: list[int]

    @property
    def root_pid(self) -> int:
        return self.process.pid


@dataclass
class Boxes:
    boxes: list[Box] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)

    def all(self) -> list[Box]:
        return self.boxes

    async def end(self, sandbox_id: str, reason: str) -> None:
        self.ended[sandbox_id] = reason
        raise asyncio.CancelledError  # enough was seen


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Boxes]:
    """A small one and a large one."""
    made = Boxes()
    for name, size in {"small": 1, "large": 40 * MIB}.items():
        hold = f"python3 -c 'x = bytearray({size}); print(1, flush=True); input()'; true"
        process = subprocess.Popen(
            ["/bin/sh", "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout and process.stdout.readline() == b"1\n"
        made.boxes.append(Box(name, process, [os.open(tmp_path, os.O_RDONLY)]))
    yield made
    for box in made.boxes:
        box.process.communicate(b"\n")
        os.close(box.scratch[0])


def watch(boxes: Boxes, limit: int) -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(watchdog.watch(boxes, limit), 20))


def test_a_machine_out_of_memory_costs_the_largest_sandbox(
    boxes: Boxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_LOW", 1.0)
    monkeypatch.setattr(watchdog, "MOST_FILES", 2**62)  # the folder is on a disk, not its own
    watch(boxes, 10_000 * MIB)
    assert boxes.ended == {"large": "this machine is out of memory"}


def test_too_many_files_end_a_sandbox(boxes: Boxes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MOST_FILES", 0)
    watch(boxes, 10_000 * MIB)
    assert list(boxes.ended) == ["small"]
    assert boxes.ended["small"].endswith(" files")


def test_the_largest_go_first_and_no_more_than_needed() -> None:
    processes = [watchdog.Process(n, "", n * 10) for n in (1, 4, 2, 3)]
    use = watchdog.Use(processes, scratch=0, files=0)
    assert use.memory == 100
    assert [x.pid for x in use.too_much(100)] == []
    assert [x.pid for x in use.too_much(99)] == [4]
    assert [x.pid for x in use.too_much(50)] == [4, 3]


def test_a_number_that_another_process_got_is_left_alone(boxes: Boxes) -> None:
    process = boxes.boxes[0].process
    watchdog._kill(watchdog.Process(process.pid, "another start", 0))
    assert process.poll() is None
    watchdog._kill(watchdog.Process(2**22 + 1, "0", 0))  # no such process: no error


def test_children_of_every_thread_are_found_with_and_without_the_kernels_list() -> None:
    work = "[subprocess.Popen(['sleep', '100'], stdout=2), print(1, flush=True), input()]"
    program = f"import subprocess, threading; threading.Thread(target=lambda: {work}).start()"
    with subprocess.Popen(
        ["python3", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"1\n"
        (child,) = watchdog._children(process.pid)
        assert watchdog._scan()(process.pid) == [child]
        assert watchdog._children(child) == watchdog._scan()(child) == []
        os.kill(child, signal.SIGKILL)
        process.communicate(b"\n")
