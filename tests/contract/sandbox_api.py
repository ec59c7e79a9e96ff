"""What the unmodified e2b SDK can do with a sandbox: held by the local server, and by E2B itself.

A subclass gives the fixture `provider`. tests/local runs it always, tests/live with a key.
"""

import asyncio
import hashlib
import io
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.connection_config import ApiParams
from e2b.exceptions import SandboxNotRunningException

from tests.waiting import eventually


class Provider(Protocol):
    """Who makes sandboxes."""

    @property
    def options(self) -> ApiParams: ...

    def create(self, **arguments: Any) -> Sandbox: ...

    def sandbox(self, **arguments: Any) -> AbstractContextManager[Sandbox]: ...


class Contract:
    """One sandbox for all tests of a class."""

    @pytest.fixture(scope="class")
    @classmethod
    def sandbox(cls, provider: Provider) -> Iterator[Sandbox]:
        envs = {"FROM_CREATE": "1", "BOTH": "create"}
        with provider.sandbox(envs=envs, timeout=300) as sandbox:
            yield sandbox


class LifeContract(Contract):
    def test_info_returns_what_create_was_given(self, provider: Provider) -> None:
        metadata = {"task": "a b&c=d"}
        with provider.sandbox(metadata=metadata, timeout=120) as sandbox:
            info = sandbox.get_info()
            assert info.sandbox_id == sandbox.sandbox_id
            assert info.metadata == metadata
            assert info.state == SandboxState.RUNNING
            assert round((info.end_at - info.started_at).total_seconds()) == 120
            assert sandbox.is_running()

    def test_network_rules_are_accepted(self, provider: Provider) -> None:
        network = {"allow_out": ["example.test"], "deny_out": ["0.0.0.0/0"]}
        with provider.sandbox(network=network) as sandbox:
            sandbox.update_network({"deny_out": ["0.0.0.0/0"]})

    def test_the_same_key_gives_the_same_sandbox_while_it_lives(self, provider: Provider) -> None:
        key = "task-" + secrets.token_hex(4)
        first = provider.create(idempotency_key=key)
        assert provider.create(idempotency_key=key).sandbox_id == first.sandbox_id
        first.kill()
        with provider.sandbox(idempotency_key=key) as second:
            assert second.sandbox_id != first.sandbox_id

    def test_connect_reaches_the_same_files(self, provider: Provider, sandbox: Sandbox) -> None:
        sandbox.files.write("shared.txt", "hello")
        again = Sandbox.connect(sandbox.sandbox_id, **provider.options)
        assert again.files.read("shared.txt") == "hello"

    def test_list_selects_by_metadata_and_state_in_pages(self, provider: Provider) -> None:
        mark = secrets.token_hex(4)
        made = [provider.create(metadata={"mark": mark, "n": str(n)}) for n in range(3)]
        query = SandboxQuery(metadata={"mark": mark}, state=[SandboxState.RUNNING])
        pages = Sandbox.list(query=query, limit=2, **provider.options)
        found = []
        sizes = []
        while pages.has_next:
            page = pages.next_items()
            sizes.append(len(page))
            found += [x.metadata["n"] for x in page]
        assert sizes == [2, 1]
        assert found == ["2", "1", "0"]
        for sandbox in made:
            sandbox.kill()

    def test_a_sandbox_ends_when_its_time_is_up(self, provider: Provider) -> None:
        sandbox = provider.create(timeout=60)
        sandbox.set_timeout(1)
        assert eventually(lambda: not sandbox.is_running())
        with pytest.raises(SandboxNotFoundException):
            sandbox.get_info()

    def test_a_dead_sandbox_raises_the_sdks_own_exceptions(self, provider: Provider) -> None:
        sandbox = provider.create()
        assert sandbox.kill()
        assert not sandbox.kill()
        assert not sandbox.is_running()
        with pytest.raises(SandboxNotRunningException):
            sandbox.commands.run("true")
        with pytest.raises(SandboxNotRunningException):
            sandbox.files.read("x")
        with pytest.raises(SandboxNotRunningException):
            sandbox.files.list("/")
        with pytest.raises(SandboxNotFoundException):
            sandbox.set_timeout(60)
        with pytest.raises(SandboxNotFoundException):
            Sandbox.connect(sandbox.sandbox_id, **provider.options)

    def test_a_command_in_flight_learns_that_its_sandbox_was_killed(
        self, provider: Provider
    ) -> None:
        sandbox = provider.create()
        handle = sandbox.commands.run("sleep 100", background=True, timeout=0)
        sandbox.kill()
        with pytest.raises(SandboxNotRunningException):
            handle.wait()


