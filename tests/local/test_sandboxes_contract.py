"""What the unmodified e2b SDK can do with a local sandbox, isolated or not."""

import io
import os
import secrets
import time
from collections.abc import Iterator

import pytest
from e2b import (
    CommandExitException,
    FileNotFoundException,
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
from e2b.exceptions import NotEnoughSpaceException, SandboxNotRunningException

from tests.local.sandbox_lab import MODES, Lab, eventually

UNAVAILABLE = "not available in the local cloud"


@pytest.fixture(scope="module", params=MODES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("contract") / "state", request.param)
    yield lab
    assert lab.stop() == 0
    assert "Traceback" not in lab.log()


@pytest.fixture(scope="module")
def sandbox(lab: Lab) -> Iterator[Sandbox]:
    with lab.sandbox(envs={"FROM_CREATE": "1", "BOTH": "create"}, timeout=300) as sandbox:
        yield sandbox


class TestLife:
    def test_info_returns_what_create_was_given(self, lab: Lab) -> None:
        metadata = {"task": "a b&c=d"}
        with lab.sandbox(metadata=metadata, timeout=120, template="autocoder") as sandbox:
            info = sandbox.get_info()
            assert info.sandbox_id == sandbox.sandbox_id
            assert info.metadata == metadata
            assert info.template_id == "autocoder"
            assert info.state == SandboxState.RUNNING
            assert (info.end_at - info.started_at).total_seconds() == 120
            assert sandbox.is_running()

    def test_network_rules_are_accepted(self, lab: Lab) -> None:
        network = {"allow_out": ["example.test"], "deny_out": ["0.0.0.0/0"]}
        with lab.sandbox(network=network) as sandbox:
            sandbox.update_network({"deny_out": ["0.0.0.0/0"]})

    def test_the_same_key_gives_the_same_sandbox_while_it_lives(self, lab: Lab) -> None:
        key = "task-" + secrets.token_hex(4)
        first = lab.create(idempotency_key=key)
        assert lab.create(idempotency_key=key).sandbox_id == first.sandbox_id
        first.kill()
        with lab.sandbox(idempotency_key=key) as second:
            assert second.sandbox_id != first.sandbox_id

    def test_connect_reaches_the_same_files(self, lab: Lab, sandbox: Sandbox) -> None:
        sandbox.files.write("shared.txt", "hello")
        again = Sandbox.connect(sandbox.sandbox_id, **lab.options)
        assert again.files.read("shared.txt") == "hello"

    def test_list_selects_by_metadata_and_state_in_pages(self, lab: Lab) -> None:
        mark = secrets.token_hex(4)
        made = [lab.create(metadata={"mark": mark, "n": str(n)}) for n in range(3)]
        query = SandboxQuery(metadata={"mark": mark}, state=[SandboxState.RUNNING])
        pages = Sandbox.list(query=query, limit=2, **lab.options)
        found = []
        sizes = []
        while pages.has_next:
            page = pages.next_items()
            sizes.append(len(page))
            found += [x.metadata["n"] for x in page]
        assert sizes == [2, 1]
        assert found == ["2", "1", "0"]
        paused = SandboxQuery(metadata={"mark": mark}, state=[SandboxState.PAUSED])
        assert Sandbox.list(query=paused, **lab.options).next_items() == []
        for sandbox in made:
            sandbox.kill()

    def test_a_sandbox_ends_when_its_time_is_up(self, lab: Lab) -> None:
        sandbox = lab.create(timeout=60)
        sandbox.set_timeout(1)
        assert eventually(lambda: not sandbox.is_running())
        with pytest.raises(SandboxNotFoundException):
            sandbox.get_info()

    def test_a_dead_sandbox_raises_the_sdks_own_exceptions(self, lab: Lab) -> None:
        sandbox = lab.create()
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
            Sandbox.connect(sandbox.sandbox_id, **lab.options)

    def test_a_command_in_flight_learns_that_its_sandbox_was_killed(self, lab: Lab) -> None:
        sandbox = lab.create()
        handle = sandbox.commands.run("sleep 100", background=True, timeout=0)
        sandbox.kill()
        with pytest.raises(SandboxNotRunningException):
            handle.wait()

    @pytest.mark.parametrize(
        ("call", "what"),
        [
            (lambda sandbox: sandbox.pause(), "pause"),
            (lambda sandbox: sandbox.get_metrics(), "metrics"),
            (lambda sandbox: sandbox.commands.run("id", user="root"), "user 'root'"),
            (lambda sandbox: sandbox.files.read("x", user="root"), "user 'root'"),
            (lambda sandbox: sandbox.files.watch_dir("."), "watching"),
            (lambda sandbox: sandbox.files.write("x", "", metadata={"a": "b"}), "metadata"),
        ],
    )
    def test_what_is_not_supported_says_so(self, sandbox: Sandbox, call, what) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(SandboxException, match=f"{UNAVAILABLE}: .*{what}"):
            call(sandbox)

    def test_pausing_on_timeout_is_refused(self, lab: Lab) -> None:
        with pytest.raises(SandboxException, match=UNAVAILABLE):
            lab.create(lifecycle={"on_timeout": "pause"})


class TestCommands:
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

    def test_many_commands_at_once(self, sandbox: Sandbox) -> None:
        handles = [sandbox.commands.run(f"echo {n}", background=True) for n in range(20)]
        assert [x.wait().stdout for x in handles] == [f"{n}\n" for n in range(20)]

    def test_the_tools_are_there(self, sandbox: Sandbox) -> None:
        tools = ["claude --version", "python3 -m pytest --version", "pip --version"]
        tools += ["node --version", "npm --version", "npx --version"]
        for tool in tools:
            assert sandbox.commands.run(tool).stdout.strip(), tool

    def test_a_virtual_environment_finds_pytest_offline(self, sandbox: Sandbox) -> None:
        make = "python3 -m venv --system-site-packages venv && venv/bin/python -m pytest --version"
        assert sandbox.commands.run(make, cwd="/home/user").stdout.startswith("pytest ")

    def test_the_gateway_knows_the_sandbox(self, lab: Lab, sandbox: Sandbox) -> None:
        program = """
import json, os, urllib.request
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/whoami")
request.add_header("x-api-key", os.environ["ANTHROPIC_API_KEY"])
identity = json.load(urllib.request.build_opener().open(request))
print(identity["sandbox_id"], identity["home"] == os.environ["HOME"])
"""
        sandbox.files.write("whoami.py", program)
        result = sandbox.commands.run("python3 ~/whoami.py")
        assert result.stdout == f"{sandbox.sandbox_id} True\n"


class TestFiles:
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


def test_a_full_disk_is_reported_as_such(tmp_path_factory: pytest.TempPathFactory) -> None:
    lab = Lab(tmp_path_factory.mktemp("full") / "state", "bubblewrap")
    chunk = bytes(1 << 20)
    with lab.sandbox() as sandbox, pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/dev/shm/big", (chunk for _ in range(100)))
    assert lab.stop() == 0
