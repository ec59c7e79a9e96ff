"""Fixtures of the fault tests: a network that fails."""

from collections.abc import Callable, Iterator

import pytest

from autocoder.task import State
from tests.faults.proxy import FaultProxy, faults
from tests.world import World

Begin = Callable[..., State]


@pytest.fixture
def proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The way to the sandbox server, for the SDK in this process, leads through a fault proxy."""
    with faults(world.sandbox_urls["api_url"]) as running:
        monkeypatch.setenv("E2B_API_URL", running.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", running.url)
        yield running