class PauseContract(Contract):
    COUNT = "i=0; while true; do i=$((i+1)); echo $i > count.new; mv count.new count; done"

    def test_a_paused_sandbox_stands_still_until_someone_connects(self, provider: Provider) -> None:
        sandbox = provider.create(metadata={"pause": secrets.token_hex(4)}, timeout=60)
        counting = sandbox.commands.run(self.COUNT, background=True, timeout=0, cwd="/home/user")
        assert eventually(lambda: sandbox.files.exists("count"))
        assert sandbox.pause()
        with pytest.raises(TimeoutException):
            counting.wait()

        assert not sandbox.pause()
        assert not sandbox.is_running()
        with pytest.raises(SandboxNotRunningException):
            sandbox.commands.run("true")
        with pytest.raises(SandboxNotRunningException):
            sandbox.files.read("count")
        with pytest.raises(SandboxNotFoundException):
            sandbox.set_timeout(60)

        resumed = Sandbox.connect(sandbox.sandbox_id, timeout=60, **provider.options)
        assert resumed.get_info().state == SandboxState.RUNNING
        before = int(resumed.files.read("count"))
        assert eventually(lambda: int(resumed.files.read("count")) > before)
        assert counting.pid in {x.pid for x in resumed.commands.list()}
        assert resumed.commands.kill(counting.pid)
        assert resumed.kill()

    def test_paused_sandboxes_are_listed_as_such_and_can_be_killed(
        self, provider: Provider
    ) -> None:
        metadata = {"mark": secrets.token_hex(4)}
        sandbox = provider.create(metadata=metadata)
        sandbox.pause()

        def found(*states: SandboxState) -> list[SandboxState]:
            query = SandboxQuery(metadata=metadata, state=list(states) or None)
            return [x.state for x in Sandbox.list(query=query, **provider.options).next_items()]

        assert found(SandboxState.PAUSED) == found() == [SandboxState.PAUSED]
        assert found(SandboxState.RUNNING) == []
        assert sandbox.get_info().state == SandboxState.PAUSED
        assert sandbox.kill()
        assert found() == []

    def test_a_sandbox_can_pause_when_its_time_is_up_and_go_on_when_asked(
        self, provider: Provider
    ) -> None:
        lifecycle = {"on_timeout": "pause", "auto_resume": True}
        with provider.sandbox(timeout=60, lifecycle=lifecycle) as sandbox:
            sandbox.files.write("kept", "yes")
            sandbox.set_timeout(1)
            assert eventually(lambda: sandbox.get_info().state == SandboxState.PAUSED)
            assert sandbox.files.read("kept") == "yes"
            assert sandbox.get_info().state == SandboxState.RUNNING


