"""`autocoder local`: a cloud that stays, found by other commands and by any SDK."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from autocoder.local.assembly import ROOT

AUTOCODER = Path(sys.executable).with_name("autocoder")


class Place:
    """A user's state folder, and commands as that user."""

    def __init__(self, state: Path) -> None:
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state), "ANTHROPIC_API_KEY": ""}
        self.processes: list[subprocess.Popen[str]] = []

    def call(self, *args: str) -> "subprocess.CompletedProcess[str]":
        command = [str(AUTOCODER), "local", *args]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=100
        )

    def up(self, *args: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(AUTOCODER), "local", "up", *args],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout
        assert process.stdout.readline().startswith("export AWS_ENDPOINT_URL=http://127.0.0.1:")
        return process


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for process in made.processes:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_a_task_is_sent_by_boto3_alone_and_the_cloud_goes_when_it_is_told(place: Place) -> None:
    process = place.up("--port", "0")
    exports = place.call("status", "--export").stdout
    found = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
    session: Any = boto3.session.Session(
        found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"], region_name=found["AWS_REGION"]
    )
    endpoint = {"endpoint_url": found["AWS_ENDPOINT_URL"]}
    body = json.dumps({"task_id": "first-try", "specification": "x", "plan": False})
    session.client("sqs", **endpoint).send_message(
        QueueUrl=found["TASK_QUEUE_URL"], MessageBody=body
    )
    table = session.resource("dynamodb", **endpoint).Table(found["TASKS_TABLE"])
    while table.get_item(Key={"task_id": "first-try"}).get("Item", {}).get("status") != "SUCCEEDED":
        time.sleep(0.2)

    shown = place.call("status")
    assert found["AWS_ENDPOINT_URL"] in shown.stdout
    assert "first-try" in shown.stdout
    assert found["TASK_QUEUE_URL"] in shown.stdout
    assert "amazonaws.com/" not in shown.stdout
    assert json.loads(place.call("status", "--json").stdout)["only_scenarios"] is True
    assert json.loads(place.call("status", "--json").stdout)["pid"] == process.pid

    again = place.call("up", "--port", "0")
    assert again.returncode == 2
    assert "is running already" in again.stderr

    assert place.call("down").returncode == 0
    assert process.wait(timeout=60) == 0
    assert place.call("status").returncode == 1


def test_what_a_killed_one_left_deceives_nobody(place: Place) -> None:
    process = place.up("--port", "0")
    process.kill()
    process.wait()
    gone = place.call("status")
    assert (gone.returncode, "local up" in gone.stderr) == (1, True)
    assert place.call("down").returncode == 1


def kill_sandbox_server(owner: int) -> None:
    """Kill the one that is a child of this process."""
    for task in Path(f"/proc/{owner}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"autocoder.local.sandboxes" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                return
    pytest.fail("it has no sandbox server")


def test_it_ends_when_one_of_its_servers_does(place: Place) -> None:
    process = place.up("--port", "0")
    kill_sandbox_server(process.pid)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "autocoder: autocoder.local.sandboxes ended: " in said
    assert place.call("status").returncode == 1


def test_a_run_ends_when_one_of_its_servers_does(place: Place) -> None:
    process = subprocess.Popen(
        [str(AUTOCODER), "run", "--scenario", "scenarios/first-try"],
        cwd=ROOT,
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    while " isolation " not in process.stdout.readline():
        assert process.poll() is None
    kill_sandbox_server(process.pid)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "autocoder: autocoder.local.sandboxes ended: " in said


def test_a_taken_port_is_a_sentence(place: Place) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = place.call("up", "--port", str(port))
    assert done.returncode == 2
    assert f"port {port} on 127.0.0.1 can't be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_folder_that_can_not_be_made_is_a_sentence(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place.environment["XDG_STATE_HOME"] = str(tmp_path / "file")
    done = place.call("status")
    assert done.returncode == 2
    assert "XDG_STATE_HOME" in done.stderr
