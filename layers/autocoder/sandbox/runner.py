"""Runs jobs inside the sandbox. Standard library only: it is uploaded as this one file.

A job is a list of commands, each a process group of its own. Everything about it lies in a folder:

    jobs/<name>/spec.json   what to run
    jobs/<name>/feed        JSON lines: the agent's events, or the commands' starts and ends
    jobs/<name>/<cmd>.log   a command's output, capped: its head and its tail
    jobs/<name>/lock        held by the supervisor as long as it lives
    jobs/<name>/exit.json   written last: the job has ended, and how

Files are the truth; `attach` only tells of them as they change. It prints lines that begin with

    "= OFFSET LINE"  a line of the feed, and the byte at which the next one begins
    "."              nothing new, still alive (once a second)
    "! JSON"         the job has ended
"""

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

HOME = Path.home()
STATE = HOME / ".autocoder"
PROJECT = HOME / "project"

FEED_CAP = 64 * 1024 * 1024
LINE_CAP = 1024 * 1024
LOG_HEAD = LOG_TAIL = 512 * 1024
KILL_AFTER_S = 5.0
DRAIN_S = 1.0
SETTLE_S = 1.0  # what ends by itself within it was not left behind
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


# --- starting a job, exactly once ---------------------------------------------------------------


def start(name: str, spec: str) -> None:
    """Start the job unless it is there already; of two callers, one starts it.

    The folder is made aside, with its lock held, and renamed into place: the rename is what
    decides, and a job's folder is never seen without the lock of the supervisor it belongs to.
    """
    jobs = STATE / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    if (jobs / name).exists():
        return
    try:
        content = json.loads((HOME / spec).read_text())
    except FileNotFoundError:
        if (jobs / name).exists():  # the other caller was first
            return
        raise
    seal = content.pop("seal", "")
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # what a job runs can't read our memory
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=str(jobs)))
    (aside / "spec.json").write_text(json.dumps(content))
    (aside / "feed").touch()
    lock = os.open(str(aside / "lock"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        aside.rename(jobs / name)
    except OSError:  # the other caller was first
        os.close(lock)
        shutil.rmtree(aside)
        return
    (HOME / spec).unlink(missing_ok=True)  # nor the seal from its file
    if os.fork() == 0:
        os.setsid()
        detach_stdio()
        os._exit(supervise(jobs / name, seal))
    os.close(lock)  # the supervisor's copy keeps it held


def detach_stdio() -> None:
    """Let go of the caller's pipes, or the caller would wait for the job."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def supervise(job: Path, seal: str) -> int:
    """Run the job's commands in order; one that fails and is needed ends the job.

    Its end is sealed: what a command runs could end this process and write an end of its own.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    # Whoever loses its parent becomes our child: none can slip away into a session of its own.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    (job / "pid").write_text(str(os.getpid()))
    results: list[dict[str, Any]] = []
    error = None
    try:
        spec = json.loads((job / "spec.json").read_text())
        over_at = time.monotonic() + spec["deadline_s"]
        # What a command runs could write them anew: the next one gets them as they are now.
        observers = {path: path.read_bytes() for path in STATE.glob("observer.*")}
        with (job / "feed").open("ab") as feed:
            for command in spec["commands"]:
                left_s = over_at - time.monotonic()
                if left_s <= 0:
                    break
                for path, content in observers.items():
                    put_back(path, content)
                command["timeout_s"] = min(command.get("timeout_s", left_s), left_s)
                result = Command(command, job, feed).run()
                results.append(result)
                if result["exit_code"] != 0 and command.get("required"):
                    break
    except SystemExit as stopped:
        error = str(stopped)
    except Exception as problem:  # the follower must hear of it, whatever it is
        error = f"{type(problem).__name__}: {problem}"
    end = {"commands": results, "error": error}
    body = json.dumps(end, sort_keys=True).encode()
    sealed = hmac.new(seal.encode(), body, hashlib.sha256).hexdigest()
    write_atomically(job / "exit.json", json.dumps({**end, "seal": sealed}))
    return 0


def put_back(path: Path, content: bytes) -> None:
    """Put a file of ours in its place, whatever is there: a link must not lead it elsewhere."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    aside = path.with_name(f".{secrets.token_hex(8)}")
    aside.write_bytes(content)
    aside.replace(path)


def write_atomically(path: Path, text: str) -> None:
    """Write so that a reader sees all or nothing."""
    aside = path.with_suffix(".part")
    aside.write_text(text)
    aside.replace(path)


# --- one command --------------------------------------------------------------------------------


class CappedLog:
    """Keeps the first and the last half megabyte of a command's output."""

    def __init__(self, path: Path) -> None:
        """Open the log; its tail stays in memory until the end."""
        self.file = path.open("wb")
        self.room = LOG_HEAD
        self.tail = bytearray()
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Write to the head while there is room, then keep the newest bytes."""
        head, rest = data[: self.room], data[self.room :]
        self.file.write(head)
        self.file.flush()
        self.room -= len(head)
        self.tail += rest
        if len(self.tail) > LOG_TAIL:
            self.dropped += len(self.tail) - LOG_TAIL
            del self.tail[:-LOG_TAIL]

    def close(self) -> None:
        """Put the tail behind the head, and say what is missing between them."""
        if self.dropped:
            self.file.write(f"\n[… {self.dropped} bytes left out …]\n".encode())
        self.file.write(self.tail)
        self.file.close()


def nothing(seconds: float) -> "list[Any]":
    """Wait, with nothing to read."""
    time.sleep(seconds)
    return []


class Command:
    """A command in a process group of its own, watched by up to three clocks.

    `timeout_s` is its deadline; `silence_s` how long it may say nothing; `linger_s` how long it may
    go on after the line that holds its result (an agent whose background process keeps it alive).
    """

    def __init__(self, spec: dict[str, Any], job: Path, feed: IO[bytes]) -> None:
        """Open the command's log; `feed` is shared by the job's commands."""
        self.spec = spec
        self.feed = feed
        self.as_feed = bool(spec.get("feed"))
        self.log = CappedLog(job / f"{spec['name']}.log")
        self.partial = b""
        self.began = self.heard = time.monotonic()
        self.resulted: float | None = None
        self.report: dict[str, str] | None = None
        if spec.get("observed"):
            file = job / f"{spec['name']}.{secrets.token_hex(8)}.report"
            self.report = {"path": str(file), "key": secrets.token_hex(32)}

    def run(self) -> dict[str, Any]:
        """Run to its end or to the first clock that rings."""
        self.tell({"event": "command_started", "name": self.spec["name"]})
        reason = "exited"
        left = 0
        try:
            process = self.spawn()
        except OSError as problem:
            self.log.write(f"{problem}\n".encode())
            reason, code = "not_started", 127
        else:
            try:
                reason = self.watch(process)
                left = left_behind() if reason == "exited" else 0
            finally:
                end_group(process)
                end_descendants()
            code = process.returncode
        self.log.close()
        result = {
            "name": self.spec["name"],
            "exit_code": code,
            "reason": reason,
            "seconds": round(time.monotonic() - self.began, 3),
            "left": left,
        }
        self.tell({"event": "command_ended", **result})
        # Told when all is over: who knows the key while tests run can sign a report.
        return {**result, "report": self.report}

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start it with the prompt as a file on stdin: an open, silent stdin costs the CLI 3 s.

        An observer of tests gets the key for its report through a pipe, which can be read once.
        """
        stdin: IO[bytes] | int = subprocess.DEVNULL
        if self.report:
            read_end, write_end = os.pipe()
            os.write(write_end, json.dumps(self.report).encode() + b"\n")
            os.close(write_end)
            stdin = os.fdopen(read_end, "rb")
        if "stdin" in self.spec:
            stdin = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
            stdin.write(self.spec["stdin"].encode())
            stdin.seek(0)
        try:
            return subprocess.Popen(
                self.spec["argv"],
                cwd=str(PROJECT),
                env={**os.environ, **self.spec.get("env", {})},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if self.as_feed else subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            if not isinstance(stdin, int):
                stdin.close()  # the child has its own

    def watch(self, process: "subprocess.Popen[bytes]") -> str:
        """Move its output to feed and log until it ends; then end what it left behind."""
        reason = "exited"
        ended_at: float | None = None
        with selectors.DefaultSelector() as pipes:
            for pipe in filter(None, (process.stdout, process.stderr)):
                os.set_blocking(pipe.fileno(), False)
                pipes.register(pipe, selectors.EVENT_READ)
            while pipes.get_map() or process.poll() is None:  # it may live on without output
                for key, _ in pipes.select(timeout=0.2) if pipes.get_map() else nothing(0.1):
                    self.read(key.fileobj, pipes, from_stdout=key.fileobj is process.stdout)
                if process.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > DRAIN_S:
                        break  # a child that it left behind holds the pipe
                elif rung := self.clock_rung():
                    reason = rung
                    end_group(process)
        if self.partial:
            self.feed_line(self.partial)
        return reason

    def read(self, pipe: Any, pipes: selectors.BaseSelector, *, from_stdout: bool) -> None:
        """Read what is there from one pipe."""
        data = os.read(pipe.fileno(), 65536)
        if not data:
            pipes.unregister(pipe)
            return
        self.heard = time.monotonic()
        if not (self.as_feed and from_stdout):
            self.log.write(data)
            return
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            self.feed_line(line)

    def feed_line(self, line: bytes) -> None:
        """Pass a line of the agent on; once the feed is full, only its result."""
        result = is_result(line)
        if result:
            self.resulted = time.monotonic()
        if result or self.feed.tell() + len(line) < FEED_CAP:
            self.feed.write(line + b"\n")
            self.feed.flush()

    def tell(self, event: dict[str, Any]) -> None:
        """Write an event of the runner's own into the feed, unless that is the agent's alone."""
        if self.as_feed:
            return
        self.feed.write(json.dumps(event).encode() + b"\n")
        self.feed.flush()

    def clock_rung(self) -> "str | None":
        """Say which clock has run out, if any."""
        now = time.monotonic()
        since = {"timeout_s": self.began, "silence_s": self.heard, "linger_s": self.resulted}
        names = {"timeout_s": "timed_out", "silence_s": "silent", "linger_s": "lingered"}
        for clock, start_at in since.items():
            limit = self.spec.get(clock)
            if limit is not None and start_at is not None and now - start_at > limit:
                return names[clock]
        return None


def is_result(line: bytes) -> bool:
    """Say whether a line of the agent's holds its result; the order of its fields varies."""
    if b'"result"' not in line:
        return False
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("type") == "result"


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the command's whole group: politely, so that an agent ends its children, then not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + KILL_AFTER_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                reap()  # a dead orphan would still be found
            os.killpg(process.pid, 0)  # raises when nobody is left
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def left_behind() -> int:
    """Count the processes that outlive a command which has ended by itself."""
    deadline = time.monotonic() + SETTLE_S
    while (left := descendants()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(left)


def end_descendants() -> None:
    """End what left the command's group; what is started meanwhile is found on the next round."""
    deadline = time.monotonic() + KILL_AFTER_S
    while (left := descendants()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.02)
    reap()


def descendants() -> "list[int]":
    """List the processes that live below this one."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                parents[int(stat.parent.name)] = int(parent)
    found: list[int] = []
    above = {os.getpid()}
    while above:
        above = {pid for pid, parent in parents.items() if parent in above}
        found += above
    return found


def reap() -> None:
    """Let go of orphans that have ended; only while no command runs, whose end it would take."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


# --- following and stopping a job ---------------------------------------------------------------


def attach(name: str, spec: str, offset: int) -> None:
    """Start the job if need be, then tell what happens from `offset` on until it has ended."""
    start(name, spec)
    job = STATE / "jobs" / name
    quiet_since = time.monotonic()
    with (job / "feed").open("rb") as feed:
        feed.seek(offset)
        while True:
            over = (job / "exit.json").exists() or not alive(job)  # looked at before the last read
            sent = send_lines(feed)
            if over and not sent:
                break
            if sent:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= 1:
                say(".")
                quiet_since = time.monotonic()
            if not sent:
                time.sleep(0.05)
    exit_file = job / "exit.json"
    lost = {"commands": [], "error": "the job's supervisor died"}
    say("! " + (exit_file.read_text() if exit_file.exists() else json.dumps(lost)))


def send_lines(feed: IO[bytes]) -> int:
    """Send the complete lines that are there; the offset is counted here, in bytes."""
    sent = 0
    while True:
        at = feed.tell()
        line = feed.readline()
        if not line.endswith(b"\n"):
            feed.seek(at)
            return sent
        text = line[:-1][:LINE_CAP].decode("utf-8", "replace").replace("\r", " ")
        say(f"= {feed.tell()} {text}")
        sent += 1


def alive(job: Path) -> bool:
    """Say whether the job's supervisor lives: it holds the lock as long as it does."""
    with (job / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False


def say(line: str) -> None:
    """Write one line to whoever follows."""
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def stop(name: str) -> None:
    """End the job and all its commands; its supervisor does it, so that its files tell of it."""
    job = STATE / "jobs" / name
    if not job.exists():
        return
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((job / "pid").read_text()), signal.SIGTERM)
    deadline = time.monotonic() + 2 * KILL_AFTER_S
    while alive(job) and time.monotonic() < deadline:
        time.sleep(0.02)


# --- what there is ------------------------------------------------------------------------------


def tools(pattern: str, question: str) -> None:
    """Print, as JSON, what each program on the PATH with such a name answers to `question`."""
    answers: dict[str, str] = {}
    for folder in filter(Path.is_dir, map(Path, os.environ["PATH"].split(os.pathsep))):
        for path in sorted(folder.iterdir()):
            if path.name in answers or not re.fullmatch(pattern, path.name):
                continue
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # then it is no such tool
                asked = subprocess.run(
                    [str(path), question],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=20,
                )
                if asked.returncode == 0:
                    answers[path.name] = asked.stdout.decode("utf-8", "replace")[:200]
    say(json.dumps(answers))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["attach", "stop", "tools"])
    parser.add_argument("name")
    parser.add_argument("--question", default="")
    parser.add_argument("--spec", default="")
    parser.add_argument("--offset", type=int, default=0)
    args = parser.parse_args()
    PROJECT.mkdir(parents=True, exist_ok=True)
    if args.action == "attach":
        attach(args.name, args.spec, args.offset)
    elif args.action == "tools":
        tools(args.name, args.question)
    else:
        stop(args.name)


if __name__ == "__main__":
    main()
