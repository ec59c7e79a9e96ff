"""`autocoder submit`: tasks onto the queue, each with an id that is known at once."""

import hashlib
import json
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from autocoder.cli.examples import example, names
from autocoder.cli.form import confirmed, fill_in
from autocoder.cli.outgoing import SQS_BYTES, Given, Task, most_usd, tasks_of, with_id
from autocoder.cli.problems import UsageError, in_words
from autocoder.cli.records import find_record
from autocoder.cli.service import LocalService, Service, open_service
from autocoder.cli.shown import print_json
from autocoder.cli.target import Target
from autocoder.cli.watch import watch_tasks
from autocoder.local.scenario import example_of, replayable
from autocoder.message import canonical

SQS_BATCH = 10
APPEARS_WITHIN_S = 120
CTRL_C = 128 + signal.SIGINT
NO_MODEL = (
    "The local cloud has no key for a model, so only examples (--example NAME) and scenarios are "
    "answered, and all else fails: end it, export ANTHROPIC_API_KEY, and start it again.\n"
)
INTERRUPTED = "interrupted, perhaps when it was under way; the same id again is no second task."


class How(NamedTuple):
    """What is done with it."""

    watch: bool = False
    dry_run: bool = False
    as_json: bool = False


class Sent(NamedTuple):
    """What became of one: SQS's id of the message, or why there is none."""

    task: Task
    message_id: str | None = None
    error: str | None = None

    def row(self) -> dict[str, str | None]:
        """What `--json` prints of it."""
        return {"task_id": self.task.task_id, "message_id": self.message_id, "error": self.error}


def submit(target: Target, given: Given, how: How) -> int:
    """Send what is given; 1 if something could not be sent, or with --watch did not succeed."""
    if given.example == "list":
        return list_examples()
    if given.sources > 1:
        raise UsageError(
            "give one of: a specification, --file, --message, --jsonl or --example, not several."
        )
    form = not given.sources and sys.stdin.isatty() and sys.stdout.isatty()
    try:
        # Nobody fills in a form for a service that can't be reached; all else is read before.
        tasks = [] if form else tasks_of(given)
        service = None if how.dry_run else open_service(target)
        if service:
            warn_without_model(service, tasks)
        if form:
            tasks = [with_id(fill_in(given.options))]
        if service is None:
            return show(tasks, how, one=given.jsonl is None)
        if form and not confirmed(tasks[0].content, service.where):
            sys.stderr.write("Nothing was sent.\n")
            return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nNothing was sent.\n")
        return CTRL_C
    return deliver(service, tasks, how, one=given.jsonl is None)


def warn_without_model(service: Service, tasks: list[Task]) -> None:
    """Say before tasks are sent, or a form is filled in, that there is no model to work on them."""
    if not isinstance(service, LocalService) or not service.only_scenarios:
        return
    scripted = replayable()
    if not tasks or any((example_of(t.task_id) or t.task_id) not in scripted for t in tasks):
        sys.stderr.write(NO_MODEL)


def list_examples() -> int:
    """Say which examples there are, and what each is about."""
    for name in names():
        first = re.split(r"[.:;] ", example(name)["specification"])[0]
        sys.stdout.write(f"{name:<20} {first}\n")
    return 0


def show(tasks: list[Task], how: How, *, one: bool) -> int:
    """Print what would be sent, and the most that it may cost."""
    most = [most_usd(task) for task in tasks]
    if how.as_json:
        found = [
            {"message": task.content, "most_usd": cost}
            for task, cost in zip(tasks, most, strict=True)
        ]
        print_json(found[0] if one else found)
        return 0
    for task in tasks:
        text = json.dumps(task.content, indent=2 if one else None, ensure_ascii=False)
        sys.stdout.write(f"{text}\n")
    model, sandbox = (sum(cost[part] for cost in most) for part in ("model", "sandbox"))
    sys.stderr.write(
        f"Nothing was sent. It costs at most {model:.2f} USD for the model (limits.budget_usd) "
        f"and, in AWS, {sandbox:.2f} USD for sandboxes (limits.timeout_minutes); docs/costs.md "
        "has the rest.\n"
    )
    return 0


