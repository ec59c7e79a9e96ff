"""Runner and packer as they run in a sandbox: real processes with a home of their own."""

import hashlib
import hmac
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autocoder.archive import Caps, project_files
from autocoder.sandbox.client import SOURCES
from autocoder.sandbox.runner import FEED_CAP, LINE_CAP


class Sandbox:
    """A folder as a home, and the runner's commands in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "project").mkdir()
        (home / ".autocoder").mkdir()
        self.jobs = home / ".autocoder" / "jobs"

    def run(self, *args: str) -> list[str]:
        script = "runner.py"
        if args[0] not in ("attach", "stop", "tools"):
            script = "packer.py"
            named = 1 if args[0] == "files" else 2
            args = (*args[:named], "--max-files", "100", "--max-bytes", "9999", *args[named:])
        if args[0] == "attach":
            args = (*args, "--spec", f"{args[1]}.json")
        done = subprocess.run(
            [sys.executable, str(SOURCES / script), *args],
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().splitlines()

    def spec(
        self, name: str, *commands: dict[str, Any], deadline_s: float = 60, seal: str = ""
    ) -> None:
        content = {"commands": commands, "deadline_s": deadline_s, "seal": seal}
        (self.home / f"{name}.json").write_text(json.dumps(content))

    def job(self, *commands: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Run a job to its end; give its feed and its end."""
        self.spec("j", *commands)
        lines = self.run("attach", "j")
        assert lines[-1].startswith("! ")
        feed = [json.loads(line.split(" ", 2)[2]) for line in lines if line.startswith("= ")]
        return feed, json.loads(lines[-1][2:])

    def log(self, name: str) -> bytes:
        return (self.home / ".autocoder" / "jobs" / "j" / f"{name}.log").read_bytes()


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def shell(command: str, name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "argv": ["/bin/bash", "-c", command], **fields}


def python(source: str, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "argv": [sys.executable, "-c", source], **fields}


def test_commands_run_in_order_and_their_ends_are_told(sandbox: Sandbox) -> None:
    feed, end = sandbox.job(shell("pwd", "first"), shell("exit 3", "second"))
    assert [(e["event"], e["name"]) for e in feed] == [
        ("command_started", "first"),
        ("command_ended", "first"),
        ("command_started", "second"),
        ("command_ended", "second"),
    ]
    assert [c["exit_code"] for c in end["commands"]] == [0, 3]
    assert sandbox.log("first").decode().strip() == str(sandbox.home / "project")


def test_a_required_command_that_fails_ends_the_job(sandbox: Sandbox) -> None:
    _, end = sandbox.job(shell("false", "install", required=True), shell("true", "test"))
    assert [c["name"] for c in end["commands"]] == ["install"]


def test_of_many_callers_one_starts_the_job_and_all_hear_of_it(sandbox: Sandbox) -> None:
    sandbox.spec("j", shell("echo ran >> ../count; sleep 0.3"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: sandbox.run("attach", "j"), range(8)))
    assert (sandbox.home / "count").read_text() == "ran\n"
    assert len({answer[-1] for answer in answers}) == 1
    jobs = sandbox.home / ".autocoder" / "jobs"
    assert [path.name for path in jobs.iterdir()] == ["j"]


def test_a_follower_goes_on_where_the_last_one_stopped(sandbox: Sandbox) -> None:
    sandbox.spec("j", shell(r"printf 'a\n\xff\xfe bad\nc\n'", feed=True))
    first = sandbox.run("attach", "j")
    offsets = [int(line.split(" ")[1]) for line in first if line.startswith("= ")]
    assert offsets == [2, 9, 11]
    again = sandbox.run("attach", "j", "--offset", str(offsets[1]))
    assert [line for line in again if line.startswith("= ")] == ["= 11 c"]


def test_the_prompt_is_on_stdin_and_stdin_ends(sandbox: Sandbox) -> None:
    sandbox.job(shell("cat", stdin="long prompt é"))
    assert sandbox.log("c").decode() == "long prompt é"


