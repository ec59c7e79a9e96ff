"""What a sandbox in bubblewrap can reach: this machine's package registries, and nothing else."""

import asyncio
import functools
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from e2b import CommandExitException, Sandbox

from autocoder.local.sandboxes import egress as egress_module
from autocoder.local.sandboxes.egress import Egress
from autocoder.local.toolchain import ensure_toolchain
from autocoder.registries import Registries, find_registries
from tests.local.sandbox_lab import Lab


def make_wheel(folder: Path) -> Path:
    """A package `tiny` with one module."""
    info = "tiny-1.0.dist-info"
    files = {
        "tiny.py": "VALUE = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    folder.mkdir(parents=True)
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index on this machine's loopback."""
    root = tmp_path_factory.mktemp("registry")
    make_wheel(root / "simple" / "tiny")
    handler = functools.partial(QuietHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def sandbox(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    env = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": f"{registry.replace('//', '//user:secret@')}/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "npm_config_registry": registry,
    }
    lab = Lab(tmp_path_factory.mktemp("egress") / "state", "bubblewrap", **env)
    with lab.sandbox() as sandbox:
        yield sandbox
    assert lab.stop() == 0


def test_pip_installs_from_the_hosts_own_index(sandbox: Sandbox, registry: str) -> None:
    install = "python3 -m venv venv && venv/bin/pip install -q tiny"
    sandbox.commands.run(install, cwd="/home/user")
    program = "import tiny; print(tiny.VALUE)"
    assert sandbox.commands.run(f"venv/bin/python -c '{program}'").stdout == "42\n"


def test_the_tools_know_the_registries_but_no_password(sandbox: Sandbox, registry: str) -> None:
    env = sandbox.commands.run("env").stdout.splitlines()
    assert f"PIP_INDEX_URL={registry}/simple" in env
    assert any(line.startswith(f"npm_config_registry={registry}") for line in env)
    assert not any("secret" in line for line in env)


@pytest.mark.parametrize("target", ["https://example.test/", "http://example.test/"])
def test_other_hosts_are_refused(sandbox: Sandbox, target: str) -> None:
    program = f"import urllib.request; urllib.request.urlopen('{target}')"
    with pytest.raises(CommandExitException) as refused:
        sandbox.commands.run(f'python3 -c "{program}"')
    assert "403" in refused.value.stderr


def test_the_proxy_dials_no_port_of_the_host(sandbox: Sandbox, registry: str) -> None:
    port = registry.rpartition(":")[2]
    program = f"""
import os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0"):
    with socket.create_connection((proxy.hostname, proxy.port)) as sock:
        sock.sendall(f"CONNECT {{host}}:{port} HTTP/1.1\\r\\n\\r\\n".encode())
        print(sock.recv(100).split()[1].decode())
"""
    sandbox.files.write("dial.py", program)
    assert sandbox.commands.run("python3 dial.py").stdout.split() == ["403"] * 4


async def exchange(egress: Egress, request: bytes) -> bytes:
    """What a client of the proxy gets for a request."""
    server = await asyncio.start_server(egress.handle, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    return answer


@pytest.mark.parametrize("tunnel", [True, False])
def test_an_allowed_host_is_reached(
    registry: str, monkeypatch: pytest.MonkeyPatch, tunnel: bool
) -> None:
    async def resolve(host: str, port: int) -> str:
        assert host == "registry.test"
        return "127.0.0.1"

    monkeypatch.setattr(egress_module, "_resolve", resolve)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    port = int(registry.rpartition(":")[2])
    egress = Egress.to(Registries([f"http://registry.test:{port}/simple"]))
    request = f"GET /simple/ HTTP/1.0\r\nHost: registry.test:{port}\r\n\r\n"
    if tunnel:
        request = f"CONNECT registry.test:{port} HTTP/1.1\r\n\r\n{request}"
    else:
        request = request.replace("GET ", f"GET http://registry.test:{port}")
    answer = asyncio.run(exchange(egress, request.encode()))
    assert b" 200 " in answer
    assert b"tiny/" in answer


def test_a_client_that_does_not_say_what_it_wants_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress_module, "_OPEN_SECONDS", 0.05)
    answer = asyncio.run(exchange(Egress(), b"CONNECT registry.test:443 HTTP/1.1\r\n"))
    assert answer.startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("answer", [b"x" * 100_000, b"HTTP/1.1 407 No\r\n\r\n", b""])
def test_a_proxy_of_this_machine_that_makes_no_tunnel_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    async def scene() -> tuple[bytes, bytes]:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            if not answer:
                writer.write_eof()
            heard.set_result(await reader.read())  # to the end: we were hung up on
            writer.close()

        async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            egress = Egress(frozenset({("registry.test", 443)}))
            said = await exchange(egress, b"CONNECT registry.test:443 HTTP/1.1\r\n\r\n")
            return said, await asyncio.wait_for(heard, 20)

    said, heard = asyncio.run(scene())
    assert said.startswith(b"HTTP/1.1 502 ")
    assert heard.startswith(b"CONNECT registry.test:443 ")


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "::ffff:127.0.0.1", "169.254.169.254"])
def test_a_name_that_leads_to_this_machine_is_refused(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    egress = Egress(frozenset({(host, 80)}))
    answer = asyncio.run(exchange(egress, f"CONNECT [{host}]:80 HTTP/1.1\r\n\r\n".encode()))
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_the_tools_own_defaults_are_found_without_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    found = asyncio.run(find_registries(ensure_toolchain(print)))
    egress = Egress.to(found)
    assert len(egress.addresses) >= 3  # pip's index, pip's files, npm
    assert {port for _, port in egress.addresses} == {443}


def test_local_package_folders_are_shared_but_never_a_home(tmp_path: Path) -> None:
    urls = ["file:///usr/share/simple", "/usr/lib", str(Path.home()), "/", "/nowhere"]
    assert Egress.to(Registries(urls)).folders == [Path("/usr/lib"), Path("/usr/share")]