def deliver(service: Service, tasks: list[Task], how: How, *, one: bool) -> int:
    """Send the tasks, say what became of each, and watch them if that is asked for."""
    found, stopped = send_all(service, tasks, say_ids=not how.as_json)
    sent = [entry for entry in found if entry.message_id]
    for entry in found:
        if entry.error:
            line = f"line {entry.task.line}, " if entry.task.line else ""
            sys.stderr.write(f"Not sent: {line}{entry.task.task_id}: {entry.error}\n")
    whole = len(sent) == len(tasks)
    if whole and how.watch:
        return watch(service, sent, as_json=how.as_json, one=one)
    if how.as_json:
        rows = [entry.row() for entry in found]
        print_json(rows[0] if one else rows)
    else:
        tell_next(service, sent, len(tasks))
    return 0 if whole else CTRL_C if stopped else 1


def tell_next(service: Service, sent: list[Sent], asked: int) -> None:
    """Say on stderr what to type now: stdout has the ids alone."""
    if asked > 1:
        sys.stderr.write(
            f"Sent {len(sent)} of {asked} to {service.where}. `autocoder list` shows them, "
            "`autocoder watch ID…` follows some.\n"
        )
    elif sent:
        task_id = sent[0].task.task_id
        sys.stderr.write(
            f"Sent to {service.where}. `autocoder watch {task_id}` shows it as it goes, "
            f"`autocoder download {task_id}` brings what it made.\n"
        )


def send_all(service: Service, tasks: list[Task], *, say_ids: bool) -> tuple[list[Sent], bool]:
    """Send batch by batch, and say each id when it is sent; whether Ctrl-C ended it."""
    found: list[Sent] = []
    for batch in batches(tasks):
        try:
            found += (new := send(service, batch))
        except KeyboardInterrupt:
            return [*found, *(Sent(task, error=INTERRUPTED) for task in tasks[len(found) :])], True
        except Exception as problem:
            if not found:
                raise
            reason = in_words(problem)
            return [*found, *(Sent(task, error=reason) for task in tasks[len(found) :])], False
        if say_ids:
            sys.stdout.writelines(f"{one.task.task_id}\n" for one in new if one.message_id)
            sys.stdout.flush()
    return found, False


def send(service: Service, batch: list[Task]) -> list[Sent]:
    """Send a batch, of which SQS may take a part."""
    entries = [{"Id": str(at), "MessageBody": task.body} for at, task in enumerate(batch)]
    queue = service.outputs["TaskQueueUrl"]
    answer = service.client("sqs").send_message_batch(QueueUrl=queue, Entries=entries)
    taken = {entry["Id"]: entry["MessageId"].lower() for entry in answer.get("Successful", [])}
    refused = {entry["Id"]: entry for entry in answer.get("Failed", [])}
    found = []
    for at, task in enumerate(batch):
        reason = refused.get(str(at), {"Code": "SQS did not say why"})
        error = f"{reason['Code']}: {reason.get('Message', 'send it again')}"
        found.append(Sent(task, taken.get(str(at)), None if str(at) in taken else error))
    return found


def batches(tasks: list[Task]) -> Iterator[list[Task]]:
    """Divide them into what a request may hold."""
    batch: list[Task] = []
    size = 0
    for task in tasks:
        length = len(task.body)
        if batch and (len(batch) == SQS_BATCH or size + length > SQS_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += length
    yield batch


def watch(service: Service, sent: list[Sent], *, as_json: bool, one: bool) -> int:
    """Watch them from the moment that they are taken in."""
    try:
        ids = [taken_in(service, one) for one in sent]
    except KeyboardInterrupt:
        ids = [one.task.task_id for one in sent]
        sys.stderr.write(f"Sent, and not watched: `autocoder watch {' '.join(ids)}` shows it.\n")
        return CTRL_C
    return watch_tasks(service, ids, as_json=as_json, one=one)


def taken_in(service: Service, sent: Sent) -> str:
    """Wait for the task's record and give its id.

    Where the id is another task's, the message is rejected: that record has SQS's id of it.
    """
    task_id, message_id = sent.task.task_id, str(sent.message_id)
    sha256 = hashlib.sha256(canonical(sent.task.content)).hexdigest()
    deadline = time.monotonic() + APPEARS_WITHIN_S
    while time.monotonic() < deadline:
        record: Mapping[str, object] = find_record(service, task_id) or {}
        if sha256 == record.get("message_sha256") or message_id == record.get("message_id"):
            return task_id
        if find_record(service, message_id):
            return message_id
        time.sleep(service.poll_s)
    raise UsageError(
        f"{task_id} was sent, but no record of it appeared within {APPEARS_WITHIN_S} s: "
        f"`autocoder queue` shows whether it waits, `autocoder watch {task_id}` watches it later."
    )
