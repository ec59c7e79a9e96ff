"""`autocoder queue`, `queue peek` and `queue redrive`, on queues that nobody else receives from."""

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from botocore.session import Session

from autocoder.cli import letters
from autocoder.cli.queue import measured
from autocoder.cli.redrive import redrive, walk
from autocoder.cli.service import AwsService
from autocoder.local.state import REGION
from infra.settings import Settings
from tests.cli.lab import RECEIVES, Lab

GOOD = json.dumps({"task_id": "good", "specification": "x"})
NAMELESS = json.dumps({"specification": "x"})
BAD = json.dumps({"task_id": "bad", "specification": "x", "colour": "blue"})


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        """It is one."""
        return True


NOW = "2026-11-16T10:00:00.000Z"


def test_what_waits_is_counted(lab: Lab) -> None:
    queue = lab.outputs["TaskQueueUrl"]
    for _ in range(3):
        lab.sqs.send_message(QueueUrl=queue, MessageBody=GOOD)
    lab.sqs.receive_message(QueueUrl=queue)
    lab.sqs.send_message(QueueUrl=queue, MessageBody=GOOD, DelaySeconds=900)
    lab.dead(BAD)
    for task_id in ("one", "two"):
        lab.put(task_id, "QUEUED", NOW)
    lab.table.put_item(Item={"task_id": "#slots", "holders": {"three-1"}})
    with lab.caller() as caller:
        done = caller.call("queue", "--json")
        shown = caller.call("queue")
    assert (done.returncode, shown.returncode) == (0, 0)
    found = json.loads(done.stdout)
    unknown = {"oldest_seconds": None, "oldest_by": None}
    assert found["queue"] == {"waiting": 2, "in_flight": 1, "delayed": 1, **unknown}
    assert found["tasks"] == {"waiting": 2, "slots_used": 1, "slots": Settings.load().max_running}
    dead = found["dead_letters"]
    assert (dead["waiting"], dead["in_flight"], dead["oldest_by"]) == (1, 0, "messages")
    assert dead["oldest_seconds"] >= 0
    assert "2 messages, the oldest of unknown age" in shown.stdout
    assert "`autocoder queue peek` shows them" in shown.stdout
    assert "1 of 10 in use" in shown.stdout


def test_a_stack_of_an_older_version_does_not_say_how_many_slots_it_has(lab: Lab) -> None:
    del lab.outputs["MaxRunning"]
    with lab.caller() as caller:
        assert json.loads(caller.call("queue", "--json").stdout)["tasks"]["slots"] is None
        assert "0 of an unknown number of in use" in caller.call("queue").stdout


def test_in_aws_cloudwatch_says_how_old_the_oldest_message_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINT_URL", lab.cloud.endpoint), ("ACCESS_KEY_ID", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    service = AwsService(Session(), Settings.load().stack_name, REGION)
    url = lab.outputs["TaskQueueUrl"]
    assert measured(service, url) is None
    now = datetime.now(UTC)
    for minutes, seconds in ((60, 999.0), (8, 100.0), (3, 400.0)):
        lab.cloud.client("cloudwatch").put_metric_data(
            Namespace="AWS/SQS",
            MetricData=[
                {
                    "MetricName": "ApproximateAgeOfOldestMessage",
                    "Dimensions": [{"Name": "QueueName", "Value": url.rpartition("/")[2]}],
                    "Timestamp": now - timedelta(minutes=minutes),
                    "Value": seconds,
                }
            ],
        )
    assert measured(service, url) == 400.0


def test_peek_shows_dead_letters_and_gives_them_back(lab: Lab) -> None:
    bad = lab.dead(BAD, reason="colour: is not a known field.", task_id="bad")
    lab.dead(GOOD)
    lab.dead("\x1b[31mno json")
    with lab.caller() as caller:
        found = json.loads(caller.call("queue", "peek", "--json").stdout)
        shown = caller.call("queue", "peek").stdout
        few = json.loads(caller.call("queue", "peek", "--count", "2", "--json").stdout)
    letters = {letter["task_id"]: letter for letter in found}
    assert len(found) == 3
    assert len(few) == 2
    assert letters["bad"]["message_id"] == bad
    assert letters["bad"]["reason"] == "colour: is not a known field."
    assert "colour: is not a known field" in letters["bad"]["problem"]
    assert letters["good"]["problem"] is None
    assert letters["good"]["reason"] is None
    assert json.loads(letters["good"]["body"]) == json.loads(GOOD)
    assert "\x1b" not in shown
    assert "would be accepted: `autocoder queue redrive` sends it again" in shown
    assert "none is noted" in shown
    assert len(lab.bodies("DeadLettersUrl")) == 3  # at once


