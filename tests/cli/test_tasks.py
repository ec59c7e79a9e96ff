"""The commands on tasks, against the shared local cloud: each as people call it."""

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from autocoder.cli.download import inside, parts_of
from autocoder.cli.problems import UsageError
from autocoder.local.assembly import ROOT
from autocoder.local.cloud import LocalCloud
from autocoder.record import TaskRecord, TaskRow
from tests.cli.conftest import AUTOCODER, Caller
from tests.workflow.support import ended, feed, send, shipped, task

DONE, REJECTED, SLOW = "cli-done", "cli-rejected", "cli-slow"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module", autouse=True)
def tasks(cloud: LocalCloud) -> None:
    """One task that needed a fix, one whose message was not accepted."""
    send(cloud, shipped(ROOT / "scenarios" / "fix-loop", DONE))
    cloud.send(json.dumps({"task_id": REJECTED, "specification": "x", "colour": "blue"}))
    ended(cloud, DONE)
    ended(cloud, REJECTED)


def copy(cloud: LocalCloud, task_id: str, *, objects: bool = True) -> None:
    """Make a second task of the one that is done, to be spoilt."""
    table, s3, bucket = cloud.table("TasksTable"), cloud.client("s3"), cloud.outputs["BucketName"]
    record = table.get_item(Key={"task_id": DONE})["Item"]
    result = {**record["result"], "prefix": f"tasks/{task_id}/"}
    table.put_item(Item={**record, "task_id": task_id, "result": result})
    found = s3.list_objects_v2(Bucket=bucket, Prefix=f"tasks/{DONE}/")["Contents"]
    for key in [item["Key"] for item in found] if objects else []:
        target = key.replace(f"tasks/{DONE}/", f"tasks/{task_id}/")
        s3.copy_object(Bucket=bucket, Key=target, CopySource={"Bucket": bucket, "Key": key})


def put(cloud: LocalCloud, task_id: str, name: str, body: bytes) -> None:
    """Write over one object of a task."""
    key = f"tasks/{task_id}/{name}"
    cloud.client("s3").put_object(Bucket=cloud.outputs["BucketName"], Key=key, Body=body)


def in_terminal(caller: Caller, *args: str, width: int = 100, **variables: str) -> str:
    """What a command prints to a terminal of this width."""
    terminal, inside_it = pty.openpty()
    size = {"COLUMNS": str(width), "LINES": "30", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [str(AUTOCODER), *args],
        cwd=ROOT,
        env={**caller.environment, **size, **variables},
        stdin=inside_it,
        stdout=inside_it,
        stderr=inside_it,
    )
    os.close(inside_it)
    said = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how a pseudo-terminal says that it is over
            break
        said += data
    os.close(terminal)
    process.wait()
    return said.decode().replace("\r\n", "\n")


def test_status_shows_a_record_and_json_has_its_documented_fields(caller: Caller) -> None:
    shown = caller.call("status", DONE)
    assert shown.returncode == 0
    assert re.search(r"^status +SUCCEEDED, iteration 2$", shown.stdout, re.MULTILINE)
    assert "✓ test" in shown.stdout
    assert f"autocoder download {DONE}" in shown.stdout
    record = json.loads(caller.call("status", DONE, "--json").stdout)
    TypeAdapter(TaskRecord).validate_python(record, strict=True)
    assert (record["status"], record["result"]["files"]) == ("SUCCEEDED", 3)
    rejected = caller.call("status", REJECTED)
    assert rejected.returncode == 0  # it could be shown
    assert "message_invalid: colour: is not a known field" in rejected.stdout


def test_nothing_in_a_record_is_left_out_of_its_json(caller: Caller, cloud: LocalCloud) -> None:
    for task_id in (DONE, REJECTED):
        assert json.loads(caller.call("status", task_id, "--json").stdout) == task(cloud, task_id)


def test_list_is_newest_first_and_pages_miss_nothing(caller: Caller) -> None:
    everything = json.loads(caller.call("list", "--all", "--json").stdout)
    TypeAdapter(list[TaskRow]).validate_python(everything, strict=True)
    assert {DONE, REJECTED} <= {row["task_id"] for row in everything}
    assert everything == sorted(
        everything, key=lambda row: (row["created_at"], row["task_id"]), reverse=True
    )
    paged: list[Any] = []
    after: list[str] = []
    while True:
        page = caller.call("list", "--limit", "1", "--json", *after)
        paged += json.loads(page.stdout)
        more = re.search(r"--after (\S+),", page.stderr)
        if not more:
            break
        after = ["--after", more[1]]
    assert paged == everything


