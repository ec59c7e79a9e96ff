"""The way out of a sandbox: to package registries that this machine uses, and nowhere else."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from autocoder.local.sandboxes.network import HEAD_LIMIT, Stream, splice
from autocoder.local.sandboxes.policy import LOOPBACK
from autocoder.registries import Registries, is_loopback, local_folder

_PORTS = {"http": 80, "https": 443}
_OPEN_SECONDS = 30.0
"""For a client to say what it wants, and for that to be reached."""
_NO_PROXY = "127.0.0.1,localhost"
# As pip does: trust what the machine trusts, also behind a proxy with a certificate of its own.
_TRUST = {"NODE_USE_SYSTEM_CA": "1", "UV_SYSTEM_CERTS": "true"}
_QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_DEFAULT_TIMEOUT": "60",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
}


class _RefusedError(Exception):
    """The answer to a client that asked for something else than a registry."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True)
class Egress:
    """An allow-list of addresses, with the proxy that enforces it."""

    addresses: frozenset[tuple[str, int]] = frozenset()
    loopback_ports: list[int] = field(default_factory=list)
    """Registries on this machine's own loopback: a sandbox has the same ports on its own."""
    folders: list[Path] = field(default_factory=list)
    """Package folders and certificates of this machine, for a sandbox to read."""
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def to(cls, registries: Registries) -> Egress:
        remote, loopback = set(), set()
        for url in registries.urls:
            parts = urlsplit(url)
            if parts.scheme in _PORTS and parts.hostname:
                port = parts.port or _PORTS[parts.scheme]
                if is_loopback(parts.hostname):
                    loopback.add(port)
                else:
                    remote.add((parts.hostname, port))
        paths = [*map(local_folder, registries.urls), *registries.certificates]
        env = {**_QUIET, **_TRUST, **registries.env}
        return cls(frozenset(remote), sorted(loopback), _shareable(paths), env)

    @property
    def hosts(self) -> list[str]:
        """The registries' names, as a sandbox's network must allow them."""
        remote = {host for host, _ in self.addresses}
        return sorted(remote | ({LOOPBACK} if self.loopback_ports else set()))

    def proxy_env(self, port: int) -> dict[str, str]:
        """For a sandbox whose only way out is the proxy."""
        url = f"http://127.0.0.1:{port}"
        upper = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": _NO_PROXY}
        return upper | {name.lower(): value for name, value in upper.items()}

    def host_proxy_env(self) -> dict[str, str]:
        """For a plain process, which uses this machine's network: the host's own proxies."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        found = {name: os.environ[name] for name in names if name in os.environ}
        bypass = [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), _NO_PROXY]
        value = ",".join(filter(None, bypass))
        return {**found, "NO_PROXY": value, "no_proxy": value} if found else {}

    def narrowed(self, allows: Callable[[str], bool]) -> Egress:
        """The same, for a sandbox that may reach only some of the hosts."""
        kept = frozenset(address for address in self.addresses if allows(address[0]))
        return replace(self, addresses=kept)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection of an HTTP client that uses the proxy."""
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                upstream, greeting = await self._open(reader)
        except (_RefusedError, OSError, ValueError, EOFError, asyncio.LimitOverrunError) as problem:
            status = getattr(problem, "status", "502 Bad Gateway")
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            return
        writer.write(greeting)
        await splice((reader, writer), upstream)

    async def _open(self, reader: asyncio.StreamReader) -> tuple[Stream, bytes]:
        """The connection that a request's head asks for, and what its client hears first."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _RefusedError("431 Request Header Fields Too Large") from None
        line, _, fields = head.decode("latin-1").partition("\r\n")
        method, target, _ = line.split(" ", 2)
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            stream = await self._dial(host.strip("[]"), int(port), secure=True)
            return stream, b"HTTP/1.1 200 Connection established\r\n\r\n"
        parts = urlsplit(target)
        if parts.scheme != "http" or not parts.hostname:
            raise _RefusedError("400 Bad Request")
        stream = await self._dial(parts.hostname, parts.port or 80, secure=False)
        path = parts._replace(scheme="", netloc="").geturl() or "/"
        stream[1].write(f"{method} {path} HTTP/1.1\r\n{_one_request(fields)}".encode("latin-1"))
        return stream, b""

    async def _dial(self, host: str, port: int, *, secure: bool) -> Stream:
        if (host.lower(), port) not in self.addresses:
            raise _RefusedError("403 Forbidden")
        proxy = getproxies().get("https" if secure else "http")
        if proxy and not proxy_bypass(host):
            return await _through(urlsplit(proxy).netloc, host, port)
        address = await _resolve(host, port)
        return await asyncio.open_connection(address, port)


def _one_request(fields: str) -> str:
    """Head fields that end the connection after one answer: the next may be for another host."""
    kept = [
        line
        for line in fields.split("\r\n")
        if line and not line.lower().startswith(("connection:", "proxy-"))
    ]
    return "\r\n".join([*kept, "Connection: close", "", ""])


async def _resolve(host: str, port: int) -> str:
    """An address of the host, but never one of this machine."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
    if _is_of_this_machine(address):
        raise _RefusedError("403 Forbidden")
    return address


def _is_of_this_machine(address: str) -> bool:
    """Its own services, or its cloud's metadata."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_unspecified or ip.is_link_local


async def _through(proxy: str, host: str, port: int) -> Stream:
    """A tunnel through the proxy that this machine itself uses."""
    name, _, proxy_port = proxy.rpartition("@")[2].partition(":")
    reader, writer = await asyncio.open_connection(name, int(proxy_port or 80), limit=HEAD_LIMIT)
    try:
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise _RefusedError("502 Bad Gateway")
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _shareable(paths: Iterable[Path | None]) -> list[Path]:
    """Those that a sandbox may have: open to every user of this machine, and no one's home."""
    home = Path.home()
    found = {path for path in paths if path and _is_open(path) and path not in home.parents}
    return sorted(found - {home})


def _is_open(path: Path) -> bool:
    if os.geteuid() != 0:
        return os.access(path, os.R_OK)
    try:
        parents = all(parent.stat().st_mode & 0o001 for parent in path.parents)
        return parents and bool(path.stat().st_mode & 0o004)
    except OSError:
        return False
