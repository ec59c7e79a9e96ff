"""What a deployed function is when it runs: its code and layers on disk, and its environment."""

import io
import json
import logging
import os
import platform
import sys
import threading
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": "local",
    # Without these, botocore finds the user's own files even when HOME is not set.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
FROM_HOST = ("PATH", "LANG", "TZ")
ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Function:
    """One version of a function. Equal ones share warm processes."""

    arn: str
    name: str
    version: str
    label: str
    """Its logical name in the template: the name of its log file."""
    handler: str
    runtime: str
    timeout: int
    memory: int
    region: str
    task_root: Path
    layers: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    logging: tuple[tuple[str, str], ...] = ()
    retries: int = field(default=2, compare=False)
    """How often an asynchronous invocation is repeated after a failure."""

    @property
    def path(self) -> list[str]:
        # /var/task comes before /opt/python, as on Lambda.
        return [str(self.task_root), *(str(layer) for layer in self.layers)]


class Layer(Protocol):
    """The part of moto's LayerVersion that is used here."""

    arn: str
    code_bytes: bytes
    code_digest: str
    compatible_architectures: list[str]
    compatible_runtimes: list[str]


class CodeStore:
    """Unzips each asset once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._unzipped: dict[str, Path] = {}
        self._replaced: set[str] = set()

    def code(self, content: bytes, digest: str) -> Path:
        with self._lock:
            if digest not in self._unzipped:
                folder = self._folder / digest[:16]
                if not folder.exists():  # else it is left from an earlier server
                    unfinished = folder.with_suffix(".part")
                    with zipfile.ZipFile(io.BytesIO(content)) as archive:
                        archive.extractall(unfinished)
                    unfinished.rename(folder)
                self._unzipped[digest] = folder
            return self._unzipped[digest]

    def layers(self, layers: Iterable[Layer]) -> tuple[Path, ...]:
        """The `python` folders of the layers that run on this machine, in search order."""
        return tuple(
            self.code(layer.code_bytes, layer.code_digest) / "python"
            for layer in reversed(list(layers))  # a later one overlays an earlier one in /opt
            if self._runs_here(layer)
        )

    def _runs_here(self, layer: Layer) -> bool:
        """Pure Python runs anywhere; what was built for another platform cannot be loaded here.

        The same pins are installed next to this server, so its site-packages serve instead.
        """
        host = ARCHITECTURES.get(platform.machine().lower(), platform.machine())
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        wanted = layer.compatible_architectures
        if not wanted or (host in wanted and python in (layer.compatible_runtimes or [python])):
            return True
        with self._lock:
            if layer.arn not in self._replaced:
                self._replaced.add(layer.arn)
                log.info(
                    "layer %s is built for %s %s, this is %s %s: site-packages serves instead",
                    layer.arn,
                    "/".join(wanted),
                    "/".join(layer.compatible_runtimes) or "any runtime",
                    host,
                    python,
                )
        return False


def from_host() -> dict[str, str]:
    return {name: os.environ[name] for name in FROM_HOST if name in os.environ}


def environment(function: Function, endpoint: str, extra: Path | None) -> dict[str, str]:
    """The variables that a runtime process sees: those of Lambda, and nothing of the host's."""
    added = json.loads(extra.read_text()) if extra else {}
    return {
        **from_host(),
        **CREDENTIALS,
        **{f"AWS_LAMBDA_{name}": value for name, value in function.logging},
        "AWS_REGION": function.region,
        "AWS_DEFAULT_REGION": function.region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": function.version,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[{function.version}]",
        "LAMBDA_TASK_ROOT": str(function.task_root),
        "_HANDLER": function.handler,
        **dict(function.variables),
        **{name: str(value) for name, value in added.items()},
    }
