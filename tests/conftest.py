"""Fixtures: one world and one local cloud for all tests of a process."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autocoder.local.cloud import LocalCloud, state_folder
from autocoder.services import Services
from tests.world import World


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


@pytest.fixture(scope="session")
def cloud() -> Iterator[LocalCloud]:
    """The whole service on this machine."""
    with LocalCloud(lambda line: None) as running:
        yield running


@pytest.fixture
def scenarios() -> Path:
    """The scenarios that the project ships."""
    return Path(__file__).parent.parent / "scenarios"
