"""The contract of sandboxes, held by the local server; and what only a local one does."""

import asyncio
import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import AsyncSandbox, PtySize, Sandbox, SandboxException
from e2b.exceptions import NotEnoughSpaceException
from e2b.sandbox_async.filesystem import filesystem as sdk_filesystem

from tests.contract.sandbox_api import (
    CommandsContract,
    FilesContract,
    LifeContract,
    PauseContract,
    WatchContract,
)
from tests.local.sandbox_lab import MODES, Lab, processes_with
from tests.waiting import eventually

UNAVAILABLE = "not available in the local cloud"


@pytest.fixture(scope="module", params=MODES)
def provider(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("contract") / "state", request.param)
    yield lab
    assert lab.stop() == 0
    assert "Traceback" not in lab.log()


@pytest.fixture(scope="module")
def sandbox(provider: Lab) -> Iterator[Sandbox]:
    with provider.sandbox() as sandbox:
        yield sandbox


class TestLife(LifeContract):
    pass


class TestPause(PauseContract):
    pass


class TestCommands(CommandsContract):
    pass


class TestFiles(FilesContract):
    pass


class TestWatch(WatchContract):
    pass


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda box: box.get_metrics(), "metrics"),
        (lambda box: box.create_snapshot(), "snapshots"),
        (lambda box: box.fork(), "fork"),
        (lambda box: box.pause(mode="filesystem"), "without the memory"),
        (lambda box: box.commands.run("id", user="root"), "user 'root'"),
        (lambda box: box.files.read("x", user="root"), "user 'root'"),
        (lambda box: box.files.write("x", "", metadata={"a": "b"}), "metadata"),
        (lambda box: box.pty.create(PtySize(24, 80)), "terminals"),
        (lambda box: box.update_network({"deny_out": ["10.0.0.0/8"]}), "some addresses"),
        (lambda box: box.update_network({"dns_servers": ["1.1.1.1"]}), "dnsServers"),
        (
            lambda box: box.update_network(
                {"rules": {"example.test": [{"transform": {"headers": {"X-Other": "x"}}}]}}
            ),
            "headers for a host",
        ),
    ],
)
def test_what_is_not_here_says_so(
    sandbox: Sandbox, call: Callable[[Sandbox], Any], what: str
) -> None:
    with pytest.raises(SandboxException, match=f"{UNAVAILABLE}: .*{what}"):
        call(sandbox)


def test_a_sandbox_with_what_is_not_here_is_not_made(provider: Lab) -> None:
    with pytest.raises(SandboxException, match=f"{UNAVAILABLE}: a sandbox's mcp"):
        provider.create(mcp={"exa": {"apiKey": "x"}})


@pytest.mark.parametrize(
    "query", ["limit=many", "limit=0", "nextToken=x", "startedAfter=yesterday"]
)
def test_a_bad_query_is_answered_with_its_name(provider: Lab, query: str) -> None:
    url = f"{provider.ready['api_url']}/v2/sandboxes?{query}"
    request = urllib.request.Request(url, headers={"x-api-key": "any"})  # noqa: S310
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)  # noqa: S310
    with refused.value as answer:
        assert answer.code == 400
        assert json.load(answer)["message"].startswith(f"{query.partition('=')[0]} must be ")


def test_large_files_do_not_pass_through_the_servers_memory(provider: Lab) -> None:
    def peak() -> int:
        lines = Path(f"/proc/{provider.process.pid}/status").read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM:"))

    chunk = bytes(1_000_000)
    with provider.sandbox() as box:
        box.files.write("small", chunk)
        box.files.read("small", format="bytes")
        before = peak()
        box.files.write("streamed", (chunk for _ in range(100)))
        box.files.write_files([{"path": "formed", "data": chunk * 100}])
        for name in ("streamed", "formed"):
            assert sum(len(x) for x in box.files.read(name, format="stream")) == 100_000_000
        assert peak() - before < 30_000  # kB


def test_a_watch_whose_caller_is_gone_ends(
    provider: Lab, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed at the next sign of life: here, after a second."""
    monkeypatch.setattr(sdk_filesystem, "KEEPALIVE_PING_INTERVAL_SEC", 1)
    folder = f"watched-{secrets.token_hex(8)}"

    async def watch_and_leave() -> None:
        box = await AsyncSandbox.connect(sandbox.sandbox_id, **provider.options)
        await box.files.make_dir(folder)
        await box.files.watch_dir(folder, lambda event: None)

    asyncio.run(watch_and_leave())
    assert processes_with(folder)
    assert eventually(lambda: not processes_with(folder))


def test_the_tools_are_there(sandbox: Sandbox) -> None:
    tools = ["claude --version", "python3 -m pytest --version", "pip --version"]
    tools += ["node --version", "npm --version", "npx --version"]
    for tool in tools:
        assert sandbox.commands.run(tool).stdout.strip(), tool


def test_a_virtual_environment_finds_pytest_offline(sandbox: Sandbox) -> None:
    make = "python3 -m venv --system-site-packages venv && venv/bin/python -m pytest --version"
    assert sandbox.commands.run(make, cwd="/home/user").stdout.startswith("pytest ")


def test_the_gateway_knows_the_sandbox(sandbox: Sandbox) -> None:
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


def test_a_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", "bubblewrap")
    chunk = bytes(1 << 20)
    with lab.sandbox() as sandbox, pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/dev/shm/big", (chunk for _ in range(100)))
    assert lab.stop() == 0
