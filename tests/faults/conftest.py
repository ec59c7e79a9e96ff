"""Fixtures of the fault tests: tasks with a sandbox, and a network that fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autocoder.services import Services
from autocoder.task import State
from functions import create_sandbox
from tests.faults.proxy import FaultProxy, faults
from tests.steps.builders import queued
from tests.world import World

Begin = Callable[..., State]


@pytest.fixture
def begun(world: World, services: Services) -> Iterator[Begin]:
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


@pytest.fixture
def proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The way to the sandbox server, for the SDK in this process, leads through a fault proxy."""
    with faults(world.sandbox_urls["api_url"]) as running:
        monkeypatch.setenv("E2B_API_URL", running.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", running.url)
        yield running