def test_list_by_status(caller: Caller) -> None:
    rejected = caller.call("list", "--status", "rejected", "--all")
    assert REJECTED in rejected.stdout
    assert DONE not in rejected.stdout
    both = caller.call("list", "--status", "rejected", "--status", "SUCCEEDED", "--all").stdout
    assert REJECTED in both
    assert DONE in both
    assert "there are queued, running, succeeded" in caller.refused("list", "--status", "blue")
    assert "must be CREATED_AT/ID" in caller.refused("list", "--after", "yesterday")
    nothing = caller.call("list", "--after", "2020-01-01T00:00:00.000Z/a")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "There are no such tasks behind that in the local cloud." in nothing.stderr


def test_watch_ends_with_the_tasks_and_says_how_by_its_code(caller: Caller) -> None:
    done = caller.call("watch", DONE)
    assert done.returncode == 0
    for said in ("VerifyClean", "test: 2 of 3 failed, ", "SUCCEEDED in iteration 2"):
        assert said in done.stdout
    assert "\x1b" not in done.stdout
    both = caller.call("watch", DONE, REJECTED, "--json")
    assert both.returncode == 1
    records = json.loads(both.stdout)
    assert [record["status"] for record in records] == ["SUCCEEDED", "REJECTED"]
    assert f"{REJECTED}: message_invalid" in both.stderr
    assert "there is no task nobody" in caller.refused("watch", DONE, "nobody")


def slowly(cloud: LocalCloud, task_id: str) -> None:
    """Begin a task whose agent waits for its second answer."""
    scenario = shipped(ROOT / "scenarios" / "first-try", task_id)
    waits = scenario.runs[0][1].model_copy(update={"delay_s": 600})
    runs = [[scenario.runs[0][0], waits, *scenario.runs[0][2:]]]
    send(cloud, scenario.model_copy(update={"runs": runs}))
    while not any(entry["kind"] == "tool" for entry in feed(cloud, task_id)):
        time.sleep(0.1)


def test_ctrl_c_ends_the_watching_and_cancel_the_task(caller: Caller, cloud: LocalCloud) -> None:
    slowly(cloud, SLOW)
    command = [str(AUTOCODER), "watch", SLOW]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=caller.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout
    for line in process.stdout:
        if " claude " in line:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.startswith("No longer watching; the work goes on. `autocoder watch cli-slow`")
    assert "claude  Write greet.py" in caller.call("logs", SLOW).stdout  # from the feed
    assert "is RUNNING: `autocoder watch cli-slow` waits" in caller.refused("files", SLOW)
    assert "only a task that FAILED" in caller.refused("retry", SLOW)

    with subprocess.Popen(
        [str(AUTOCODER), "logs", SLOW, "--follow"],
        cwd=ROOT,
        env=caller.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout
        first = follower.stdout.readline()
        cancelled = caller.call("cancel", SLOW, "--wait")
        assert (cancelled.returncode, cancelled.stdout) == (0, "cli-slow is CANCELLED.\n")
        rest = follower.stdout.read()  # not communicate: it would miss what was read ahead
    assert follower.returncode == 1
    assert "claude  Write greet.py" in first + rest
    assert rest.endswith("cli-slow is CANCELLED\n")
    assert "has ended already: it is CANCELLED" in caller.refused("cancel", SLOW)


def test_retry_sends_a_message_of_its_own(caller: Caller, cloud: LocalCloud) -> None:
    assert "is SUCCEEDED: only a task that FAILED" in caller.refused("retry", DONE)
    copy(cloud, "cli-failed", objects=False)
    cloud.table("TasksTable").update_item(
        Key={"task_id": "cli-failed"},
        UpdateExpression="SET #s = :failed",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":failed": "FAILED"},
    )
    asked = caller.call("retry", "cli-failed", "--json")
    assert asked.returncode == 0, asked.stderr
    sent = json.loads(asked.stdout)
    assert sent["task_id"] == "cli-failed"
    assert re.fullmatch(r"[0-9a-f-]{36}", sent["message_id"])


def test_logs_of_an_iteration_and_of_one_check(caller: Caller) -> None:
    first = caller.call("logs", DONE, "--iteration", "1").stdout
    assert "claude  > Write slugs.py" in first
    assert "claude  ended: success, 4 turns" in first
    assert "── test\n" in first
    assert "2 failed, 1 passed" in first
    last = caller.call("logs", DONE).stdout
    assert "claude  > Edit slugs.py" in last
    assert "── clean-room-test\n" in last
    assert "3 passed" in caller.call("logs", DONE, "--check", "test").stdout
    assert "there is build, clean-room-build" in caller.refused("logs", DONE, "--check", "x")
    assert "there is no iteration 3" in caller.refused("logs", DONE, "--iteration", "3")
    assert "choose" in caller.refused("logs", DONE, "--check", "test", "--follow")
    followed = caller.call("logs", DONE, "--follow", "--iteration", "1")
    assert followed.returncode == 0
    assert followed.stdout.index("2 failed, 1 passed") < followed.stdout.index("Edit slugs.py")


