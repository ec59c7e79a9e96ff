"""`autocoder run "Build a …"` as people call it, with a model on loopback in Anthropic's place."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model import HEADING, KEY, Script, ScriptedModel, scripted_model, text, tool

AUTOCODER = str(Path(sys.executable).with_name("autocoder"))
PLAN = {"name": "../../Twice & Co", "environment": "python", "files": [], "checks": []}
PLAN |= {"acceptance_criteria": [], "risks": []}
CODE = "def twice(x):\n    return x + x\n"
TESTS = "from twice import twice\n\n\ndef test_twice():\n    assert twice(5) == 10\n"


class AnyTask(dict[str, Script]):
    """The same script for every task: its id is made by the queue."""

    def __missing__(self, task: str) -> Script:
        def write(name: str, content: str) -> dict[str, object]:
            return tool("Write", file_path=f"/home/user/project/{name}", content=content)

        both = [write("twice.py", CODE), write("tests/test_twice.py", TESTS)]
        return Script({0: [[text(json.dumps(PLAN))]], 1: [both, [text("Done.")]]})


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as made:
        made.scripts = AnyTask()
        yield made


class Shell:
    """A folder to call the command in, with a state folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.here = folder / "here"
        self.here.mkdir()
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}

    def start(self, *args: str, **env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [AUTOCODER, *args],
            cwd=self.here,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def autocoder(self, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*args, **env)
        out, err = process.communicate("", timeout=100)
        return subprocess.CompletedProcess(args, process.returncode, out, err)


def holders_of_the_key() -> list[int]:
    """The processes that have it in their arguments or their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue  # it ended while we looked
        if KEY.encode() in held:
            found.append(int(process.name))
    return found


@pytest.fixture
def shell(model: ScriptedModel, tmp_path: Path) -> Shell:
    return Shell(tmp_path, model.url)


def test_a_specification_becomes_files_here_and_a_scenario_that_replays(
    shell: Shell, model: ScriptedModel
) -> None:
    (shell.here / "twice-co").mkdir()
    (shell.here / "twice-co" / "mine.txt").write_text("mine")
    spec = "Build a function that doubles, in Python."
    process = shell.start("run", "-", "--budget", "0.5", "--max-iterations", "3")
    assert process.stdin
    process.stdin.write(spec)
    process.stdin.close()
    process.stdin = None
    while not model.seen and process.poll() is None:  # until everything is at work
        time.sleep(0.05)
    assert holders_of_the_key() == [process.pid]
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    made = shell.here / "twice-co-2"
    assert (made / "twice.py").read_text() == CODE
    assert (made / "tests" / "test_twice.py").read_text() == TESTS
    assert [path.name for path in (shell.here / "twice-co").iterdir()] == ["mine.txt"]
    assert f"the project is in {made.resolve()}" in out
    assert "SUCCEEDED in iteration 1" in out
    assert "of 0.50 USD, 3 answers" in out
    assert KEY not in out + err
    asked = model.seen[0].body.decode()
    assert spec in asked
    found = HEADING.search(json.loads(asked)["messages"][0]["content"])
    assert found
    task = found[1]

    recorded = shell.autocoder("record", task, "--as", "again")
    assert recorded.returncode == 0, recorded.stderr
    assert "a plan and 1 runs (3 steps)" in recorded.stdout
    assert "can't be written" in shell.autocoder("record", task, "--as", "again").stderr

    before = len(model.seen)
    target = shell.here / "replayed"
    replay = shell.autocoder("run", "--scenario", "again", "--output", "replayed", "--json")
    assert replay.returncode == 0, replay.stderr
    assert json.loads(replay.stdout)["plan"]["status"] == "planned"
    assert (target / "twice.py").read_text() == CODE
    assert len(model.seen) == before  # the key is there, and nothing was asked


@pytest.mark.parametrize(
    ("args", "env", "says"),
    [
        (["run", "Build it."], {"ANTHROPIC_API_KEY": ""}, "export ANTHROPIC_API_KEY"),
        (["run", "Build it."], {"ANTHROPIC_API_KEY": " "}, "fix-loop"),
        (["run", "Build it.", "--scenario", "x"], {}, "give one of"),
        (["run", "Build it.", "--file", "x"], {}, "give one of"),
        (["run", "--file", "missing.md"], {}, "--file missing.md can't be read"),
        (["run", "  "], {}, "specification"),
        (["run", "-"], {}, "specification"),
        (["run", "Build it.", "--budget", "0"], {}, "--budget"),
        (["run", "Build it.", "--environment", "cobol"], {}, "known are auto, python, node"),
        (["run", "Build it.", "--model", "a b"], {}, "model:"),
        (["run", "--scenario", "x", "--budget", "1"], {}, "--budget goes with a specification"),
        (["run", "Build it.", "--output", ".."], {}, "is not empty"),
        (["run", "Build it."], {"ANTHROPIC_BASE_URL": "http://example.com"}, "unencrypted"),
        (["run", "Build it."], {"ANTHROPIC_BASE_URL": "example.com"}, "no URL"),
        (["run", "Build it."], {"ANTHROPIC_API_KEY": "a b"}, "is no key"),
        (["run", "Build it."], {"XDG_STATE_HOME": "/proc"}, "can't be made"),
        (["record", "no-such-task"], {}, "There is none yet"),
        (["record", "../up"], {}, "no recording"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    shell: Shell, args: list[str], env: dict[str, str], says: str
) -> None:
    done = shell.autocoder(*args, **env)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(shell.here.iterdir()) == []