class CommandsContract(Contract):
    def test_output_and_exit_code(self, sandbox: Sandbox) -> None:
        result = sandbox.commands.run("echo out; echo err >&2")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)

    def test_a_failing_command_raises_with_its_code_and_output(self, sandbox: Sandbox) -> None:
        with pytest.raises(CommandExitException) as failure:
            sandbox.commands.run("echo partly; exit 3")
        assert failure.value.exit_code == 3
        assert failure.value.stdout == "partly\n"

    def test_environment_and_folder(self, sandbox: Sandbox) -> None:
        sandbox.files.make_dir("here")
        command = 'echo "$FROM_CREATE $BOTH $USER"; basename "$PWD"'
        result = sandbox.commands.run(command, envs={"BOTH": "command"}, cwd="/home/user/here")
        assert result.stdout == "1 command user\nhere\n"

    def test_a_missing_folder_is_the_callers_mistake(self, sandbox: Sandbox) -> None:
        with pytest.raises(InvalidArgumentException, match="working directory"):
            sandbox.commands.run("true", cwd="/home/user/nowhere")

    def test_output_arrives_while_the_command_runs(self, sandbox: Sandbox) -> None:
        seen: list[str] = []

        def answer(text: str) -> None:
            seen.append(text)
            if "ready" in text:
                sandbox.files.write("go", "")

        waiting = "rm -f go; echo ready; until [ -e go ]; do sleep 0.01; done; echo done"
        sandbox.commands.run(waiting, on_stdout=answer, cwd="/home/user")
        assert "".join(seen) == "ready\ndone\n"

    def test_much_output_arrives_whole(self, sandbox: Sandbox) -> None:
        result = sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x")
        assert len(result.stdout) == 5_000_000

    def test_standard_input(self, sandbox: Sandbox) -> None:
        handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
        sandbox.commands.send_stdin(handle.pid, "one\n")
        sandbox.commands.stream_input(handle.pid, ["two\n", b"three\n"])
        sandbox.commands.close_stdin(handle.pid)
        assert handle.wait().stdout == "one\ntwo\nthree\nend\n"

    def test_without_standard_input_a_reader_sees_its_end(self, sandbox: Sandbox) -> None:
        assert sandbox.commands.run("cat; echo end").stdout == "end\n"

    def test_list_and_kill(self, sandbox: Sandbox) -> None:
        handle = sandbox.commands.run("sleep 100", background=True, timeout=0)
        listed = {x.pid: x for x in sandbox.commands.list()}
        assert listed[handle.pid].args == ["-l", "-c", "sleep 100"]
        assert sandbox.commands.kill(handle.pid)
        with pytest.raises(CommandExitException) as ended:
            handle.wait()
        assert ended.value.exit_code == -1
        assert ended.value.error == "signal: killed"
        assert handle.pid not in {x.pid for x in sandbox.commands.list()}
        assert not sandbox.commands.kill(999_999)

    def test_connect_by_pid_follows_from_then_on(self, sandbox: Sandbox) -> None:
        sandbox.files.remove("proceed")
        command = "until [ -e proceed ]; do sleep 0.01; done; echo late; exit 4"
        started = sandbox.commands.run(command, background=True, cwd="/home/user")
        pid = started.pid
        started.disconnect()
        connected = sandbox.commands.connect(pid)
        sandbox.files.write("proceed", "")
        with pytest.raises(CommandExitException) as ended:
            connected.wait()
        assert (ended.value.stdout, ended.value.exit_code) == ("late\n", 4)
        with pytest.raises(CommandExitException) as remembered:
            sandbox.commands.connect(pid).wait()
        assert remembered.value.exit_code == 4
        with pytest.raises(NotFoundException):
            sandbox.commands.connect(999_999)

    def test_a_command_that_takes_too_long_is_killed(self, sandbox: Sandbox) -> None:
        with pytest.raises(TimeoutException):
            sandbox.commands.run("exec sleep 4321", timeout=0.5)
        sleeping = "pgrep -f '[s]leep 4321' || true"
        assert eventually(lambda: sandbox.commands.run(sleeping).stdout == "")

    def test_a_command_outlives_its_callers_connection(self, sandbox: Sandbox) -> None:
        command = "sleep 0.3; echo survived > survivor.txt"
        sandbox.commands.run(command, background=True, cwd="/home/user").disconnect()
        assert eventually(lambda: sandbox.files.exists("survivor.txt"))

    def test_a_group_of_processes_ends_together(self, sandbox: Sandbox) -> None:
        mark = 1_000_000 + secrets.randbelow(1_000_000_000)
        group = f"setsid --wait sh -c 'echo $$ > group; sleep {mark} & sleep {mark}'"
        handle = sandbox.commands.run(group, background=True, timeout=0, cwd="/home/user")
        sleeping = f"pgrep -fc '^sleep {mark}' || true"
        assert eventually(lambda: sandbox.commands.run(sleeping).stdout == "2\n")
        sandbox.commands.run("kill -- -$(cat group)", cwd="/home/user")
        with pytest.raises(CommandExitException):
            handle.wait()
        assert eventually(lambda: sandbox.commands.run(sleeping).stdout == "0\n")

    def test_input_for_a_command_that_is_not_there(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFoundException):
            sandbox.commands.send_stdin(999_999, "x")

    def test_an_unknown_user_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(AuthenticationException, match="nobody-knows"):
            sandbox.commands.run("true", user="nobody-knows")
        with pytest.raises(AuthenticationException, match="nobody-knows"):
            sandbox.files.read("x", user="nobody-knows")
        with pytest.raises(AuthenticationException, match="nobody-knows"):
            sandbox.files.list(".", user="nobody-knows")

    def test_many_commands_at_once(self, sandbox: Sandbox) -> None:
        handles = [sandbox.commands.run(f"echo {n}", background=True) for n in range(20)]
        assert [x.wait().stdout for x in handles] == [f"{n}\n" for n in range(20)]


