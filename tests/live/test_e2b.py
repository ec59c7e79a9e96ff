"""E2B's cloud: the port's contract, the template, the injected key, the closed network."""

import shlex
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from e2b import Sandbox
from e2b.connection_config import ApiParams

from autocoder.cli.doctor import ASK_MODEL
from autocoder.cli.team import Team
from autocoder.sandbox.client import Sandboxes, SandboxHandle
from infra.template import claude_version
from tests.contract.sandbox_api import (
    CommandsContract,
    FilesContract,
    LifeContract,
    PauseContract,
    WatchContract,
)
from tests.contract.sandbox_port import SandboxPortContract
from tests.live.conftest import needed

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


class Cloud:
    """E2B, as the contract of its API wants it."""

    def __init__(self, key: str, template: str) -> None:
        self.options = ApiParams(api_key=key)
        self._template = template

    def create(self, **arguments: Any) -> Sandbox:
        return Sandbox.create(self._template, **arguments, **self.options)

    @contextmanager
    def sandbox(self, **arguments: Any) -> Iterator[Sandbox]:
        sandbox = self.create(**arguments)
        try:
            yield sandbox
        finally:
            sandbox.kill()


@pytest.fixture(scope="session")
def provider(sandboxes: Sandboxes) -> Cloud:
    return Cloud(sandboxes.api_key, sandboxes.template)


class TestE2bSandboxes(SandboxPortContract):
    """The same as for local sandboxes."""


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


class TestEgress:
    """What a sandbox reaches, and what it can't know."""

    @pytest.fixture
    def box(self, sandboxes: Sandboxes) -> Iterator[SandboxHandle]:
        name = f"live-{uuid.uuid4().hex[:8]}-1"
        yield sandboxes.create(name, 1)
        sandboxes.kill_all(name)

    def ask(self, box: SandboxHandle) -> str:
        box.write("ask.py", ASK_MODEL)
        return str(box.sandbox.commands.run("python3 ask.py").stdout).strip()

    def test_the_model_answers_only_while_it_is_let_in(self, box: SandboxHandle) -> None:
        assert self.ask(box) != "200"
        box.admit_model()
        assert self.ask(box) == "200"
        box.withdraw_model()
        assert self.ask(box) != "200"

    def test_the_key_is_nowhere_in_the_sandbox(self, box: SandboxHandle) -> None:
        box.admit_model()
        key = needed("ANTHROPIC_API_KEY")
        places = "env; cat /proc/*/environ 2>/dev/null; grep -rs . /run /etc 2>/dev/null"
        assert key not in box.sandbox.commands.run(f"({places}) | cat").stdout
        assert key not in repr(box.sandbox.get_info())

    @pytest.mark.parametrize("target", ["https://example.com", "http://169.254.169.254", "1.1.1.1"])
    def test_nothing_else_is_reached(self, box: SandboxHandle, target: str) -> None:
        box.admit_model()
        command = f"curl -s -m 10 -o /dev/null {shlex.quote(target)} && echo reached || true"
        assert "reached" not in box.sandbox.commands.run(command).stdout

    def test_no_name_server_answers(self, box: SandboxHandle) -> None:
        ask = "import socket; socket.getaddrinfo('example.com', 443)"
        command = f'python3 -c "{ask}" && echo resolved || true'
        assert "resolved" not in box.sandbox.commands.run(command).stdout

    def test_packages_are_installed_though(self, box: SandboxHandle) -> None:
        box.sandbox.commands.run("python3 -m venv v && v/bin/pip install -q tomli", timeout=300)
        box.sandbox.commands.run("npm install --silent is-odd", timeout=300)


def test_the_template_is_current(sandboxes: Sandboxes) -> None:
    name, _, tag = sandboxes.template.partition(":")
    assert tag in Team(sandboxes.api_key).template_tags(name)


def test_the_template_has_the_pinned_claude_code(sandboxes: Sandboxes) -> None:
    box = sandboxes.create("live-version-1", 1)
    try:
        assert claude_version() in box.sandbox.commands.run("claude --version").stdout
    finally:
        sandboxes.kill_all("live-version-1")