def test_peek_takes_more_than_one_batch_and_each_message_once(lab: Lab) -> None:
    for _ in range(12):
        lab.dead(GOOD)
    with lab.caller() as caller:
        found = json.loads(caller.call("queue", "peek", "--count", "50", "--json").stdout)
    assert len({letter["message_id"] for letter in found}) == 12
    assert {letter["receives"] for letter in found} == {1}


def test_a_look_at_the_services_own_queue_is_warned_of(lab: Lab) -> None:
    lab.sqs.send_message(QueueUrl=lab.outputs["TaskQueueUrl"], MessageBody=GOOD)
    with lab.caller() as caller:
        looks = [caller.call("queue", "peek", "--waiting") for _ in range(RECEIVES)]
    for look in looks:
        assert f"one of the {RECEIVES} receives after which" in look.stderr
        assert "good" in look.stdout
    assert "the next time SQS makes it a dead letter" not in looks[0].stderr
    assert "the next time SQS makes it a dead letter" in looks[-1].stderr


def test_nothing_to_look_at(lab: Lab) -> None:
    with lab.caller() as caller:
        done = caller.call("queue", "peek")
        assert json.loads(caller.call("queue", "peek", "--json").stdout) == []
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "There are no dead letters in the local cloud.\n"


def test_redrive_sends_what_would_be_accepted_and_leaves_the_rest(lab: Lab) -> None:
    lab.dead(GOOD)
    lab.dead(NAMELESS, task_id="noted-id")
    lab.dead(BAD)
    with lab.caller() as caller:
        assert "add --yes" in caller.refused("queue", "redrive")
        done = caller.call("queue", "redrive", "--yes")
        assert done.returncode == 1
        assert "bad  stays: colour: is not a known field" in done.stdout
        assert "2 sent again, 1 stay" in done.stdout
        sent = sorted(map(json.loads, lab.bodies("TaskQueueUrl")), key=lambda m: m["task_id"])
        named = {**json.loads(NAMELESS), "task_id": "noted-id"}  # it stays the same task
        assert sent == [json.loads(GOOD), named]
        everything = caller.call("queue", "redrive", "--yes", "--all", "--json")
    assert everything.returncode == 0
    (moved,) = json.loads(everything.stdout)
    assert (moved["task_id"], moved["moved"]) == ("bad", True)
    assert lab.bodies("TaskQueueUrl") == [BAD]
    assert lab.bodies("DeadLettersUrl") == []


def problems(lab: Lab) -> dict[str, str | None]:
    with lab.caller() as caller:
        found = json.loads(caller.call("queue", "peek", "--json").stdout)
    return {letter["task_id"]: letter["problem"] for letter in found}


def test_what_would_be_rejected_for_what_is_there_is_known_beforehand(lab: Lab) -> None:
    bucket = lab.outputs["BucketName"]
    lab.put("taken", "SUCCEEDED", NOW, message_sha256="0" * 64)
    lab.put("over", "SUCCEEDED", NOW)
    lab.put("failed", "FAILED", NOW)
    lab.put("rejected", "REJECTED", NOW)
    key = f"sources/{lab.outputs['SandboxOwner']}.tar.gz"
    messages: dict[str, dict[str, Any]] = {
        "taken": {"specification": "x"},
        "rejected": {"specification": "x"},
        "over": {"action": "retry"},
        "failed": {"action": "retry"},
        "nobody": {"action": "cancel"},
        "elsewhere": {"specification": "x", "source": {"s3": "s3://other/sources/a.tar.gz"}},
        "source": {"specification": "x", "source": {"s3": f"s3://{bucket}/{key}"}},
    }
    for task_id, more in messages.items():
        lab.dead(json.dumps({"task_id": task_id, **more}))
    found = problems(lab)
    assert found == {
        "taken": "task_id: taken belongs to another message already.",
        "rejected": None,
        "over": "task_id: over is SUCCEEDED, and can't be retried.",
        "failed": None,
        "nobody": "task_id: there is no task nobody to cancel.",
        "elsewhere": f"source.s3: lies in another bucket than s3://{bucket}.",
        "source": f"source.s3: there is no {key}.",
    }
    lab.cloud.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")
    lab.put("nobody", "RUNNING", NOW)
    found = problems(lab)
    assert (found["source"], found["nobody"]) == (None, None)


def test_nothing_is_lost_when_it_dies_before_it_is_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.dead(GOOD)
    lab.dead(BAD)
    sqs = lab.service.client("sqs")

    def die(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sqs, "send_message", die)
        with pytest.raises(KeyboardInterrupt):
            redrive(lab.service, everything=False, yes=True, as_json=False)
    assert sorted(lab.bodies("DeadLettersUrl")) == sorted([BAD, GOOD])  # and at once