class FilesContract(Contract):
    def test_text_and_bytes(self, sandbox: Sandbox) -> None:
        written = sandbox.files.write("dir/text.txt", "grüße")
        assert written.name == "text.txt"
        assert sandbox.files.read("dir/text.txt") == "grüße"
        assert sandbox.files.read("/home/user/dir/text.txt", format="bytes") == "grüße".encode()
        assert sandbox.commands.run("cat ~/dir/text.txt").stdout == "grüße"

    def test_streams_in_both_directions(self, sandbox: Sandbox) -> None:
        data = os.urandom(3_000_000)
        sandbox.files.write("stream", io.BytesIO(data))
        assert b"".join(sandbox.files.read("stream", format="stream")) == data

    def test_compressed_uploads(self, sandbox: Sandbox) -> None:
        data = b"same " * 500_000
        sandbox.files.write("zipped", data, gzip=True)
        assert bytes(sandbox.files.read("zipped", format="bytes")) == data

    def test_several_files_at_once(self, sandbox: Sandbox) -> None:
        names = ["many/a.txt", "many/with space.txt", 'many/quo"te.txt']
        sandbox.files.write_files([{"path": name, "data": name} for name in names])
        assert [sandbox.files.read(name) for name in names] == names

    def test_overwriting_shortens(self, sandbox: Sandbox) -> None:
        sandbox.files.write("shrinks", "long content")
        sandbox.files.write("shrinks", "short")
        assert sandbox.files.read("shrinks") == "short"

    def test_list_goes_as_deep_as_asked(self, sandbox: Sandbox) -> None:
        sandbox.files.write("tree/one/two/three.txt", "3")
        names = {x.name: x.type for x in sandbox.files.list("tree")}
        assert names == {"one": FileType.DIR}
        assert [x.name for x in sandbox.files.list("tree", depth=3)] == ["one", "two", "three.txt"]

    def test_info(self, sandbox: Sandbox) -> None:
        sandbox.files.write("info.txt", "12345")
        sandbox.commands.run("chmod 640 ~/info.txt; ln -sf info.txt ~/link")
        info = sandbox.files.get_info("info.txt")
        assert (info.name, info.type, info.size) == ("info.txt", FileType.FILE, 5)
        assert (info.mode, info.permissions) == (0o640, "-rw-r-----")
        assert abs(info.modified_time.timestamp() - time.time()) < 3600
        link = sandbox.files.get_info("link")
        assert (link.type, link.symlink_target) == (FileType.SYMLINK, "info.txt")

    def test_make_dir_exists_rename_remove(self, sandbox: Sandbox) -> None:
        assert sandbox.files.make_dir("made/deep")
        assert not sandbox.files.make_dir("made/deep")
        sandbox.files.write("made/deep/file", "x")
        assert sandbox.files.rename("made/deep/file", "moved/file").name == "file"
        assert not sandbox.files.exists("made/deep/file")
        assert sandbox.files.read("moved/file") == "x"
        sandbox.files.remove("made")
        assert not sandbox.files.exists("made")

    def test_what_is_missing_or_of_the_wrong_kind(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileNotFoundException):
            sandbox.files.read("nowhere")
        with pytest.raises(FileNotFoundException):
            sandbox.files.list("nowhere")
        with pytest.raises(FileNotFoundException):
            sandbox.files.rename("nowhere", "elsewhere")
        sandbox.files.make_dir("folder")
        with pytest.raises(InvalidArgumentException):
            sandbox.files.read("folder")
        with pytest.raises(InvalidArgumentException):
            sandbox.files.write("folder", "x")
        sandbox.commands.run("mkfifo ~/fifo")
        with pytest.raises(InvalidArgumentException):
            sandbox.files.read("fifo")

    def test_a_file_can_be_read_while_it_grows(self, sandbox: Sandbox) -> None:
        grow = "for i in $(seq 200); do head -c 50000 /dev/zero >> grows; done"
        handle = sandbox.commands.run(grow, background=True, cwd="/home/user")
        assert eventually(lambda: sandbox.files.exists("grows"))
        for _ in range(5):
            sandbox.files.read("grows", format="bytes")
        handle.wait()
        assert len(sandbox.files.read("grows", format="bytes")) == 10_000_000

    def test_a_hundred_megabytes_both_ways(self, sandbox: Sandbox) -> None:
        chunk = os.urandom(1_000_000)
        sandbox.files.write("hundred", (chunk for _ in range(100)))
        sizes = [len(x) for x in sandbox.files.read("hundred", format="stream")]
        assert sum(sizes) == 100_000_000
        sums = sandbox.commands.run("sha256sum < ~/hundred; rm ~/hundred").stdout
        assert sums.split()[0] == hashlib.sha256(chunk * 100).hexdigest()