@pytest.mark.parametrize(
    ("command", "clock", "reason"),
    [
        (shell("sleep 60"), {"timeout_s": 0.3}, "timed_out"),
        (shell("echo hello; sleep 60"), {"silence_s": 0.3}, "silent"),
        (
            shell("""echo '{"type":"result"}'; while :; do echo "{}"; sleep 0.1; done"""),
            {"linger_s": 0.3, "feed": True},
            "lingered",
        ),
    ],
)
def test_a_clock_ends_a_command(
    sandbox: Sandbox, command: dict[str, Any], clock: dict[str, Any], reason: str
) -> None:
    _, end = sandbox.job({**command, **clock})
    assert end["commands"][0]["reason"] == reason


def test_a_command_that_ignores_sigterm_is_killed_with_its_children(sandbox: Sandbox) -> None:
    stubborn = "import os,signal,time; signal.signal(15, signal.SIG_IGN); os.fork(); time.sleep(99)"
    _, end = sandbox.job(python(stubborn, timeout_s=0.3))
    assert end["commands"][0]["exit_code"] == -signal.SIGKILL


def test_what_a_command_leaves_in_the_background_ends_with_it(sandbox: Sandbox) -> None:
    sandbox.job(shell("sleep 99 & echo $! > ../pid"))
    pid = int((sandbox.home / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_slips_into_a_session_of_its_own_is_told_and_ended(sandbox: Sandbox) -> None:
    slips = (
        "setsid -f bash -c 'echo $$ > ../pid; exec sleep 99' </dev/null >/dev/null 2>&1; sleep 0.3"
    )
    _, end = sandbox.job(shell(slips, "first"), shell("true", "second"))
    assert [command["left"] for command in end["commands"]] == [1, 0]
    with pytest.raises(ProcessLookupError):
        os.kill(int((sandbox.home / "pid").read_text()), 0)


def test_what_ends_by_itself_was_not_left_behind(sandbox: Sandbox) -> None:
    _, end = sandbox.job(shell("setsid -f sleep 0.2 </dev/null >/dev/null 2>&1"))
    assert end["commands"][0]["left"] == 0


def test_a_command_that_does_not_exist_is_said(sandbox: Sandbox) -> None:
    _, end = sandbox.job({"name": "c", "argv": ["no-such-command"]})
    assert end["commands"][0]["reason"] == "not_started"
    assert b"no-such-command" in sandbox.log("c")


def test_a_large_log_keeps_head_and_tail_only(sandbox: Sandbox) -> None:
    sandbox.job(python("print('begin'); [print('x' * 1000) for _ in range(20000)]; print('end')"))
    log = sandbox.log("c")
    assert len(log) < 1_200_000
    assert log.startswith(b"begin")
    assert log.endswith(b"end\n")
    assert b"bytes left out" in log


def test_a_feed_without_end_is_cut_and_its_result_is_not(sandbox: Sandbox) -> None:
    flood = f"for _ in range(40): print('x' * {2 * LINE_CAP})\nprint('{{\"type\": \"result\"}}')"
    sandbox.spec("j", python(flood, feed=True))
    *said, result, _ = sandbox.run("attach", "j")
    assert (sandbox.home / ".autocoder" / "jobs" / "j" / "feed").stat().st_size < FEED_CAP + 100
    assert result.endswith(' {"type": "result"}')
    assert max(map(len, said)) < LINE_CAP + 100


def test_a_dead_supervisor_is_noticed(sandbox: Sandbox) -> None:
    sandbox.spec("j", shell("sleep 60"))
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(sandbox.run, "attach", "j")
        pid_file = sandbox.home / ".autocoder" / "jobs" / "j" / "pid"
        child = wait_for_child(pid_file)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        end = json.loads(follower.result()[-1][2:])
        os.kill(child, signal.SIGKILL)
    assert end["error"] == "the job's supervisor died"


def test_a_job_can_be_stopped(sandbox: Sandbox) -> None:
    sandbox.spec("j", shell("sleep 60"))
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(sandbox.run, "attach", "j")
        child = wait_for_child(sandbox.home / ".autocoder" / "jobs" / "j" / "pid")
        sandbox.run("stop", "j")
        end = json.loads(follower.result()[-1][2:])
    assert end["error"] == "stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def wait_for_child(pid_file: Path) -> int:
    """The supervisor's command, once it runs."""
    while True:
        if pid_file.exists() and (pid := pid_file.read_text()):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children:
                return int(children[0])
        time.sleep(0.01)


def test_project_and_session_are_packed_and_restored(sandbox: Sandbox, tmp_path: Path) -> None:
    project = sandbox.home / "project"
    (project / "src").mkdir()
    (project / "src" / "a.py").write_text("1")
    (project / "run.sh").write_text("#!/bin/sh")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("src/a.py")
    (project / "node_modules" / "dep").mkdir(parents=True)
    (project / "node_modules" / "dep" / "big.js").write_text("x")
    session = sandbox.home / ".claude" / "projects" / "p" / "s.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("{}")

    (answer,) = sandbox.run("pack", ".autocoder/c.tar.gz", "--leave-out", "node_modules")
    assert json.loads(answer)["files"] == 3

    (tmp_path / "other").mkdir()
    other = Sandbox(tmp_path / "other")
    archive = other.home / ".autocoder" / "c.tar.gz"
    archive.write_bytes((sandbox.home / ".autocoder" / "c.tar.gz").read_bytes())
    other.run("unpack", ".autocoder/c.tar.gz")
    assert (other.home / "project" / "src" / "a.py").read_text() == "1"
    assert (other.home / "project" / "run.sh").stat().st_mode & 0o100
    assert (other.home / "project" / "link").is_symlink()
    assert not (other.home / "project" / "node_modules").exists()
    assert (other.home / ".claude" / "projects" / "p" / "s.jsonl").exists()


def test_too_large_a_project_is_not_packed(sandbox: Sandbox) -> None:
    (sandbox.home / "project" / "a").write_bytes(b"x" * 1000)
    (answer,) = sandbox.run("pack", "c.tar.gz", "--max-bytes", "999")
    assert json.loads(answer) == {"error": "too_large", "files": 1, "bytes": 1000}
    assert not (sandbox.home / "c.tar.gz").exists()


def test_files_are_listed_without_what_tools_make(sandbox: Sandbox) -> None:
    cache = ("target/CACHEDIR.TAG", "target/debug")  # cargo's, by the tag that it puts there
    for name in ("a.py", "__pycache__/a.pyc", "pkg/b.py", "x.egg-info/PKG-INFO", *cache):
        path = sandbox.home / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    (answer,) = sandbox.run("files", "--leave-out", "__pycache__,*.egg-info")
    assert sorted(json.loads(answer)) == ["a.py", "pkg/b.py"]


def test_an_observer_gets_a_key_that_is_told_when_all_is_over(sandbox: Sandbox) -> None:
    show = "import sys; print(sys.stdin.read())"
    feed, end = sandbox.job(python(show, observed=True), {**shell("true"), "name": "other"})
    (ended, other) = end["commands"]
    assert json.loads(sandbox.log("c")) == ended["report"]
    assert other["report"] is None
    assert ended["report"]["key"] not in json.dumps(feed)
    assert ended["report"]["key"] not in (sandbox.jobs / "j" / "spec.json").read_text()


def test_an_end_is_sealed_and_what_a_job_runs_finds_no_seal(sandbox: Sandbox) -> None:
    look = "cat ~/*.json ~/.autocoder/jobs/j/*.json /proc/$PPID/mem /proc/$PPID/environ; true"
    sandbox.spec("j", shell(look), seal="SEALED")
    end = json.loads(sandbox.run("attach", "j")[-1][2:])
    assert end["commands"][0]["exit_code"] == 0
    assert b'"deadline_s"' in sandbox.log("c")
    assert b"SEALED" not in sandbox.log("c")
    body = json.dumps({k: end[k] for k in ("commands", "error")}, sort_keys=True).encode()
    assert end["seal"] == hmac.new(b"SEALED", body, hashlib.sha256).hexdigest()


def test_observers_are_put_back_before_every_command(sandbox: Sandbox) -> None:
    observer = sandbox.home / ".autocoder" / "observer.py"
    observer.write_text("ours")
    for spoil in ("echo theirs > {}", "rm {}", "rm {0}; mkdir -p {0}/x", "ln -sf ~/other {}"):
        sandbox.job(shell(spoil.format(observer), "spoil"), shell(f"cat {observer}"))
        assert sandbox.log("c") == b"ours"
        shutil.rmtree(sandbox.jobs)
    assert not (sandbox.home / "other").exists()


def test_tools_say_their_versions(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sandbox.home / "bin"
    folder.mkdir()
    scripts = {"tool1": "echo tool 1.2.3", "tool2": "exit 1", "tools": "echo no"}
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "tool3").write_text("not executable")
    monkeypatch.setenv("PATH", f"{folder}:/nowhere:{os.environ['PATH']}")
    (answer,) = sandbox.run("tools", r"tool\d", "--question=--version")
    assert json.loads(answer) == {"tool1": "tool 1.2.3\n"}


def test_a_packed_archive_is_a_plain_tar(sandbox: Sandbox) -> None:
    (sandbox.home / "project" / "a").write_text("1")
    sandbox.run("pack", "c.tar.gz")
    with tarfile.open(sandbox.home / "c.tar.gz") as tar:
        assert tar.getnames() == ["project/a"]


def test_all_commands_together_have_one_deadline(sandbox: Sandbox) -> None:
    commands = [{**shell("sleep 30"), "name": name} for name in ("a", "b", "c")]
    sandbox.spec("j", *commands, deadline_s=1)
    end = json.loads(sandbox.run("attach", "j")[-1][2:])
    assert [(c["name"], c["reason"]) for c in end["commands"]] == [("a", "timed_out")]


def test_a_reader_of_the_last_archive_is_not_disturbed_by_the_next_one(sandbox: Sandbox) -> None:
    (sandbox.home / "project" / "a.txt").write_text("a")
    sandbox.run("pack", "c.tar.gz")
    with (sandbox.home / "c.tar.gz").open("rb") as reader:
        before = reader.read(10)
        (sandbox.home / "project" / "b.txt").write_text("b" * 5000)
        sandbox.run("pack", "c.tar.gz")
        archive = io.BytesIO(before + reader.read())
    with tarfile.open(fileobj=archive) as packed:
        assert packed.getnames() == ["project/a.txt"]
    assert [p.name for p in sandbox.home.glob("c.tar*")] == ["c.tar.gz"]


def test_whatever_is_packed_can_be_extracted(sandbox: Sandbox) -> None:
    """The packer's caps and the extractor's agree, also at the edge and with a session."""
    caps = Caps(members=100, bytes=9999)
    for number in range(98):
        (sandbox.home / "project" / str(number)).write_text("x" * 100)
    session = sandbox.home / ".claude" / "projects" / "deep" / "er"
    session.mkdir(parents=True)
    (session / "s.jsonl").write_text("x" * 199)
    (sandbox.home / "project" / ("long" * 30)).write_text("")
    assert "error" not in json.loads(sandbox.run("pack", "c.tar.gz")[0])
    with (sandbox.home / "c.tar.gz").open("rb") as archive:
        assert len(list(project_files(archive, caps))) == 99
    (session / "t.jsonl").write_text("x")
    assert json.loads(sandbox.run("pack", "c.tar.gz")[0])["error"] == "too_large"