def test_it_is_sent_before_it_is_deleted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.dead(GOOD)
    sqs = lab.service.client("sqs")

    def die(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sqs, "delete_message", die)
    with pytest.raises(KeyboardInterrupt):
        redrive(lab.service, everything=False, yes=True, as_json=False)
    assert lab.bodies("TaskQueueUrl") == [GOOD]
    assert lab.bodies("DeadLettersUrl") == [GOOD]


def test_what_is_rejected_again_meanwhile_is_not_sent_for_ever(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {lab.dead(BAD) for _ in range(3)}
    monkeypatch.setattr(lab.service, "send", lab.dead)  # a service that rejects it at once
    found = list(walk(lab.service, 99, datetime.now(UTC), everything=True))
    assert {letter["message_id"] for letter in found} == before
    assert [letter["moved"] for letter in found] == [True] * 3
    assert lab.bodies("DeadLettersUrl") == [BAD] * 3  # new ones, given back


def test_as_many_are_gone_through_as_were_there_at_the_start(lab: Lab) -> None:
    for _ in range(3):
        lab.dead(GOOD)
    assert len(list(walk(lab.service, 2, datetime.now(UTC), everything=False))) == 2
    assert lab.bodies("DeadLettersUrl") == [GOOD]


def test_letters_that_come_back_meanwhile_do_not_end_the_walk(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[Any]] = []
    receive = letters.receive

    def repeat(*args: Any) -> list[Any]:
        """Give the first batch three times: as if it had become visible again."""
        batches.append(batches[0] if len(batches) in (1, 2) else receive(*args))
        return batches[-1]

    monkeypatch.setattr(letters, "BATCH", 1)
    monkeypatch.setattr(letters, "receive", repeat)
    lab.dead(BAD)
    lab.dead(GOOD)
    found = list(walk(lab.service, 2, datetime.now(UTC), everything=False))
    assert sorted(letter["task_id"] for letter in found) == ["bad", "good"]


def test_one_hostile_letter_does_not_disable_the_commands(lab: Lab) -> None:
    binary = {"DataType": "Binary", "BinaryValue": b"\x00"}
    odd = lab.dead(NAMELESS, task_id="Not An Id")
    lab.sqs.send_message(
        QueueUrl=lab.outputs["DeadLettersUrl"],
        MessageBody=BAD,
        MessageAttributes={"reason": binary, "task_id": binary},
    )
    with lab.caller() as caller:
        assert caller.call("queue").returncode == 0
        found = json.loads(caller.call("queue", "peek", "--json").stdout)
        done = caller.call("queue", "redrive", "--yes")
    assert {(letter["task_id"], letter["reason"]) for letter in found} == {
        (odd.lower(), None),
        ("bad", None),
    }
    assert "1 sent again, 1 stay" in done.stdout
    assert "`autocoder queue discard ID` deletes one for good" in done.stderr


def test_without_dead_letters_nobody_is_asked(lab: Lab) -> None:
    with lab.caller() as caller:
        for command in (("redrive",), ("discard", "--all")):
            done = caller.call("queue", *command)
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr == "There are no dead letters in the local cloud.\n"
            assert json.loads(caller.call("queue", *command, "--json").stdout) == []


def test_discard_deletes_one_or_all_and_nothing_else(lab: Lab) -> None:
    bad = lab.dead(BAD)
    for _ in range(2):
        lab.dead(GOOD)
    with lab.caller() as caller:
        assert "name one message, or --all" in caller.refused("queue", "discard")
        assert "name one message, or --all" in caller.refused("queue", "discard", bad, "--all")
        assert "there is no dead letter nobody" in caller.refused(
            "queue", "discard", "nobody", "-y"
        )
        asked = caller.refused("queue", "discard", bad)
        assert asked.startswith(f"Delete {bad} of bad in the local cloud for good?")
        done = caller.call("queue", "discard", bad, "--yes", "--json")
        assert json.loads(done.stdout) == [{"message_id": bad, "task_id": "bad"}]
        assert lab.counted() == 2
        assert "Delete the 2 dead letters" in caller.refused("queue", "discard", "--all")
        done = caller.call("queue", "discard", "--all", "--yes")
    assert done.returncode == 0
    assert done.stdout.count("  good  deleted\n") == 2
    assert lab.counted() == 0
    assert lab.bodies("TaskQueueUrl") == []


def test_a_no_is_said_plainly(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.dead(GOOD)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(typer.Exit) as ended:
        redrive(lab.service, everything=False, yes=False, as_json=False)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert "Send the one dead letter of the local cloud again, but those that" in said
    assert said.endswith("Nothing was done.\n")
    assert lab.bodies("DeadLettersUrl") == [GOOD]


def test_options_before_a_command_are_not_lost_silently(lab: Lab) -> None:
    with lab.caller() as caller:
        for group, command in (("queue", "peek"), ("sandboxes", "kill")):
            said = caller.refused(group, "--local", command)
            assert said == f"options go behind `{command}`, not before it."
