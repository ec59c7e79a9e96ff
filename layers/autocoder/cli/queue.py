"""`autocoder queue`: what waits, for how long, and what was not accepted."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from typing_extensions import TypedDict

from autocoder.cli.letters import peek
from autocoder.cli.records import plain_item, rows_of
from autocoder.cli.service import LocalService, Service
from autocoder.cli.shown import print_json, print_rows
from autocoder.record import SLOTS

COUNTED_WITHIN = timedelta(minutes=15)  # CloudWatch has a queue's metrics a few minutes late
SAMPLE = 10

# How the age is known: by CloudWatch's metric, or by the messages that a look found.
Source = Literal["cloudwatch", "messages"]


class QueueState(TypedDict):
    """One queue. Counts are SQS's own, which calls them approximate."""

    waiting: int
    in_flight: int
    delayed: int
    oldest_seconds: float | None
    oldest_by: Source | None


class TasksState(TypedDict):
    """The tasks that were taken in, and the slots that they run in."""

    waiting: int
    slots_used: int
    slots: int | None


class Queues(TypedDict):
    """All that `autocoder queue --json` prints."""

    queue: QueueState
    dead_letters: QueueState
    tasks: TasksState


def show_queue(service: Service, *, as_json: bool) -> int:
    """Show both queues and the line behind them."""
    found = Queues(
        queue=state_of(service, "TaskQueueUrl"),
        dead_letters=state_of(service, "DeadLettersUrl"),
        tasks=tasks_of(service),
    )
    if as_json:
        print_json(found)
    else:
        print_rows(lines(found))
    return 0


def state_of(service: Service, output: str) -> QueueState:
    """Ask for a queue's counts, and how old its oldest message is."""
    state, url = counts(service, output), service.outputs[output]
    if state["waiting"] + state["in_flight"]:
        age: float | None
        by: Source
        if output == "DeadLettersUrl":
            age, by = looked_at(service, url), "messages"
        else:
            age, by = measured(service, url), "cloudwatch"
        state |= {"oldest_seconds": age, "oldest_by": None if age is None else by}
    return state


def counts(service: Service, output: str) -> QueueState:
    """Ask for a queue's counts alone."""
    url = service.outputs[output]
    answer = service.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    found = answer["Attributes"]
    return QueueState(
        waiting=int(found["ApproximateNumberOfMessages"]),
        in_flight=int(found["ApproximateNumberOfMessagesNotVisible"]),
        delayed=int(found["ApproximateNumberOfMessagesDelayed"]),
        oldest_seconds=None,
        oldest_by=None,
    )


def measured(service: Service, url: str) -> float | None:
    """What CloudWatch last said of the oldest message's age; the local cloud has no metrics.

    To receive messages in order to see their age would count against them, so that is not done.
    """
    if isinstance(service, LocalService):
        return None
    now = datetime.now(UTC)
    answer = service.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SQS",
        MetricName="ApproximateAgeOfOldestMessage",
        Dimensions=[{"Name": "QueueName", "Value": url.rpartition("/")[2]}],
        StartTime=now - COUNTED_WITHIN,
        EndTime=now,
        Period=60,
        Statistics=["Maximum"],
    )
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    return float(points[-1]["Maximum"]) if points else None


def looked_at(service: Service, url: str) -> float | None:
    """The age of the oldest of a few dead letters: nobody else receives them, so a look is free."""
    sent = [letter["sent_at"] for letter in peek(service, url, SAMPLE)]
    if not sent:
        return None
    age = datetime.now(UTC) - datetime.fromisoformat(min(sent))
    return round(age.total_seconds(), 1)


def tasks_of(service: Service) -> TasksState:
    """Count those that wait for a slot, and the slots that are held."""
    answer = service.dynamodb.get_item(
        TableName=service.outputs["TasksTable"],
        Key={"task_id": {"S": SLOTS}},
        ConsistentRead=True,
    )
    holders = plain_item(answer.get("Item", {})).get("holders", [])
    limit = service.outputs.get("MaxRunning")  # a stack of an older version does not say
    return TasksState(
        waiting=sum(1 for _ in rows_of(service, "QUEUED", None)),
        slots_used=len(holders),
        slots=int(limit) if limit else None,
    )


def lines(found: Queues) -> list[tuple[str, str]]:
    """All of it for people."""
    queue, dead, tasks = found["queue"], found["dead_letters"], found["tasks"]
    slots = "an unknown number of" if tasks["slots"] is None else tasks["slots"]
    rows = [
        ("waiting", f"{queue['waiting']} messages{oldest(queue)}"),
        ("in flight", f"{queue['in_flight']}"),
        ("delayed", f"{queue['delayed']}"),
        ("dead letters", f"{dead['waiting'] + dead['in_flight']}{oldest(dead)}"),
        ("tasks", f"{tasks['waiting']} wait for a slot"),
        ("slots", f"{tasks['slots_used']} of {slots} in use"),
    ]
    if dead["waiting"]:
        rows.insert(4, ("", "`autocoder queue peek` shows them, and why"))
    return rows


def oldest(state: QueueState) -> str:
    """How old the oldest message is, and how that is known."""
    if not state["waiting"] + state["in_flight"]:
        return ""
    if state["oldest_seconds"] is None:
        return ", the oldest of unknown age (no metric of it)"
    known = "by CloudWatch" if state["oldest_by"] == "cloudwatch" else "of those looked at"
    return f", the oldest {age_of(state['oldest_seconds'])} old ({known})"


def age_of(seconds: float) -> str:
    """An age for people."""
    return str(timedelta(seconds=round(seconds)))
