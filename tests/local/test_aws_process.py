"""The server's life: however it ends, nothing that it started outlives it."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autocoder.local.aws.functions import Function
from autocoder.local.aws.processes import ProcessPool, UnsupportedPlatformError, Zygote
from tests.local.aws_lab import Lab, Template, eventually

HANG = """
    import subprocess, time
    def handler(event, context):
        child = subprocess.Popen(["sleep", "600"])
        print("started", flush=True)
        time.sleep(600)
"""
WAIT = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}}


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Lab]:
    """A server in the middle of an invocation and of a long Wait."""
    lab = Lab(tmp_path)
    template = Template()
    template.function("Hang", HANG, Timeout=600)
    template.machine("Machine", WAIT)
    names = lab.deploy(template)
    lab.client("stepfunctions").start_execution(stateMachineArn=names["Machine"])
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lab.invoke, names["Hang"])
        log = lab.state / "logs" / "Hang.log"
        eventually(lambda: log.exists() and "started" in log.read_text())
        yield lab
        lab.close()


def _terminate(lab: Lab) -> None:
    lab.process.terminate()


def _interrupt(lab: Lab) -> None:
    lab.process.send_signal(signal.SIGINT)


def _end_input(lab: Lab) -> None:
    assert lab.process.stdin is not None
    lab.process.stdin.close()


def _kill(lab: Lab) -> None:
    lab.process.kill()


@pytest.mark.parametrize(
    ("end", "status"),
    [(_terminate, 0), (_interrupt, 0), (_end_input, 0), (_kill, -signal.SIGKILL)],
)
def test_nothing_outlives_the_server(busy: Lab, end: Callable[[Lab], None], status: int) -> None:
    children = _descendants(busy.process.pid)
    assert len(children) >= 3, "the zygote, the function, and what the function started"

    end(busy)

    assert busy.process.wait(10) == status
    eventually(lambda: not [pid for pid in children if _runs(pid)])


def test_at_most_so_many_processes_run_and_further_invocations_wait(tmp_path: Path) -> None:
    lab = Lab(tmp_path, env={"AUTOCODER_LAMBDA_PROCESSES": "2"})
    template = Template()
    code = (
        "import os, time\ndef handler(event, context):\n    time.sleep(0.2)\n    return os.getpid()"
    )
    for name in ("One", "Two"):
        template.function(name, code)
    names = lab.deploy(template)

    with ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(lab.invoke, names[n]) for n in ("One", "Two") * 3]
        answers = [call.result() for call in calls]

    assert not [answer for answer, failed in answers if failed]
    assert len(_descendants(lab.process.pid)) <= 1 + 2 + 1, "one may still be ending"
    lab.close()


def test_an_idle_process_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocoder.local.aws.processes.IDLE_SECONDS", 0.2)
    (tmp_path / "app.py").write_text("import os\ndef handler(event, context): return os.getpid()")
    zygote = Zygote(tmp_path / "zygote.log")
    pool = ProcessPool(zygote, tmp_path, limit=1, extra_env=None)
    function = Function(
        arn="arn:f",
        name="f",
        version="1",
        label="f",
        handler="app.handler",
        runtime="python3.13",
        timeout=10,
        memory=128,
        region="us-east-1",
        task_root=tmp_path,
    )

    pid = int(pool.run(function, b"{}").payload)

    eventually(lambda: not _runs(pid))
    zygote.close()


def test_without_awslambdaric_the_reason_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(UnsupportedPlatformError, match="published for Linux only"):
        Zygote(tmp_path / "log")


def _descendants(pid: int) -> set[int]:
    table = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
    ).stdout
    parents = [tuple(map(int, line.split())) for line in table.splitlines()]
    found = {pid}
    while more := {child for child, parent in parents if parent in found} - found:
        found |= more
    return found - {pid}


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # a zombie is gone; only its parent has not looked
