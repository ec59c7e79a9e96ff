"""Fixtures: one world and one local cloud for all tests of a process."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.cloud import LocalCloud, state_folder
from autocoder.services import Services
from autocoder.task import State
from functions import create_sandbox
from tests.steps.builders import queued
from tests.world import World


def pytest_configure() -> None:
    """Hear Ctrl-C, also where a shell started the tests in the background: processes inherit it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """Servers and storage for tests that call the steps by hand."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        made = World(stack.enter_context(state_folder()), stack)
        for name, value in made.environment().items():
            patch.setenv(name, value)
        yield made


@pytest.fixture
def services(world: World) -> Services:
    """A step's collaborators."""
    return world.services()


@pytest.fixture
def begun(world: World, services: Services) -> Iterator[Callable[..., State]]:
    """Make tasks that have a sandbox; end the sandboxes afterwards."""
    states = []

    def begin(name: str, runs: list[list[dict[str, Any]]], **message: Any) -> State:
        state = queued(services, name, **message)
        world.add_scenario(state.task_id, runs)
        states.append(state)
        return state.model_copy(update={"sandbox": create_sandbox.run(state, services)})

    yield begin
    for state in states:
        services.sandboxes.kill_all(state.name)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """The whole service on this machine; it signs with a key of its own, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with LocalCloud(lambda line: None) as running:
            yield running


@pytest.fixture
def scenarios() -> Path:
    """The scenarios that the project ships."""
    return Path(__file__).parent.parent / "scenarios"
