"""`autocoder queue peek` and `queue redrive`: dead letters, looked at and sent again.

One by one, not by SQS's own StartMessageMoveTask: that takes all or none, and gives each message a
new id, by which a task without a task_id of its own would become another one.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from typing_extensions import TypedDict

from autocoder.cli.asking import confirm
from autocoder.cli.letters import BATCH, Letter, give_back, peek, read, receive, with_id
from autocoder.cli.service import Service
from autocoder.cli.shown import here, print_json, print_rows
from autocoder.text import printable

HIDDEN_S = 60  # a batch is dealt with in much less
BACK = "it was sent again just now, and is back or was there twice."
COMPETES = (
    "Looking at the queue competes with the service: a message is hidden from it for a moment, and "
    "the look counts as one of the {limit} receives after which SQS makes it a dead letter.\n"
)
NEARLY = "{id} was received {n} times: the next time SQS makes it a dead letter.\n"
SHOWN = 300  # characters of a body


class Redriven(TypedDict):
    """What became of one dead letter."""

    message_id: str
    task_id: str
    moved: bool
    problem: str | None


def show_letters(service: Service, count: int, *, dead: bool, as_json: bool) -> int:
    """Show messages of a queue; for the service's own, with a warning."""
    url = service.outputs["DeadLettersUrl" if dead else "TaskQueueUrl"]
    limit = 0 if dead else receives_allowed(service, url)
    if not dead:
        sys.stderr.write(COMPETES.format(limit=limit))
    letters = peek(service, url, count)
    for letter in letters if not dead else []:
        if letter["receives"] >= limit:
            sys.stderr.write(NEARLY.format(id=letter["message_id"], n=letter["receives"]))
    if as_json:
        print_json(letters)
    elif not letters:
        what = "dead letters" if dead else "messages that can be received"
        sys.stderr.write(f"There are no {what} in {service.where}.\n")
    for number, letter in enumerate([] if as_json else letters):
        sys.stdout.write("\n" if number else "")
        print_rows(lines(letter, dead=dead))
    return 0


def receives_allowed(service: Service, url: str) -> int:
    """How often a message may be received before SQS makes it a dead letter."""
    names = ["RedrivePolicy"]
    found = service.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
    return int(json.loads(found["Attributes"]["RedrivePolicy"])["maxReceiveCount"])


def lines(letter: Letter, *, dead: bool) -> list[tuple[str, str]]:
    """A message for people."""
    body = printable(letter["body"])
    rows = [
        ("message", letter["message_id"]),
        ("task", letter["task_id"]),
        ("sent", f"{here(letter['sent_at'])}, received {letter['receives']} times"),
        ("body", body if len(body) <= SHOWN else f"{body[:SHOWN]}… ({len(body)} characters)"),
    ]
    if dead:
        unknown = "none is noted: the service did not take it in, as often as SQS tried"
        now = "would be accepted: `autocoder queue redrive` sends it again"
        rows.insert(3, ("reason", letter["reason"] or unknown))
        again = f"would be rejected: {letter['problem']}"
        rows.append(("now", again if letter["problem"] else now))
    return rows


def redrive(service: Service, *, everything: bool, yes: bool, as_json: bool) -> int:
    """Send dead letters again; 1 if some stay, since they would only be rejected again."""
    url = service.outputs["DeadLettersUrl"]
    which = "" if everything else " that would be accepted now"
    confirm(f"Send all dead letters of {service.where} again{which}?", yes=yes)
    done: list[Redriven] = []
    for letter in walk(service, url, everything=everything):
        done.append(letter)
        if not as_json:
            said = "sent again" if letter["moved"] else f"stays: {letter['problem']}"
            sys.stdout.write(f"{letter['task_id']}  {printable(said)}\n")
            sys.stdout.flush()
    if as_json:
        print_json(done)
    moved = sum(letter["moved"] for letter in done)
    if not as_json:
        sys.stdout.write(f"{moved} sent again, {len(done) - moved} stay.\n")
    return 0 if moved == len(done) else 1


def walk(service: Service, url: str, *, everything: bool) -> Iterator[Redriven]:
    """Go through the dead letters; whatever happens, each is in a queue: sent first, then deleted.

    A message that was sent twice for that is the same task, since it names its task by then.
    """
    sqs = service.client("sqs")
    seen: set[str] = set()
    sent: set[str] = set()
    held: dict[str, Any] = {}
    try:
        while True:
            found = {m["MessageId"]: m for m in receive(sqs, url, BATCH, HIDDEN_S)}
            held |= found
            if not found.keys() - seen:
                return
            for message_id in found.keys() - seen:
                seen.add(message_id)
                letter = read(service, held[message_id])
                body = letter["body"]
                if letter["problem"] is None:
                    body = with_id(body, letter["task_id"])
                elif not everything:
                    yield outcome(letter, moved=False)
                    continue
                if body in sent:  # what is rejected again comes back while we are at it
                    yield outcome(letter | {"problem": BACK}, moved=False)
                    continue
                service.send(body)
                sent.add(body)
                sqs.delete_message(QueueUrl=url, ReceiptHandle=held[message_id]["ReceiptHandle"])
                del held[message_id]
                yield outcome(letter, moved=True)
    finally:
        give_back(sqs, url, held.values())


def outcome(letter: Letter, *, moved: bool) -> Redriven:
    """Say what became of a dead letter."""
    return Redriven(
        message_id=letter["message_id"],
        task_id=letter["task_id"],
        moved=moved,
        problem=letter["problem"],
    )