class WatchContract(Contract):
    def test_what_happens_in_a_folder_is_told(self, sandbox: Sandbox) -> None:
        sandbox.files.make_dir("watched/below")
        watch = sandbox.files.watch_dir("watched")
        sandbox.files.write("watched/a", "1")
        sandbox.files.write("watched/below/unseen", "1")
        sandbox.files.rename("watched/a", "watched/b")
        sandbox.commands.run("chmod 600 ~/watched/b")
        sandbox.files.remove("watched/b")
        seen: list[tuple[str, FilesystemEventType]] = []

        def removed() -> bool:
            seen.extend((x.name, x.type) for x in watch.get_new_events())
            return ("b", FilesystemEventType.REMOVE) in seen

        assert eventually(removed)
        kinds = FilesystemEventType
        expected = [("a", kinds.CREATE), ("a", kinds.WRITE), ("a", kinds.RENAME)]
        expected += [("b", kinds.CREATE), ("b", kinds.CHMOD), ("b", kinds.REMOVE)]
        assert [x for x in dict.fromkeys(seen) if x[0] in "ab"] == expected
        assert not any("unseen" in name for name, _ in seen)
        watch.stop()
        with pytest.raises(SandboxException):
            watch.get_new_events()

    def test_folders_below_are_watched_if_asked_also_new_ones(self, sandbox: Sandbox) -> None:
        sandbox.files.make_dir("deep/old")
        watch = sandbox.files.watch_dir("deep", recursive=True, include_entry=True)
        sandbox.files.write("deep/old/x", "1")
        sandbox.files.write("deep/new/newer/y", "12")
        found: dict[str, int | None] = {}

        def all_seen() -> bool:
            for event in watch.get_new_events():
                found[event.name] = event.entry.size if event.entry else None
            return {"old/x", "new", "new/newer", "new/newer/y"} <= found.keys()

        assert eventually(all_seen)
        assert found["new/newer/y"] == 2
        watch.stop()

    def test_only_folders_that_are_there_can_be_watched(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileNotFoundException):
            sandbox.files.watch_dir("nowhere")
        sandbox.files.write("no-folder", "")
        with pytest.raises(InvalidArgumentException):
            sandbox.files.watch_dir("no-folder")

    def test_the_asynchronous_sdk_hears_events_as_they_come(
        self, provider: Provider, sandbox: Sandbox
    ) -> None:
        async def watch() -> str:
            box = await AsyncSandbox.connect(sandbox.sandbox_id, **provider.options)
            await box.files.make_dir("live")
            heard: asyncio.Queue[str] = asyncio.Queue()
            handle = await box.files.watch_dir("live", lambda event: heard.put_nowait(event.name))
            await box.files.write("live/file", "x")
            name = await asyncio.wait_for(heard.get(), 20)
            await handle.stop()  # type: ignore[no-untyped-call]
            return name

        assert asyncio.run(watch()) == "file"
