"""The commands in README and docs are run, but for those whose reason not to be is named here."""

import re
import subprocess
from pathlib import Path

import pytest

from autocoder.cli.examples import names
from autocoder.local.assembly import ROOT
from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import load
from tests.cli.conftest import Caller

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = {"sh": "commands, which are run", "json": "a file", "text": "a picture or an output"}

KEY = "needs a key of Anthropic's"
ACCOUNT = "needs an AWS account"
TWO_TERMINALS = "stays until Ctrl-C: the shared local cloud is in its place (test_local starts it)"
AWS_CLI = "needs the aws CLI, which .venv does not have (test_local sends by boto3)"
TYPED = "a form, and files of the reader's own (test_submit has them)"

# Blocks that are not run, by their first line.
NOT_RUN = {
    "README.md": {
        "export ANTHROPIC_API_KEY=…": KEY,
        "autocoder local up": TWO_TERMINALS,
        "autocoder submit": TYPED,
        "autocoder setup": ACCOUNT,
        'eval "$(autocoder local status --export)"': AWS_CLI,
    },
    "docs/scenarios.md": {"export ANTHROPIC_API_KEY=…": KEY},
    "docs/deploying.md": {
        "export AWS_PROFILE=…": ACCOUNT,
        "make setup": ACCOUNT,
        'make cdk ARGS="bootstrap"': ACCOUNT,
        '.venv/bin/autocoder submit "A Python module calc.py with add(a, b), and a test." '
        "--id first --budget 1 --watch": ACCOUNT,
        "output() { aws cloudformation describe-stacks --stack-name Autocoder-main "
        "--output text \\": ACCOUNT,
        'aws sqs send-message --queue-url "$(output TaskQueueUrl)" --message-body \\': ACCOUNT,
        ".venv/bin/autocoder setup --stage test": ACCOUNT,
        "git pull && make setup": ACCOUNT,
        ".venv/bin/autocoder cancel first": ACCOUNT,
        "kept() { aws cloudformation describe-stack-resources --stack-name Autocoder-main "
        "--output text \\": ACCOUNT,
        "aws secretsmanager delete-secret --secret-id autocoder/e2b-api-key": ACCOUNT,
        "AWS_REGION=… E2B_API_KEY=… ANTHROPIC_API_KEY=… AUTOCODER_STACK=Autocoder-main \\": ACCOUNT,
    },
}


def blocks(page: Path) -> list[str]:
    """The page's commands, a text a block."""
    return [text for language, text in FENCE.findall(page.read_text()) if language == "sh"]


def first_line(block: str) -> str:
    """What a block is known by: without the comment behind it."""
    return re.sub(r"\s+# .*", "", block.splitlines()[0]).rstrip()


def runnable(page: Path) -> list[str]:
    """The blocks that no reason is given for."""
    known = NOT_RUN.get(str(page.relative_to(ROOT)), {})
    return [block for block in blocks(page) if first_line(block) not in known]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A reader's clone, in which what commands make leaves no trace in this one."""
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path) -> None:
    fences = re.findall(r"^```(\w*)$", page.read_text(), re.MULTILINE)
    assert set(fences[::2]) <= SHOWN.keys(), f"{page} has a block that is none of {SHOWN}"
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https:)([^)\s]+)\)", FENCE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, target


def test_the_picture_is_of_a_run_that_succeeded_and_fetches_nothing() -> None:
    picture = (ROOT / "docs" / "demo.svg").read_text()
    assert len(picture) < 200_000
    assert re.findall(r"https?://[^\"]*", picture) == ["http://www.w3.org/2000/svg"]
    shown = re.sub(r"<[^>]*>", "", picture).replace("&#160;", " ")
    for said in ("$ make demo", "2 of 3 failed", "SUCCEEDED in iteration 2"):
        assert said in shown


def test_every_reason_is_of_a_block_that_is_there() -> None:
    for page, reasons in NOT_RUN.items():
        there = {first_line(block) for block in blocks(ROOT / page)}
        assert set(reasons) - there == set(), f"{page} no longer has these"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_commands_of_a_page_work(
    page: Path, clone: Path, caller: Caller, cloud: LocalCloud
) -> None:
    for name in names():
        cloud.add_scenario(load(ROOT / "scenarios" / name), name)
    # As a reader types them: in one shell, one after the other, and none may fail.
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(runnable(page))],
        cwd=clone,
        env=caller.environment,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if page.name == "README.md":
        assert (clone / "result" / "files" / "calculator" / "parser.py").is_file()
        assert "\n14\n" in done.stdout
        assert "VERIFIED: task example-calculator-" in done.stdout
