"""`autocoder run` as people call it: its exit codes, its output, and nothing left behind."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocoder.local.assembly import ROOT
from autocoder.local.cloud import sweep

AUTOCODER = Path(sys.executable).with_name("autocoder")
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def orphans_come_here() -> Iterator[None]:
    """Adopt whatever outlives its parent, so that a leaked process shows among our children."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Place:
    """A temp folder of its own for a run, to see what it leaves there."""

    def __init__(self, folder: Path) -> None:
        self.temp = folder / "tmp"
        self.temp.mkdir()
        for path in (folder, folder.parent, folder.parent.parent):
            path.chmod(0o755)  # sandboxes run as another user and must get through
        self.children = children()

    def start(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(AUTOCODER), "run", *args],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.temp), "ANTHROPIC_API_KEY": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*args)
        out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def assert_nothing_left(self) -> None:
        assert list(self.temp.iterdir()) == []
        self.assert_no_process_left()

    def assert_no_process_left(self) -> None:
        deadline = time.monotonic() + 10  # what was killed a moment ago takes a moment to go
        while (left := children() - self.children) and time.monotonic() < deadline:
            for pid in left:
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
        assert {pid: command(pid) for pid in left} == {}


def children() -> set[int]:
    pid = os.getpid()
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


@pytest.fixture
def place(tmp_path: Path, orphans_come_here: None) -> Place:
    return Place(tmp_path)


def test_success_is_shown_kept_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = place.run("--scenario", "scenarios/fix-loop", "--json", "--keep", str(keep))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["status"], record["iteration"]) == ("SUCCEEDED", 2)
    assert json.loads((keep / "task.json").read_text()) == record
    assert (keep / "files" / "slugs.py").exists()
    assert list((keep / "logs").glob("*RunClaudeCode*.log"))
    for shown in ("CreateSandbox", "Write", "2 failed", "green", "slugs.py", "SUCCEEDED"):
        assert shown in done.stderr
    assert_told_in_a_few_lines(done.stderr)
    place.assert_nothing_left()
    verified = subprocess.run(
        [str(AUTOCODER), "verify", str(keep)], capture_output=True, text=True, timeout=60
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "VERIFIED: task fix-loop, which SUCCEEDED" in verified.stdout
    evidence = json.loads((keep / "evidence.json").read_bytes())
    code = evidence["service"]["code_sha256"][:16]  # the layer that the functions ran from
    assert list((ROOT / "build" / "layers").glob(f"code-{code}*"))
    (keep / "files" / "planted.py").write_text("")
    assert subprocess.run([str(AUTOCODER), "verify", str(keep)], timeout=60).returncode == 1


def assert_told_in_a_few_lines(shown: str) -> None:
    lines = [line[9:] for line in shown.splitlines()]
    end = lines[lines.index("result        SUCCEEDED in iteration 2") :]
    assert len(end) <= 25
    said = "\n".join(end)
    for part in ("tests         ✓ 3 passed", "clean room    ✓ 3 of 3", "slugs.py", "cost "):
        assert part in said
    assert "iteration 1   added README.md, slugs.py, test_slugs.py; not passed: test 2 of 3" in said
    assert "iteration 2   changed slugs.py, which fixed test; every check passed, also" in said
    assert "evidence.json, signed with the key" in said


def test_failure_exits_1_and_leaves_nothing(place: Place) -> None:
    done = place.run("--scenario", "scenarios/never-green")
    assert done.returncode == 1
    assert "checks_failed" in done.stdout
    place.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(place: Place, tmp_path: Path, number: int) -> None:
    slow = json.loads((ROOT / "scenarios" / "first-try" / "scenario.json").read_text())
    slow["runs"][0][1]["delay_s"] = 600
    (tmp_path / "scenario.json").write_text(json.dumps(slow))
    process = place.start("--scenario", str(tmp_path))
    assert process.stdout
    for line in process.stdout:
        if "claude" in line:  # the agent is at work
            break
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    place.assert_nothing_left()


def test_a_killed_run_leaves_no_process_and_the_next_one_sweeps_its_folder(place: Place) -> None:
    process = place.start("--scenario", "scenarios/fix-loop")
    assert process.stdout
    for line in process.stdout:
        if "queue" in line:
            break
    process.kill()
    process.communicate(timeout=30)
    place.assert_no_process_left()
    assert len(list(place.temp.iterdir())) == 1
    assert place.run("--scenario", "scenarios/first-try").returncode == 0
    place.assert_nothing_left()


def test_a_bad_message_is_rejected_with_exit_1(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    file.write_text('{"specification": "x", "colour": "blue"}')
    done = place.run("--message", str(file), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "REJECTED"
    place.assert_nothing_left()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say what to run"),
        (["--scenario", "no/such/folder"], "can't be read"),
        (["--scenario", "nope"], "those that are shipped: acceptance, "),
        (["--message", "no-such-file"], "can't be read"),
        (["--message", "tests/workflow/valid-message.json"], "--scenario NAME"),
        (["--scenario", "scenarios/fix-loop", "--keep", "docs"], "is not empty"),
        (["--scenario", "scenarios/fix-loop", "--keep", "README.md"], "can't be used"),
        (["--scenario", "scenarios/fix-loop", "--keep", "/proc/x"], "can't be used"),
        (["--colour"], "No such option"),
    ],
)
def test_usage_errors_exit_2_with_a_sentence(place: Place, args: list[str], says: str) -> None:
    done = place.run(*args)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    place.assert_nothing_left()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"name": "x", "message": {}, "runs": [[{}]]}', "runs.0.0"),
        (b'{"name": "x", "message": {}, "runs": []}', "runs"),
        (
            b'{"name": "x", "message": {}, "runs": [[{"text": "a"}, {"text": "b"}]]}',
            "behind a text",
        ),
        (
            b'{"name":"x","message":{},"runs":[[{"tool":"Write","input":{"file_path":"/e"}}]]}',
            "relative",
        ),
        (b"\xff\xfe", "scenario.json"),
    ],
)
def test_a_broken_scenario_is_named_with_its_field(
    place: Place, tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "scenario.json").write_bytes(content)
    done = place.run("--scenario", str(tmp_path))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_isolation_that_is_not_to_be_had_is_said_in_a_sentence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOCODER_SANDBOX_ISOLATION", "docker")
    done = place.run("--scenario", "scenarios/first-try")
    assert done.returncode == 2
    assert "it may be auto, bubblewrap or none" in done.stderr
    assert "Traceback" not in done.stderr
    place.assert_nothing_left()


def test_without_isolation_the_warning_is_loud_and_gives_the_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOCODER_SANDBOX_ISOLATION", "none")
    done = place.run("--scenario", "scenarios/first-try")
    assert done.returncode == 0
    assert done.stderr.count("NO ISOLATION") == 2  # before and after
    assert "AUTOCODER_SANDBOX_ISOLATION=none" in done.stderr
    place.assert_nothing_left()


def test_a_folder_planted_by_another_is_left_alone(place: Place, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    planted = place.temp / f"autocoder-{os.geteuid()}-planted"
    planted.mkdir()
    (planted / "owner.lock").symlink_to(precious)
    sweep(planted)
    assert precious.read_text() == "do not touch"
    assert planted.exists()
