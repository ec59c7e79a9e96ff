"""`autocoder queue peek`, `redrive` and `discard`: dead letters looked at, sent again, deleted.

One by one, not by SQS's own StartMessageMoveTask: that takes all or none, and gives each message a
new id, by which a task without a task_id of its own would become another one. Here, too, SQS gives
what is sent again a new id: a task's message names its task by then, and one that cancels or
retries named it from the start, so the new id matters only where such a message is rejected once
more: its record has that id.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from typing_extensions import TypedDict

from autocoder.cli.asking import confirm
from autocoder.cli.letters import Hold, Letter, peek, read, with_id
from autocoder.cli.problems import UsageError
from autocoder.cli.queue import counts
from autocoder.cli.service import Service
from autocoder.cli.shown import here, print_json, print_rows
from autocoder.text import printable

HIDDEN_S = 600  # those that stay must not come back before all were seen
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


class Discarded(TypedDict):
    """A dead letter that is gone."""

    message_id: str
    task_id: str


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
    started, there = datetime.now(UTC), how_many(service)
    if not there:
        return nothing_there(service, as_json=as_json)
    which = "" if everything else ", but those that would only be rejected again"
    confirm(f"Send {so_many(there)} of {service.where} again{which}?", yes=yes)
    done: list[Redriven] = []
    for letter in walk(service, there, started, everything=everything):
        done.append(letter)
        if not as_json:
            said = "sent again" if letter["moved"] else f"stays: {letter['problem']}"
            sys.stdout.write(f"{letter['task_id']}  {printable(said)}\n")
            sys.stdout.flush()
    moved = sum(letter["moved"] for letter in done)
    stay = len(done) - moved
    if as_json:
        print_json(done)
    else:
        sys.stdout.write(f"{moved} sent again, {stay} stay.\n")
    if stay and not as_json:
        sys.stderr.write("`autocoder queue discard ID` deletes one for good, --all every one.\n")
    return 1 if stay else 0


def walk(
    service: Service, there: int, started: datetime, *, everything: bool
) -> Iterator[Redriven]:
    """Go through the dead letters; whatever happens, each is in a queue: sent first, then deleted.

    A message that was sent twice for that is the same task, since it names its task by then. What
    is rejected again meanwhile was sent after the start, and is not gone through once more.
    """
    with Hold(service, service.outputs["DeadLettersUrl"], HIDDEN_S) as hold:
        for message in hold.each(there, started):
            letter = read(service, message)
            moves = everything or letter["problem"] is None
            if moves:
                named = letter["problem"] is None
                service.send(
                    with_id(letter["body"], letter["task_id"]) if named else letter["body"]
                )
                hold.delete(message)
            yield outcome(letter, moved=moves)


def discard(service: Service, message_id: str | None, *, yes: bool, as_json: bool) -> int:
    """Delete one dead letter for good, or all that were there at the start."""
    started, there = datetime.now(UTC), how_many(service)
    if message_id is None and not there:
        return nothing_there(service, as_json=as_json)
    if message_id is None:
        confirm(f"Delete {so_many(there)} of {service.where} for good?", yes=yes)
    done: list[Discarded] = []
    with Hold(service, service.outputs["DeadLettersUrl"], HIDDEN_S) as hold:
        for message in hold.each(there, started):
            if message_id not in (None, message["MessageId"]):
                continue
            letter = read(service, message)
            if message_id:
                question = (
                    f"Delete {message_id} of {letter['task_id']} in {service.where} for good?"
                )
                confirm(question, yes=yes)
            hold.delete(message)
            done.append(Discarded(message_id=letter["message_id"], task_id=letter["task_id"]))
            if not as_json:
                sys.stdout.write(f"{letter['message_id']}  {letter['task_id']}  deleted\n")
                sys.stdout.flush()
            if message_id:
                break
    if message_id and not done:
        raise UsageError(
            f"there is no dead letter {message_id} in {service.where} that can be received now: "
            "`autocoder queue peek` shows those that are there, each with its message's id."
        )
    if as_json:
        print_json(done)
    return 0


def how_many(service: Service) -> int:
    """How many dead letters there are, by SQS's own count."""
    found = counts(service, "DeadLettersUrl")
    return found["waiting"] + found["in_flight"]


def so_many(number: int) -> str:
    """So many, in words."""
    return "the one dead letter" if number == 1 else f"the {number} dead letters"


def nothing_there(service: Service, *, as_json: bool) -> int:
    """Say that there are none, which is as good as done."""
    if as_json:
        print_json([])
    else:
        sys.stderr.write(f"There are no dead letters in {service.where}.\n")
    return 0


def outcome(letter: Letter, *, moved: bool) -> Redriven:
    """Say what became of a dead letter."""
    return Redriven(
        message_id=letter["message_id"],
        task_id=letter["task_id"],
        moved=moved,
        problem=letter["problem"],
    )
