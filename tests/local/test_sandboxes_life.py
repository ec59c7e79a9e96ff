"""How a sandbox server starts and ends, and that nothing is left behind."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox
from starlette.applications import Starlette

from autocoder.local.sandboxes.server import Server, loopback_listener
from autocoder.local.toolchain import ensure_toolchain
from tests.local.sandbox_lab import MODES, ROOT, Lab, processes_with
from tests.waiting import eventually


def busy_sandbox(lab: Lab) -> tuple[Sandbox, str]:
    """A sandbox with a command, its child and a daemon; they share a mark in their names."""
    sandbox = lab.create()
    mark = str(100_000_000 + secrets.randbelow(1_000_000_000))
    command = f"(setsid sleep {mark} >/dev/null 2>&1 &) ; sleep {mark} & exec sleep {mark}"
    sandbox.commands.run(command, background=True, timeout=0)
    assert eventually(lambda: len(processes_with(mark)) >= 3)
    return sandbox, mark


def leftovers(lab: Lab) -> list[Path]:
    return list(lab.state_dir.rglob("*"))


@pytest.mark.parametrize("isolation", MODES)
def test_kill_leaves_nothing(tmp_path: Path, isolation: str) -> None:
    lab = Lab(tmp_path / "state", isolation)
    sandbox, mark = busy_sandbox(lab)
    sandbox.kill()
    assert processes_with(mark) == []
    assert [x for x in leftovers(lab) if x.is_file()] == []
    lab.stop()


@pytest.mark.parametrize(("isolation", "agent"), [("bubblewrap", "1"), ("none", "$PPID")])
def test_what_fills_its_agents_stderr_can_still_be_killed(
    tmp_path: Path, isolation: str, agent: str
) -> None:
    """It is not held up there and takes no memory, and the end of what it said is logged."""
    lab = Lab(tmp_path / "state", isolation)
    sandbox = lab.create()
    flood = f"head -c 100000 /dev/zero | tr '\\0' x 1<>/proc/{agent}/fd/2"
    with pytest.raises(CommandExitException, match="not permitted"):
        sandbox.commands.run(flood, timeout=20)
    sandbox.kill(request_timeout=20)
    assert lab.stop() == 0
    assert "xxxx" in lab.log()
    assert len(lab.log()) < 5000


@pytest.mark.parametrize("isolation", MODES)
@pytest.mark.parametrize("how", [None, signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_leaves_nothing(
    tmp_path: Path, isolation: str, how: signal.Signals | None
) -> None:
    lab = Lab(tmp_path / "state", isolation)
    _, mark = busy_sandbox(lab)
    _, second = busy_sandbox(lab)
    assert lab.stop(how) == 0
    assert processes_with(mark) + processes_with(second) == []
    assert leftovers(lab) == []


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("isolation", MODES)
def test_a_server_that_is_killed_takes_its_processes_along(
    tmp_path: Path, isolation: str, paused: bool
) -> None:
    lab = Lab(tmp_path / "state", isolation)
    sandbox, mark = busy_sandbox(lab)
    if paused:
        sandbox.pause()
    assert lab.stop(signal.SIGKILL) == -signal.SIGKILL
    assert eventually(lambda: processes_with(mark) == [])


@pytest.mark.parametrize("isolation", MODES)
def test_nothing_of_a_paused_sandbox_runs(tmp_path: Path, isolation: str) -> None:
    """Neither the command nor its child nor what detached itself; and its server can stop."""
    lab = Lab(tmp_path / "state", isolation)
    sandbox, mark = busy_sandbox(lab)
    sandbox.pause()
    assert eventually(lambda: states(mark) == {"T"})  # each stops when it is next to run
    again = Sandbox.connect(sandbox.sandbox_id, **lab.options)
    assert eventually(lambda: bool(states(mark)) and "T" not in states(mark))
    again.pause()
    assert lab.stop() == 0
    assert processes_with(mark) == []


def states(mark: str) -> set[str]:
    """The states of processes, as the kernel names them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            if (folder / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                found.add((folder / "stat").read_text().rpartition(") ")[2][0])
    return found


@pytest.mark.parametrize("isolation", MODES)
def test_the_gateway_forgets_dead_sandboxes(tmp_path: Path, isolation: str) -> None:
    lab = Lab(tmp_path / "state", isolation)
    sandbox = lab.create(metadata={"task": "7"})
    token = sandbox.commands.run("echo $ANTHROPIC_API_KEY").stdout.strip()
    request = urllib.request.Request(f"{lab.ready['gateway_url']}/whoami")  # noqa: S310
    request.add_header("x-api-key", token)
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert json.load(answer)["metadata"] == {"task": "7"}
    sandbox.kill()
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert json.load(answer) is None
    lab.stop()


@pytest.fixture
def path_without_bwrap(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "env"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return str(folder)


def test_isolation_is_used_where_it_can_be_had(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", "bubblewrap")
    lab.stop()
    assert "WARNING" not in lab.log()


def test_without_bubblewrap_the_server_warns_loudly(
    tmp_path: Path, path_without_bwrap: str
) -> None:
    result = start(tmp_path, PATH=path_without_bwrap, AUTOCODER_SANDBOX_ISOLATION="auto")
    assert json.loads(result.stdout)["isolation"] == "none"
    assert "NO ISOLATION" in result.stderr
    for unprotected in ("files and keys", "other programs", "network", "disk", "processes"):
        assert unprotected in result.stderr
    assert "install bubblewrap" in result.stderr
    assert json.loads(result.stdout)["warning"].strip() in result.stderr


def test_without_user_namespaces_the_reason_names_the_switch() -> None:
    """In a user namespace of its own, in which no other can be made."""
    close = "echo 0 > /proc/sys/user/max_user_namespaces"
    drop = "setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all"
    find = "import sys, pathlib; from autocoder.local.sandboxes.bubblewrap import find_problem;"
    find += "print(find_problem(pathlib.Path(sys.argv[1])))"
    command = ["unshare", "--user", "--map-user=1000", "--keep-caps", "sh", "-c"]
    command += [f'{close}; exec {drop} "$@"', "--", sys.executable, "-c", find]
    result = subprocess.run(
        [*command, str(ensure_toolchain(print))], capture_output=True, text=True, check=True
    )
    assert "sudo sysctl user.max_user_namespaces=10000" in result.stdout


def test_an_old_bubblewrap_is_used_with_a_warning(tmp_path: Path) -> None:
    real = shutil.which("bwrap") or "bwrap"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        old = Path(folder, "bwrap")
        old.write_text(
            f'#!/bin/sh\n[ "$1" = --help ] || exec {real} "$@"\n'
            f"{real} --help | grep -v disable-userns\n"
        )
        old.chmod(0o755)
        result = start(tmp_path, PATH=f"{folder}:{os.environ['PATH']}")
    assert json.loads(result.stdout)["isolation"] == "bubblewrap"
    assert "WARNING: This bubblewrap is older than 0.8" in json.loads(result.stdout)["warning"]


@pytest.mark.parametrize(
    ("wanted", "message"), [("bubblewrap", "bwrap is not installed"), ("docker", "'docker'")]
)
def test_an_isolation_that_is_not_to_be_had_is_an_error(
    tmp_path: Path, path_without_bwrap: str, wanted: str, message: str
) -> None:
    result = start(tmp_path, PATH=path_without_bwrap, AUTOCODER_SANDBOX_ISOLATION=wanted)
    assert result.returncode != 0
    assert result.stdout == ""
    assert message in result.stderr


def start(tmp_path: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """A server whose standard input is at its end from the start."""
    arguments = ["--state-dir", str(tmp_path / "state")]
    arguments += ["--gateway-module", "tests.local.sandbox_lab"]
    return subprocess.run(
        [sys.executable, "-m", "autocoder.local.sandboxes", *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_server_lets_its_application_close_what_it_opened() -> None:
    """The gateway closes its connections to the model in this way."""
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        seen.append("opened")
        yield
        seen.append("closed")

    async def scene() -> None:
        server = Server(Starlette(lifespan=lifespan), loopback_listener())
        running = asyncio.create_task(server.run_until_told())
        while not server.started:
            await asyncio.sleep(0.01)
        server.should_exit = True
        await running

    asyncio.run(scene())
    assert seen == ["opened", "closed"]
