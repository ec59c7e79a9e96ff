"""What a shell offers on Tab."""

import pytest

from autocoder.cli.completion import examples, statuses
from tests.cli.conftest import Caller
from tests.cli.lab import Lab


def offered(caller: Caller, line: str) -> list[str]:
    """What bash is told of a line that ends where Tab was pressed."""
    words = line.split(" ")
    caller.environment |= {
        "_AUTOCODER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return caller.call().stdout.split()


def test_examples_and_statuses() -> None:
    assert examples("h") == ["hello-world"]
    assert "list" in examples("")
    assert statuses("S") == ["succeeded"]


def test_tasks_of_a_running_local_cloud(lab: Lab) -> None:
    for name in ("tab-one", "tab-two", "other"):
        lab.put(name, "SUCCEEDED", "2026-11-16T10:00:00.000Z")
    with lab.caller() as caller:
        assert sorted(offered(caller, "autocoder status tab")) == ["tab-one", "tab-two"]
        assert sorted(offered(caller, "autocoder watch other")) == ["other"]
        assert offered(caller, "autocoder submit --example hello") == ["hello-world"]
        assert offered(caller, "autocoder list --status can") == ["cancelled"]


@pytest.mark.parametrize("line", ["autocoder status ta", "autocoder watch ta"])
def test_without_a_local_cloud_nothing_is_offered_or_said(stranger: Caller, line: str) -> None:
    assert offered(stranger, line) == []
