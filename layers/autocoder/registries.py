"""Where this machine's own pip and npm get packages from, by asking them."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import ipaddress
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

_CA_VARIABLES = (
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
_PIP_DEFAULTS = """
import json
from pip._internal.models.index import PyPI
print(json.dumps([PyPI.simple_url, PyPI.file_storage_domain]))
"""


@dataclass(frozen=True)
class Registries:
    """Package sources, as the tools name them, with any user names and passwords removed."""

    urls: list[str] = field(default_factory=list)
    """Everything that the tools may ask for; also local folders."""

    env: dict[str, str] = field(default_factory=dict)
    """How a sandbox's tools learn of them."""

    certificates: list[Path] = field(default_factory=list)


async def find_registries(toolchain: Path) -> Registries:
    """Ask both tools at once: each takes some hundred milliseconds to start."""
    pip, npm = await asyncio.gather(_ask_pip(toolchain), _ask_npm(toolchain))
    found = {name: value for name in _CA_VARIABLES if (value := os.environ.get(name))}
    certificates = [Path(value) for value in (*found.values(), pip.cert) if value]
    env = {**found, **pip.env(), "npm_config_registry": npm}
    return Registries([*pip.urls(), npm], env, certificates)


@dataclass(frozen=True)
class _Pip:
    index: str
    extra: list[str]
    links: list[str]
    files: str | None
    cert: str | None

    def urls(self) -> list[str]:
        return [self.index, *self.extra, *self.links, *([self.files] if self.files else [])]

    def env(self) -> dict[str, str]:
        settings = {
            "PIP_INDEX_URL": self.index,
            "PIP_EXTRA_INDEX_URL": " ".join(self.extra),
            "PIP_FIND_LINKS": " ".join(self.links),
            "PIP_CERT": self.cert,
        }
        return {name: value for name, value in settings.items() if value}


async def _ask_pip(toolchain: Path) -> _Pip:
    own = importlib.util.find_spec("pip") is not None
    python = sys.executable if own else str(toolchain / "bin" / "python3")
    listing, defaults = await asyncio.gather(
        _output(python, "-m", "pip", "config", "list"), _output(python, "-c", _PIP_DEFAULTS)
    )
    default_index, default_files = json.loads(defaults)
    settings = _parse_pip_config(listing)
    index = _public(settings.get("index-url", default_index))
    # The default index keeps its files on a second host. One set up here links to its own.
    files = f"https://{default_files}" if index.startswith(default_index) else None
    extra = [_public(x) for x in settings.get("extra-index-url", "").split()]
    links = [_public(x) for x in settings.get("find-links", "").split()]
    return _Pip(index, extra, links, files, settings.get("cert"))


def _parse_pip_config(listing: str) -> dict[str, str]:
    """`pip config list` prints section.name='value'; variables (`:env:`) come first and win."""
    settings: dict[str, str] = {}
    for line in listing.splitlines():
        key, separator, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if separator and section in ("global", "install", ":env:"):
            settings.setdefault(name, str(ast.literal_eval(value)))
    return settings


async def _ask_npm(toolchain: Path) -> str:
    path = f"{toolchain / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    npm = str(toolchain / "bin" / "npm")
    answer = await _output(npm, "config", "get", "registry", env={**os.environ, "PATH": path})
    return _public(answer.strip())


async def _output(*command: str, env: dict[str, str] | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {errors.decode().strip()}")
    return out.decode()


def _public(url: str) -> str:
    """Without credentials: whatever is in a sandbox may leave it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def local_folder(url: str) -> Path | None:
    """The folder that a file URL or an absolute path names; of an index, with its files."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        folder = Path(url2pathname(parts.path))
    elif url.startswith("/"):
        folder = Path(url)
    else:
        return None
    # The pages of an index in a folder `simple` link to files that lie next to it.
    return folder.parent if folder.name == "simple" else folder


def is_loopback(host: str) -> bool:
    """Say whether a name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name


def configuration() -> bytes:
    """What decides where packages come from, without asking the tools: that takes a second."""
    chosen = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.lower().startswith(("pip_", "npm_config_"))
    )
    home, prefix = Path.home(), Path(sys.prefix)
    files = [home / ".config/pip/pip.conf", home / ".pip/pip.conf", prefix / "pip.conf"]
    files += [Path("/etc/pip.conf"), home / ".npmrc", Path("/etc/npmrc")]
    texts = [path.read_bytes() for path in files if path.is_file() and os.access(path, os.R_OK)]
    return repr((chosen, texts)).encode()
