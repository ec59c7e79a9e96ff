"""The generated pages say what the code says."""

import re
from pathlib import Path

from autocoder.errors import HINTS
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
