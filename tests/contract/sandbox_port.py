"""What the steps rely on in a sandbox: run on local sandboxes always, on E2B's with a key."""

import io
import tarfile
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from autocoder.errors import SandboxLost
from autocoder.sandbox.client import Sandboxes, SandboxHandle
from autocoder.sandbox.jobs import Job


class SandboxPortContract:
    """A subclass gives the fixture `sandboxes`."""

    @pytest.fixture
    def name(self, sandboxes: Sandboxes) -> Iterator[str]:
        """An attempt's name; whatever it left is killed."""
        name = f"contract-{uuid.uuid4().hex[:8]}-1"
        yield name
        sandboxes.kill_all(name)

    @pytest.fixture
    def box(self, sandboxes: Sandboxes, name: str) -> SandboxHandle:
        """A sandbox with our scripts in it."""
        box = sandboxes.create(name, 1)
        box.prepare()
        return box

    def test_asked_again_it_gives_the_same_sandbox(
        self, sandboxes: Sandboxes, name: str, box: SandboxHandle
    ) -> None:
        """A create whose answer was lost makes no second one."""
        assert sandboxes.create(name, 1).sandbox_id == box.sandbox_id
        assert sandboxes.create(name, 2).sandbox_id != box.sandbox_id
        assert sandboxes.kill_all(name) == 2

    def test_a_sandbox_that_was_killed_is_lost(
        self, sandboxes: Sandboxes, name: str, box: SandboxHandle
    ) -> None:
        """Every call says so in the same way."""
        assert sandboxes.connect(box.sandbox_id).sandbox_id == box.sandbox_id
        sandboxes.kill_all(name)
        for call in (
            lambda: sandboxes.connect(box.sandbox_id),
            box.extend_lease,
            box.withdraw_model,
            lambda: box.read("x"),
        ):
            with pytest.raises(SandboxLost):
                call()

    def test_files_come_back_as_they_were_written(self, box: SandboxHandle) -> None:
        """Bytes, streams, and files that are not there or too large."""
        content = bytes(range(256)) * 4096
        box.write("project/data.bin", io.BytesIO(content))
        assert box.read("project/data.bin") == content
        assert b"".join(box.stream("project/data.bin")) == content
        assert box.read_if_there("project/none", 10) is None
        assert box.read_if_there("project/data.bin", 10) is None

    def test_a_job_is_started_once_and_its_feed_heard_by_all(self, box: SandboxHandle) -> None:
        """The second caller attaches, and hears everything from the beginning."""
        command: dict[str, Any] = {
            "name": "count",
            "argv": ["/bin/sh", "-c", "echo x >> started; echo '{\"n\": 1}'; exit 3"],
            "feed": True,
            "timeout_s": 60,
        }
        heard: list[list[str]] = []
        for _ in range(2):
            lines: list[str] = []
            end = Job(box, "contract").follow(
                [command],
                deadline_s=60,
                on_line=lambda offset, text, lines=lines: lines.append(text),  # type: ignore[misc]
                heartbeat=lambda: False,
                time_is_up=lambda: False,
            )
            assert (end.status, end.commands[0].exit_code) == ("done", 3)
            heard.append(lines)
        assert heard[0] == heard[1]
        assert '{"n": 1}' in heard[0]
        assert box.read("project/started") == b"x\n"

    def test_a_project_goes_out_and_into_another_sandbox(
        self, sandboxes: Sandboxes, name: str, box: SandboxHandle
    ) -> None:
        """A checkpoint is one archive, without what is left out."""
        box.write("project/src/a.py", "A = 1\n")
        box.write("project/node_modules/big.js", "x")
        archive = b"".join(box.pack(["node_modules"]))
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            names = packed.getnames()
        assert any(n.endswith("src/a.py") for n in names)
        assert not any("node_modules" in n for n in names)
        other = sandboxes.create(name, 2)
        other.prepare()
        other.unpack(io.BytesIO(archive))
        assert other.read("project/src/a.py") == b"A = 1\n"

    def test_the_tools_are_there(self, box: SandboxHandle) -> None:
        """What the checks and the agent call."""
        run = box.sandbox.commands.run
        for tool in ("claude", "python3", "node", "npm", "git", "python3 -m pytest"):
            assert run(f"{tool} --version").exit_code == 0
