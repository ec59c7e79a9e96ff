"""The generated pages say what the code says."""

import re
from pathlib import Path

import pytest

from autocoder.cli.reference import PAGES
from autocoder.errors import HINTS
from autocoder.message import TaskMessage
from autocoder.record import TaskRecord
from autocoder.reference import failures, tampering, toolchains
from autocoder.tamper import NAMES

ROOT = Path(__file__).parent.parent.parent


def test_the_page_of_failures_is_up_to_date() -> None:
    page = (ROOT / "docs" / "failures.md").read_text()
    assert page == failures(), "run `make reference`"


def test_the_page_of_toolchains_is_up_to_date() -> None:
    page = (ROOT / "docs" / "toolchains.md").read_text()
    assert page == toolchains(), "run `make reference`"


def test_the_page_of_tamper_rules_is_up_to_date() -> None:
    page = (ROOT / "docs" / "tampering.md").read_text()
    assert page == tampering(), "run `make reference`"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_of_the_command_line_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make reference`"


def test_every_field_of_message_and_record_is_on_their_page() -> None:
    page = (ROOT / "docs" / "messages.md").read_text()
    for name in (*TaskMessage.model_fields, *TaskRecord.__annotations__):
        assert f"| `{name}` |" in page


def test_every_tamper_rule_is_a_code_of_its_own() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert {name for name, hint in HINTS.items() if "`allow`" in hint} == set(NAMES)


def test_every_code_that_is_raised_has_a_hint_and_every_hint_is_used() -> None:
    folders = ("functions", "layers/autocoder")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    code = "\n".join(path.read_text() for path in sources if path.name != "errors.py")
    code += (ROOT / "layers/autocoder/errors.py").read_text().partition("class AutocoderError")[2]
    used = {name for name in HINTS if re.search(rf'"{name}"', code)}
    assert used == set(HINTS)
