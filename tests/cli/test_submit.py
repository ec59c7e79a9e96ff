"""`autocoder submit` as people call it, against the shared local cloud."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autocoder.cli.app import app
from autocoder.cli.compose import worded
from autocoder.cli.examples import FOLDER, example, names
from autocoder.cli.outgoing import CLEAN_ROOM_S, SQS_BYTES, Task
from autocoder.cli.problems import UsageError
from autocoder.cli.service import LocalService
from autocoder.cli.submit import How, batches, deliver
from autocoder.local.assembly import ROOT
from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import load
from autocoder.message import parse
from functions.verify_clean import GRACE_S
from tests.cli.conftest import AUTOCODER, Caller
from tests.cli.lab import Lab
from tests.cli.terminal import Terminal
from tests.workflow.support import ended, task

SENTENCE = "A Python module calc.py with add(a, b), and tests."


@pytest.fixture(scope="module", autouse=True)
def replayed(cloud: LocalCloud) -> None:
    """What `autocoder local up` does: a task has the scenario of its id, an example its own."""
    for name in names():
        cloud.add_scenario(load(ROOT / "scenarios" / name), name)


def message(cloud: LocalCloud, task_id: str) -> dict[str, Any]:
    """What the service was sent, once it has taken it in."""
    while not task(cloud, task_id):
        pass
    key = {"Bucket": cloud.outputs["BucketName"], "Key": f"tasks/{task_id}/message.json"}
    return dict(json.load(cloud.client("s3").get_object(**key)["Body"]))


def count(cloud: LocalCloud) -> int:
    return int(cloud.table("TasksTable").scan(Select="COUNT")["Count"])


def test_every_option_is_a_field_and_the_id_is_known_at_once(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    options = ["--id", "send-options", "--budget", "0.5", "--max-iterations", "2"]
    options += ["--model", "claude-haiku-4-5", "--environment", "python", "--priority", "high"]
    options += ["--metadata", "team=core", "--metadata", "note=a=b"]
    done = caller.call("submit", SENTENCE, *options)
    assert (done.returncode, done.stdout) == (0, "send-options\n"), done.stderr
    assert done.stderr.startswith("Sent to the local cloud. `autocoder watch send-options` shows")
    assert message(cloud, "send-options") == {
        "specification": SENTENCE,
        "task_id": "send-options",
        "limits": {"budget_usd": 0.5, "max_iterations": 2},
        "model": "claude-haiku-4-5",
        "environment": "python",
        "priority": "high",
        "metadata": {"team": "core", "note": "a=b"},
    }


def test_a_specification_comes_from_an_argument_a_file_or_standard_input(
    caller: Caller, tmp_path: Path
) -> None:
    file = tmp_path / "spec.md"
    file.write_text(SENTENCE)
    calls = [([SENTENCE], ""), (["--file", str(file)], ""), (["-"], SENTENCE), ([], SENTENCE)]
    for args, stdin in calls:
        done = caller.call("submit", *args, "--dry-run", stdin=stdin)
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert shown["specification"] == SENTENCE
        assert re.fullmatch(r"task-[0-9a-f]{10}", shown["task_id"])
        assert "Nothing was sent. It costs at most 5.00 USD for the model" in done.stderr


def test_a_whole_message_is_sent_as_it_is_with_an_id(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    file = tmp_path / "message.json"
    content = {"specification": SENTENCE, "project": {"name": "Ünser Calc!"}, "plan": False}
    file.write_text(json.dumps(content))
    sent = json.loads(caller.call("submit", "--message", str(file), "--json").stdout)
    assert re.fullmatch(r"nser-calc-[0-9a-f]{10}", sent["task_id"])
    assert re.fullmatch(r"[0-9a-f-]{36}", sent["message_id"])
    assert sent["error"] is None
    assert message(cloud, sent["task_id"]) == {**content, "task_id": sent["task_id"]}
    said = caller.refused("submit", "--message", str(file), "--budget", "1")
    assert said == "--budget goes with a specification; a message has its own field."
    file.write_text('{"task_id": "a", "action": "cancel"}')
    assert "`autocoder cancel ID`" in caller.refused("submit", "--message", str(file))


def test_dry_run_needs_no_service_and_counts_the_cost(stranger: Caller) -> None:
    args = ["submit", "--example", "hello-world", "--budget", "0.25", "--dry-run"]
    shown = json.loads(stranger.call(*args, "--json").stdout)
    assert shown["message"]["limits"] == {"max_iterations": 3, "budget_usd": 0.25}
    seconds, settings = 60 * 60 + GRACE_S, json.loads((ROOT / "cdk.json").read_text())
    sizes = settings["context"]["autocoder"]
    sandbox = sizes["sandbox_cpus"] * 0.000014 + sizes["sandbox_memory_mb"] / 1024 * 0.0000045
    assert shown["most_usd"]["model"] == 0.25
    assert shown["most_usd"]["sandbox"] == pytest.approx(seconds * sandbox, abs=1e-4)
    assert CLEAN_ROOM_S == GRACE_S


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["x", "--budget", "0"], "--budget: must be greater"),
        (["x", "--max-iterations", "51"], "--max-iterations: must be less"),
        (["x", "--environment", "cobol"], "--environment: "),
        (["x", "--model", "a b"], "--model: "),
        (["x", "--id", "A"], "--id: "),
        (["x", "--priority", "urgent"], "--priority: must be 'normal' or 'high'"),
        (["x", "--metadata", "a"], "--metadata: is NAME=VALUE, but it is 'a'"),
        (["x", "--metadata", f"{'n' * 101}=v"], "--metadata."),
        (["--example", "nothing"], "there are calculator, hello-world, password-generator"),
        (["x", "--example", "calculator"], "give one of"),
        (["x", "--file", "README.md"], "give one of"),
        (["--file", "no-such-file"], "--file no-such-file can't be read"),
        ([" "], "specification: must have at least 1 character"),
        ([], "standard input is empty: say what to build"),
        (["--jsonl", "/dev/null"], "has no message: write one a line"),
        (["--jsonl", "x", "--priority", "high"], "--priority goes with a specification"),
    ],
)
def test_what_would_be_rejected_is_said_by_its_option_before_anybody_is_asked(
    args: list[str], says: str
) -> None:
    # No service is there: a message that is accepted here would be refused for that.
    found = CliRunner().invoke(app, ["submit", *args, "--local"], env={"XDG_STATE_HOME": "/proc"})
    assert isinstance(found.exception, UsageError)
    assert says in str(found.exception)


def test_a_bad_line_is_named_and_nothing_is_sent(
    caller: Caller, cloud: LocalCloud, tmp_path: Path
) -> None:
    file = tmp_path / "many.jsonl"
    lines = [
        '{"specification": "fine", "task_id": "send-fine"}',
        '{"specification": "", "colour": "blue"}',
        "",
        "not json",
        '{"specification": "again", "task_id": "send-fine"}',
    ]
    file.write_text("\n".join(lines))
    said = caller.refused("submit", "--jsonl", str(file)).splitlines()
    assert said[0] == f"nothing was sent: {file} has mistakes."
    assert said[1].startswith("line 2: specification: ")
    assert said[2].startswith("line 4: The body is not valid JSON")
    assert said[3] == "line 5: task_id: is that of line 1; give it another one."
    assert task(cloud, "send-fine") is None


def test_many_are_sent_in_batches_and_the_same_file_again_is_no_task_twice(
    caller: Caller, cloud: LocalCloud
) -> None:
    # U+2028 ends no line of JSON, whatever str.splitlines thinks.
    contents = [{"specification": f"no. {number} \u2028", "colour": 1} for number in range(12)]
    for content in contents:
        del content["colour"]
        content["project"] = {"name": "Many"}
        content["environment"] = "python"
        content["plan"] = False
    text = "\n".join(json.dumps(content, ensure_ascii=False) for content in contents)
    done = caller.call("submit", "--jsonl", "-", stdin=text)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Sent 12 of 12 to the local cloud.")
    ids = done.stdout.split()
    assert len(set(ids)) == 12
    for task_id, content in zip(ids, contents, strict=True):
        assert message(cloud, task_id) == {**content, "task_id": task_id}
    before = count(cloud)
    again = json.loads(caller.call("submit", "--jsonl", "-", "--json", stdin=text).stdout)
    assert [row["task_id"] for row in again] == ids
    assert count(cloud) == before
    for task_id in ids:
        cloud.send(json.dumps({"task_id": task_id, "action": "cancel"}))


def test_batches_hold_what_a_request_may() -> None:
    half = Task({"task_id": "a", "specification": "x" * (SQS_BYTES // 2 - 37)})
    assert len(half.body) == SQS_BYTES // 2
    small = Task({"task_id": "b", "specification": "x"})
    assert [len(batch) for batch in batches([small] * 25)] == [10, 10, 5]
    assert [len(batch) for batch in batches([half] * 5)] == [2, 2, 1]
    assert [len(batch) for batch in batches([half, half, small, half])] == [2, 2]
    full = list(batches([small, half, half, *[small] * 12]))
    assert all(len(batch) <= 10 for batch in full)
    assert all(sum(len(one.body) for one in batch) <= SQS_BYTES for batch in full)
    assert sum(map(len, full)) == 15


class Queue:
    """SQS when it fails, which moto never does: what it answers to one batch after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def send_message_batch(self, **asked: Any) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        entries = [entry["Id"] for entry in asked["Entries"]]
        assert entries == [str(number) for number in range(len(entries))]
        return dict(answer)


