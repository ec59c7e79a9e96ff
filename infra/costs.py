"""What a stack costs, reckoned from its own sizes and schedules; docs/costs.md shows it.

Free tiers, taxes and the model are left out. How long functions run and how much they write are
assumptions, named here: everything else is the stack's.
"""

from typing import NamedTuple

from autocoder.prices import GIB_SECOND_USD, VCPU_SECOND_USD, sandbox_usd
from infra.intake import DISPATCH_EVERY
from infra.settings import Settings
from infra.steps import FUNCTIONS
from infra.upkeep import REAP_EVERY

AS_OF = "2025, AWS in us-east-1 on demand"
PRICES = {  # USD
    "a GB-second of Lambda, arm64": 0.0000133334,
    "a million calls of Lambda": 0.20,
    "a million requests to SQS": 0.40,
    "a million writes to DynamoDB": 0.625,
    "a million reads from DynamoDB": 0.125,
    "a GB-month of records and feed, with point-in-time recovery": 0.45,
    "a GB-month of results in S3": 0.023,
    "a GB-month of logs": 0.03,
    "a secret, a month": 0.40,
    "a million reads of a secret": 5.00,
    "a signing key, a month": 1.00,
    "a million signatures and reads of its public key": 15.00,
    "a million traces of X-Ray": 5.00,
    "a GB of logs": 0.50,
    "a million transitions of Step Functions": 25.00,
    "a million events of EventBridge": 1.00,
    "a million writes to S3": 5.00,
    "a vCPU-second of E2B": VCPU_SECOND_USD,
    "a GiB-second of E2B": GIB_SECOND_USD,
}
MINUTES_A_MONTH = 60 * 730

# Assumed.
LASTS_S = {"dispatch_tasks": 0.2, "reap_sandboxes": 2.0}
LOG_BYTES = 1_000  # of one call
POLLERS, POLL_S = 5, 20  # Lambda's, on a queue that is empty
WRITES_A_MINUTE = 60  # record and feed: one every two seconds, of two units
TRANSITIONS, EVENTS, OBJECTS = 40, 6, 60  # of a task with a few iterations


class Item(NamedTuple):
    """One line of a bill."""

    what: str
    usd: float


def idle_month() -> list[Item]:
    """What a stack costs in a month in which nobody sends anything."""
    every = {"dispatch_tasks": DISPATCH_EVERY, "reap_sandboxes": REAP_EVERY}
    calls = {name: MINUTES_A_MONTH / rate.to_minutes() for name, rate in every.items()}
    total = sum(calls.values())
    polls = POLLERS * MINUTES_A_MONTH * 60 / POLL_S
    return [
        Item("two secrets", 2 * PRICES["a secret, a month"]),
        Item("the key of evidence", PRICES["a signing key, a month"]),
        Item(
            "the E2B key, read by each call of reap_sandboxes",
            millions(calls["reap_sandboxes"], "a million reads of a secret"),
        ),
        *(
            Item(
                f"{name}, every {rate.to_minutes():g} min",
                calls[name] * computing(name, LASTS_S[name])
                + millions(calls[name], "a million calls of Lambda"),
            )
            for name, rate in every.items()
        ),
        Item("Lambda's polling of the queue", millions(polls, "a million requests to SQS")),
        Item("their reads of the table", millions(4 * total, "a million reads from DynamoDB")),
        Item("their traces", millions(total, "a million traces of X-Ray")),
        Item("their logs", total * LOG_BYTES / 1e9 * PRICES["a GB of logs"]),
    ]


def task(minutes: float, settings: Settings) -> list[Item]:
    """What one task of this length costs besides the model."""
    seconds = 60 * minutes
    writes = minutes * WRITES_A_MINUTE
    return [
        Item(
            "its sandbox", sandbox_usd(seconds, settings.sandbox_cpus, settings.sandbox_memory_mb)
        ),
        Item("the function that waits for it", computing("run_claude_code", seconds)),
        Item("record and feed", millions(writes, "a million writes to DynamoDB")),
        Item("the workflow", millions(TRANSITIONS, "a million transitions of Step Functions")),
        Item("its files", millions(OBJECTS, "a million writes to S3")),
        Item("its signature", millions(2, "a million signatures and reads of its public key")),
        Item("its events", millions(EVENTS, "a million events of EventBridge")),
    ]


def computing(function: str, seconds: float) -> float:
    """What a function costs while it runs."""
    gigabytes = FUNCTIONS[function].memory_mb / 1024
    return gigabytes * seconds * PRICES["a GB-second of Lambda, arm64"]


def millions(number: float, price: str) -> float:
    """What so many cost, at a price for a million."""
    return number / 1e6 * PRICES[price]
