"""Fixtures of the local cloud's own tests."""

from collections.abc import Iterator

import pytest

from tests.local.aws_lab import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """An embedded AWS for the tests of one module; a module that needs another makes its own."""
    made = Lab(tmp_path_factory.mktemp("aws"))
    yield made
    made.close()
