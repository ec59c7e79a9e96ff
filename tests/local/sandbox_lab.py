"""A real sandbox server in its own process, and a stand-in for the model's gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2b import Sandbox
from e2b.connection_config import ApiParams
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.local.sandboxes.isolation import VARIABLE

ROOT = Path(__file__).parents[2]
MODES = ["bubblewrap", "none"]


def create_app(
    lookup: Callable[[str], SandboxIdentity | None], end: object, state_dir: Path, upstream: None
) -> Starlette:
    """The gateway's stand-in: it says who asks."""

    async def whoami(request: Request) -> Response:
        identity = lookup(request.headers.get("x-api-key", ""))
        return JSONResponse(vars(identity) if identity else None)

    return Starlette(routes=[Route("/whoami", whoami)])


class Lab:
    """A running server. `bubblewrap` fails loudly where bubblewrap is missing or broken."""

    def __init__(
        self, state_dir: Path, isolation: str, arguments: Sequence[str] = (), **env: str
    ) -> None:
        self.state_dir = state_dir
        arguments = ["--state-dir", str(state_dir), "--gateway-module", __name__, *arguments]
        self._log = state_dir.with_suffix(".log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "autocoder.local.sandboxes", *arguments],
                cwd=ROOT,
                env={**os.environ, VARIABLE: isolation, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"no sandbox server with isolation {isolation}: {self.log()}"
        self.ready: dict[str, str] = json.loads(line)
        assert self.ready["isolation"] == isolation

    @property
    def options(self) -> ApiParams:
        return {
            "api_key": "e2b_" + "0" * 40,
            "api_url": self.ready["api_url"],
            "sandbox_url": self.ready["sandbox_url"],
        }

    def create(self, **arguments: Any) -> Sandbox:
        return Sandbox.create(**arguments, **self.options)

    @contextmanager
    def sandbox(self, **arguments: Any) -> Iterator[Sandbox]:
        sandbox = self.create(**arguments)
        try:
            yield sandbox
        finally:
            sandbox.kill()

    def log(self) -> str:
        return self._log.read_text()

    def stop(self, how: signal.Signals | None = None) -> int:
        """End the server by a signal or, as its owner does, by closing its standard input."""
        if how is not None:
            self.process.send_signal(how)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None and how is None:
            self.process.stdin.close()
        code = self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()
        return code


def processes_with(marker: str) -> list[str]:
    """Command lines of the host's live processes that contain a text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended while we looked
        if marker in command:
            found.append(command)
    return found