def test_files_and_show(caller: Caller, cloud: LocalCloud) -> None:
    listed = caller.call("files", DONE)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [
        "README.md",
        "slugs.py",
        "test_slugs.py",
    ]
    files = json.loads(caller.call("files", DONE, "--json").stdout)
    assert set(files[0]) == {"path", "bytes", "sha256"}
    shown = caller.call("show", DONE, "slugs.py").stdout
    assert len(shown.encode()) == files[1]["bytes"]
    assert json.loads(caller.call("show", DONE, "result.json").stdout)["task_id"] == DONE
    assert "has no file 'x?y'" in caller.refused("show", DONE, "x\x1by")
    assert "REJECTED and has no result (message_invalid" in caller.refused("files", REJECTED)


def test_a_hostile_file_is_raw_in_a_pipe_and_harmless_in_a_terminal(
    caller: Caller, cloud: LocalCloud
) -> None:
    hostile = b"a\x1b[2Jb\x07\x9b\tc\xff\rd\n"
    put(cloud, DONE, "hostile.txt", hostile)
    piped = subprocess.run(
        [str(AUTOCODER), "show", DONE, "hostile.txt"],
        cwd=ROOT,
        env=caller.environment,
        capture_output=True,
        timeout=60,
    )
    assert piped.stdout == hostile
    shown = in_terminal(caller, "show", DONE, "hostile.txt")
    assert shown == "a\\x1b[2Jb\\x07\ufffd\tc\ufffd\\rd\n"


