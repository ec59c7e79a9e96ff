"""The contract of the sandbox port, held by local sandboxes; tests/live holds E2B to the same."""

import pytest

from autocoder.sandbox.client import Sandboxes
from autocoder.services import Services
from tests.contract.sandbox_port import SandboxPortContract


class TestLocalSandboxes(SandboxPortContract):
    @pytest.fixture
    def sandboxes(self, services: Services) -> Sandboxes:
        return services.sandboxes
