"""Tests against the real services. They cost money: only `pytest -m live` runs them.

E2B_API_KEY, ANTHROPIC_API_KEY   after `autocoder setup` with the same keys
AUTOCODER_STACK, AWS_REGION      a deployed stack, for the whole task; and credentials
"""

import os

import pytest

from autocoder.sandbox.client import Sandboxes
from infra.egress import egress_of, registries_here
from infra.settings import Settings
from infra.template import template_name


def needed(variable: str) -> str:
    """A variable without which there is nothing to test; its absence is shown."""
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"NOT TESTED against the real service: {variable} is not set")
    return value


@pytest.fixture(scope="session")
def settings() -> Settings:
    """The deployer's."""
    return Settings.load()


@pytest.fixture(scope="session")
def e2b_key(monkeypatch_session: pytest.MonkeyPatch) -> str:
    """The key; whatever would lead the SDK elsewhere is out of the way."""
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DEBUG"):
        monkeypatch_session.delenv(name, raising=False)
    return needed("E2B_API_KEY")


@pytest.fixture(scope="session")
def monkeypatch_session() -> pytest.MonkeyPatch:
    """Changes of the environment that last as long as the tests."""
    return pytest.MonkeyPatch()


@pytest.fixture(scope="session")
def sandboxes(e2b_key: str, settings: Settings) -> Sandboxes:
    """E2B as the steps see it."""
    egress = egress_of(settings, registries_here())
    return Sandboxes(
        api_key=e2b_key,
        template=template_name(settings, egress),
        owner=f"{settings.stack_name}-live-test",
        egress=egress,
        model_key=lambda: needed("ANTHROPIC_API_KEY"),
    )