def test_a_download_is_whole_verified_and_taken_up_again(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    target = tmp_path / "result"
    first = json.loads(caller.call("download", DONE, str(target), "--json").stdout)
    assert first["there"] == []
    verified = caller.call("verify", str(target))
    assert verified.returncode == 0, verified.stdout
    assert not list(target.rglob(".autocoder*"))

    (target / "files" / "slugs.py").unlink()
    (target / ".autocoder-download").mkdir()  # as a killed one leaves it
    again = json.loads(caller.call("download", DONE, str(target), "--json").stdout)
    assert again["new"] == [str(target / "files" / "slugs.py")]
    assert len(again["there"]) == len(first["new"]) - 1

    for name in ("files/slugs.py", "iterations/01/prompt.md"):  # with a known hash, and without
        (target / name).write_text("mine")
        said = caller.refused("download", DONE, str(target))
        assert said.startswith(f"{target}/{name} is there with other content: ")
        assert (target / name).read_text() == "mine"
        forced = caller.call("download", DONE, str(target), "--force", "--json")
        assert json.loads(forced.stdout)["new"] == [str(target / name)]

    project = tmp_path / "project"
    assert caller.call("download", DONE, str(project), "--only", "files").returncode == 0
    assert sorted(file.name for file in project.iterdir()) == [
        "README.md",
        "slugs.py",
        "test_slugs.py",
    ]


def test_what_was_changed_in_the_bucket_is_not_kept(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    copy(cloud, "cli-changed")
    put(cloud, "cli-changed", "files/slugs.py", b"import os  # not what was signed")
    done = caller.call("download", "cli-changed", str(tmp_path / "d"), "--only", "files")
    assert done.returncode == 1
    assert done.stderr.startswith(f"MISMATCH: {tmp_path}/d/slugs.py is not what was stored")
    assert not (tmp_path / "d" / "slugs.py").exists()


def test_what_manifest_and_bucket_do_not_both_have_is_a_mismatch(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    copy(cloud, "cli-missing")
    bucket = cloud.outputs["BucketName"]
    cloud.client("s3").delete_object(Bucket=bucket, Key="tasks/cli-missing/files/slugs.py")
    done = caller.call("download", "cli-missing", str(tmp_path / "d"))
    assert done.returncode == 1
    assert done.stderr == "MISMATCH: files/slugs.py is in the manifest, and not in the bucket.\n"
    copy(cloud, "cli-more")
    put(cloud, "cli-more", "files/old.py", b"")
    done = caller.call("download", "cli-more", str(tmp_path / "e"))
    assert done.returncode == 1
    assert done.stderr == "MISMATCH: files/old.py is in the bucket, and not in the manifest.\n"


def test_one_download_at_a_time_goes_into_a_folder(tmp_path: Path) -> None:
    with parts_of(tmp_path), pytest.raises(UsageError, match="under way"), parts_of(tmp_path):
        pass


def test_errors_that_quote_a_sandbox_can_not_move_the_cursor(
    caller: Caller, cloud: LocalCloud
) -> None:
    failure = {"code": "agent_failed", "message": "said \x1b[2J\x9b", "hint": "h"}
    cloud.table("TasksTable").put_item(
        Item={
            **{"task_id": "cli-escape", "status": "FAILED", "attempt": 1, "iteration": 1},
            **{"created_at": "2026-01-01T00:00:00.000Z", "failure": failure},
        }
    )
    said = caller.refused("download", "cli-escape")
    assert "\x1b" not in said and "\x9b" not in said


def test_hostile_names_and_links_lead_nowhere(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    for name in ("../x", "a/../../x", "/x", "a//x", ".", "a\x1b[2J", ".autocoder-download/x", ""):
        with pytest.raises(UsageError, match="nothing was written"):
            inside(tmp_path, tmp_path, name)
    copy(cloud, "cli-hostile")
    put(cloud, "cli-hostile", "logs/a\x1b[2Jb", b"")
    said = caller.refused("download", "cli-hostile", str(tmp_path / "d"))
    assert said.startswith("logs/a?[2Jb leads out of ")
    assert not (tmp_path / "d").exists()

    elsewhere, target = tmp_path / "elsewhere", tmp_path / "linked"
    elsewhere.mkdir()
    target.mkdir()
    (target / "files").symlink_to(elsewhere)
    assert "leads out of" in caller.refused("download", DONE, str(target), "--force")
    assert list(elsewhere.iterdir()) == []


def test_an_expired_result_is_a_sentence(caller: Caller, cloud: LocalCloud, tmp_path: Path) -> None:
    copy(cloud, "cli-expired", objects=False)
    for command in (["files"], ["download"]):
        said = caller.refused(*command, "cli-expired")
        assert said.startswith("the result of cli-expired has expired: the local cloud keeps ")
    watched = caller.call("watch", "cli-expired")
    assert "what it made has expired" in watched.stdout


@pytest.mark.parametrize("command", [["list", "--all"], ["status", DONE], ["watch", DONE]])
def test_a_terminal_of_60_columns(caller: Caller, cloud: LocalCloud, command: list[str]) -> None:
    copy(cloud, "cli-" + "long" * 12, objects=False)  # too long for one line with the rest
    said = in_terminal(caller, *command, width=60)
    plain = ESCAPE.sub("", said)
    assert DONE in plain
    if command[0] != "watch":  # its lines are for scrolling back, and wrap
        assert max(map(len, plain.splitlines())) <= 60
        assert "\x1b[32mSUCCEEDED\x1b[0m" in said


@pytest.mark.parametrize("command", [["list"], ["status", DONE]])
def test_no_colour(caller: Caller, command: list[str]) -> None:
    assert "\x1b" not in in_terminal(caller, *command, NO_COLOR="1")
    assert "\x1b" not in in_terminal(caller, *command, TERM="dumb")
    assert "\x1b" not in caller.call(*command).stdout


def test_shells_complete_commands_and_options(caller: Caller) -> None:
    def completed(words: str, number: int) -> list[str]:
        asked = {"_AUTOCODER_COMPLETE": "complete_bash", "COMP_WORDS": words}
        caller.environment |= {**asked, "COMP_CWORD": str(number)}
        return caller.call().stdout.split()

    assert completed("autocoder st", 1) == ["status"]
    assert completed("autocoder local ", 2) == ["up", "status", "down"]
    assert "--iteration" in completed("autocoder logs --it", 2)


def test_no_command_is_summed_up_in_half_a_sentence(caller: Caller) -> None:
    for help_of in ([], ["local"], ["queue"], ["sandboxes"]):
        assert "..." not in caller.call(*help_of, "--help").stdout.partition("Commands:")[2]


def test_logs_and_verify_speak_json(caller: Caller, tmp_path: Path) -> None:
    lines = caller.call("logs", DONE, "--json").stdout.splitlines()
    assert any("Edit slugs.py" in json.loads(line)["line"] for line in lines)
    assert "choose" in caller.refused("logs", DONE, "--json", "--check", "test")
    folder = tmp_path / "d"
    assert caller.call("download", DONE, str(folder)).returncode == 0
    facts = json.loads(caller.call("verify", str(folder), "--json").stdout)
    assert (facts["verified"], facts["status"], facts["allowed"]) == (True, "SUCCEEDED", [])
    (folder / "files" / "slugs.py").write_text("")
    changed = caller.call("verify", str(folder), "--json")
    assert changed.returncode == 1
    assert json.loads(changed.stdout)["mismatch"].startswith("files/slugs.py: ")


def test_version(caller: Caller) -> None:
    assert re.fullmatch(r"autocoder \d+\.\d+\.\d+\n", caller.call("--version").stdout)