ALL = {"Successful": [{"Id": str(number), "MessageId": "ABC"} for number in range(10)]}
PART = {
    "Successful": [{"Id": "1", "MessageId": "ABC"}],
    "Failed": [{"Id": "0", "Code": "InternalError", "Message": "try later"}],
}


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (PART, 1, "InternalError: try later"),
        (UsageError("no network."), 1, "no network."),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_could_not_be_sent_is_said(
    answer: Any, code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = LocalService("http://127.0.0.1:9", {"TaskQueueUrl": "q"})
    service.clients["sqs"] = Queue(ALL, answer)
    tasks = [Task({"task_id": f"t{number}"}, number + 1) for number in range(12)]
    assert deliver(service, tasks, How(watch=True), one=False) == code
    said = capsys.readouterr()
    sent = [f"t{number}" for number in range(10)] + (["t11"] if answer is PART else [])
    assert said.out.split() == sent
    assert f"Not sent: line 11, t10: {reason}" in said.err
    assert f"Sent {len(sent)} of 12 to the local cloud." in said.err


def test_a_queue_that_can_not_be_reached_at_all_is_an_error_of_its_own() -> None:
    service = LocalService("http://127.0.0.1:9", {"TaskQueueUrl": "q"})
    service.clients["sqs"] = Queue(UsageError("no network."))
    with pytest.raises(UsageError, match="no network"):
        deliver(service, [Task({"task_id": "a"})], How(), one=True)


@pytest.mark.timeout(240)
def test_every_example_succeeds_without_a_key(caller: Caller, cloud: LocalCloud) -> None:
    ids = [caller.call("submit", "--example", name).stdout.strip() for name in names()]
    assert {task_id: ended(cloud, task_id)["status"] for task_id in ids} == dict.fromkeys(
        ids, "SUCCEEDED"
    )


def test_an_example_is_watched_to_its_end_without_a_key(caller: Caller, cloud: LocalCloud) -> None:
    done = caller.call("submit", "--example", "hello-world", "--watch")
    assert done.returncode == 0, done.stderr + done.stdout
    task_id = done.stdout.split()[0]
    assert re.fullmatch(r"example-hello-world-[0-9a-f]{10}", task_id)
    for said in ("plan", "hello-world: 3 files", "Write hello.py", "SUCCEEDED in iteration 1"):
        assert said in done.stdout
    assert ended(cloud, task_id)["project"] == {"name": "hello-world"}


def test_with_json_a_watched_task_is_its_record(caller: Caller, cloud: LocalCloud) -> None:
    taken = {"task_id": "send-taken", "specification": "first", "plan": False}
    cloud.send(json.dumps(taken))
    while not task(cloud, "send-taken"):
        pass
    # The id is another task's: what is watched is the rejection, not that task.
    done = caller.call("submit", "second", "--id", "send-taken", "--watch", "--json")
    assert done.returncode == 1
    record = json.loads(done.stdout)
    assert (record["status"], record["failure"]["code"]) == ("REJECTED", "task_id_taken")


def test_examples_are_valid_and_their_scenarios_are_of_the_same_messages(caller: Caller) -> None:
    listed = caller.call("submit", "--example", "list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == names() == sorted(names())
    assert len(names()) == len(list(FOLDER.glob("*.json"))) == 5
    for name in names():
        parse(example(name))
        scenario = load(ROOT / "scenarios" / name)
        assert scenario.message == {"task_id": name, **example(name)}
        assert scenario.plan


def form(caller: Caller, *args: str) -> Terminal:
    return Terminal([str(AUTOCODER), "submit", *args], caller.environment, ROOT)


def test_the_form_makes_a_message_shows_it_and_asks(caller: Caller, cloud: LocalCloud) -> None:
    terminal = form(caller, "--budget", "1", "--id", "send-form")
    terminal.answer("Project name: ", "My Tool\n")
    terminal.answer("Type (api, library, …): ", "\n")
    terminal.answer("an empty line ends it.\n> ", "\n")
    terminal.answer("Without a description there is nothing to build.", "Adds numbers.\n", "\n")
    terminal.answer("Requirements, one a line", "no dependencies\n", "tests\n", "\n")
    terminal.answer("APIs, one a line", "\n")
    terminal.answer("Environment (auto): ", "cobol\n")
    terminal.answer("is no environment", "python\n")
    terminal.answer("Send it to the local cloud? [Y/n] ", "\n")
    code, shown = terminal.end()
    assert code == 0, shown
    expected = {
        "specification": "Adds numbers.",
        "project": {"name": "My Tool", "requirements": ["no dependencies", "tests"]},
        "environment": "python",
        "limits": {"budget_usd": 1.0},
        "task_id": "send-form",
    }
    assert json.loads(shown[shown.index("{") : shown.index("Send it to")]) == expected
    assert "send-form\n" in shown
    assert message(cloud, "send-form") == expected


@pytest.mark.parametrize("key", ["\x03", "\x04"])  # Ctrl-C, Ctrl-D
def test_who_leaves_the_form_sends_nothing(caller: Caller, cloud: LocalCloud, key: str) -> None:
    before = count(cloud)
    terminal = form(caller)
    terminal.answer("Project name: ", "left\n")
    terminal.answer("Type (api, library, …): ", key)
    code, shown = terminal.end()
    assert code == 130, shown
    assert shown.endswith("Nothing was sent.\n")
    assert "Traceback" not in shown
    assert count(cloud) == before


def test_who_says_no_sends_nothing(caller: Caller, cloud: LocalCloud) -> None:
    before = count(cloud)
    terminal = form(caller, "--environment", "python")
    terminal.answer("Project name: ", "\n")
    terminal.answer("Type (api, library, …): ", "\n")
    terminal.answer("What should it do?", "Nothing.\n", "\n")
    terminal.answer("Requirements", "\n")
    terminal.answer("APIs", "\n")
    terminal.answer("Send it to the local cloud? [Y/n] ", "n\n")
    code, shown = terminal.end()
    assert (code, shown.rstrip().endswith("Nothing was sent.")) == (1, True), shown
    assert count(cloud) == before


def test_nobody_fills_in_a_form_for_a_service_that_is_not_there(stranger: Caller) -> None:
    code, shown = form(stranger, "--local").end()
    assert code == 2
    assert "Project name" not in shown
    assert "no local cloud is running" in shown


def test_a_local_cloud_without_a_key_is_warned_of_before_anything_is_sent(lab: Lab) -> None:
    with lab.caller(only_scenarios=True) as caller:
        warned = caller.call("submit", "Build a thing")
        example = caller.call("submit", "--example", "hello-world")
        scenario = caller.call("submit", "Build a thing", "--id", "first-try")
    assert warned.returncode == 0
    assert warned.stderr.startswith("The local cloud has no key for a model")
    assert "no key" not in example.stderr + scenario.stderr
    with lab.caller() as caller:
        assert "no key" not in caller.call("submit", "Build a thing").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["x", "--id", "Not An Id"], "--id: must be 1 to 64 of a-z, 0-9, '-', but it is "),
        (["--file", "/nope"], "--file /nope can't be read: No such file or directory."),
    ],
)
def test_a_mistake_is_said_in_one_voice(caller: Caller, args: list[str], said: str) -> None:
    assert caller.refused("submit", *args).startswith(said)


def test_what_pydantic_says_is_worded() -> None:
    assert worded("a: Value error, no, but") == "a: no, but"
    said = "a: String should have at most 64 characters, but it is 1; correct it."
    assert worded(said) == "a: must have at most 64 characters, but it is 1; correct it."
