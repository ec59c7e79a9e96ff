"""Messages in a queue, looked at: what they say, why they lie there, whether they would pass now.

SQS has no other way to look than to receive: whoever looks hides a message for a moment, and the
receive counts. For dead letters neither matters, since nobody else receives them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from typing_extensions import TypedDict

from autocoder.cli.records import find_record
from autocoder.cli.service import Service
from autocoder.errors import InputError
from autocoder.message import TaskMessage, canonical, decode, own_id, parse
from autocoder.record import TASK_ID
from autocoder.task import RETRYABLE

HIDDEN_S = 60  # at the longest, should the look be interrupted
BATCH = 10  # SQS's own
WITHOUT_NEWS = 3  # batches of what was seen already, after which there is nothing else


class Letter(TypedDict):
    """A message as a look at the queue shows it."""

    message_id: str
    task_id: str
    sent_at: str
    receives: int
    reason: str | None
    problem: str | None
    body: str


class Hold:
    """Messages that were received, hidden from others: what is not deleted is given back."""

    def __init__(self, service: Service, url: str, hidden_s: int = HIDDEN_S) -> None:
        """Hold each for so long at most, should the look be interrupted."""
        self.sqs, self.url, self.hidden_s = service.client("sqs"), url, hidden_s
        self.held: dict[str, Any] = {}

    def __enter__(self) -> "Hold":
        """Nothing is held yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let others see what is left."""
        give_back(self.sqs, self.url, self.held.values())

    def each(self, most: int, until: datetime | None = None) -> Iterator[Any]:
        """Receive so many messages, each once; those that were sent later are passed over."""
        found, known, idle = 0, set[str](), 0
        while found < most and idle < WITHOUT_NEWS:
            batch = receive(self.sqs, self.url, min(BATCH, most - found), self.hidden_s)
            if not batch:
                return
            self.held |= {message["MessageId"]: message for message in batch}
            news = [message for message in batch if message["MessageId"] not in known]
            known |= {message["MessageId"] for message in news}
            idle = 0 if news else idle + 1
            for message in news:
                if until is None or sent_at(message) <= until:
                    found += 1
                    yield message

    def delete(self, message: Any) -> None:
        """Delete one for good."""
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        del self.held[message["MessageId"]]


def peek(service: Service, url: str, count: int) -> list[Letter]:
    """Look at so many messages; they are given back at once."""
    with Hold(service, url) as hold:
        found = list(hold.each(count))
    return [read(service, message) for message in found]


def receive(sqs: Any, url: str, most: int, hidden_s: int) -> list[Any]:
    """Take messages, hidden from others for so long; a second's wait has SQS ask all its hosts."""
    answer = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=most,
        VisibilityTimeout=hidden_s,
        WaitTimeSeconds=1,
        AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
        MessageAttributeNames=["reason", "task_id"],
    )
    return list(answer.get("Messages", []))


def give_back(sqs: Any, url: str, messages: Iterable[Any]) -> None:
    """Let others see messages again; one that can't be given back comes back by itself soon."""
    waiting = list(messages)
    for start in range(0, len(waiting), BATCH):
        entries = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
            for n, message in enumerate(waiting[start : start + BATCH])
        ]
        sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)


def sent_at(message: Any) -> datetime:
    """When a message was sent, by SQS's clock."""
    return datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, UTC)


def read(service: Service, message: Any) -> Letter:
    """Say what a message is."""
    task_id = task_of(message)
    return Letter(
        message_id=message["MessageId"],
        task_id=task_id,
        sent_at=sent_at(message).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        receives=int(message["Attributes"]["ApproximateReceiveCount"]),
        reason=noted(message, "reason"),
        problem=problem_of(service, message["Body"], task_id),
        body=message["Body"],
    )


def noted(message: Any, name: str) -> str | None:
    """A note that came with a message: the service's, or of any kind, if a sender has made it."""
    found: str | None = message.get("MessageAttributes", {}).get(name, {}).get("StringValue")
    return found


def task_of(message: Any) -> str:
    """The task that a message is for: what it says, what was noted when it was rejected, its id."""
    try:
        own = own_id(decode(message["Body"]))
    except InputError:
        own = None
    note = noted(message, "task_id")
    if note and not re.fullmatch(TASK_ID, note):
        note = None  # no note of the service's
    return str(own or note or message["MessageId"]).lower()


def problem_of(service: Service, body: str, task_id: str) -> str | None:
    """Why the message would be rejected if it came now; None if it would be accepted."""
    try:
        message = parse(decode(body))
        record = find_record(service, task_id)
        if not isinstance(message, TaskMessage):
            return problem_with_control(message.action, record, task_id)
        stored = canonical({**decode(body), "task_id": task_id})
        sha256 = hashlib.sha256(stored).hexdigest()
        if record and record.get("message_sha256", sha256) != sha256:
            return f"task_id: {task_id} belongs to another message already."
        return problem_with_source(service, message.source.s3) if message.source else None
    except InputError as error:
        return error.message


def problem_with_control(action: str, record: Any, task_id: str) -> str | None:
    """Why a task can't be cancelled or retried."""
    if record is None:
        return f"task_id: there is no task {task_id} to {action}."
    if action == "retry" and record["status"] not in RETRYABLE:
        return f"task_id: {task_id} is {record['status']}, and can't be retried."
    return None


def problem_with_source(service: Service, url: str) -> str | None:
    """Why the project that a task begins with can't be read."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if bucket != service.outputs["BucketName"]:
        return f"source.s3: lies in another bucket than s3://{service.outputs['BucketName']}."
    found = service.client("s3").list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    if key not in [item["Key"] for item in found.get("Contents", [])]:
        return f"source.s3: there is no {key}."
    return None


def with_id(body: str, task_id: str) -> str:
    """Have a task's message name its task: sent again, it stays that one, however often."""
    content = json.loads(body)
    if content.get("task_id") is not None:
        return body
    return json.dumps({**content, "task_id": task_id}, ensure_ascii=False)
