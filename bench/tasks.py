"""Many tasks on the local cloud: `python bench/tasks.py [--at-once N …] [--scenario DIR]`.

Each line is one round: N messages sent at once to a warm local cloud, the real Claude Code in each
sandbox. The CPU-bound limit is N times one task's CPU seconds by the number of cores; these seconds
are the whole machine's (/proc/stat), so a quiet one is needed. Every round also counts what went
wrong: tasks that did not end as they should, executions that are missing or doubled, and tasks that
started before one that waited longer.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from boto3.dynamodb.conditions import Key

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario, load
from autocoder.ports.tasks import STATUS_INDEX
from autocoder.task import TERMINAL

TICKS = os.sysconf("SC_CLK_TCK")
BUSY = (0, 1, 2, 5, 6)  # of /proc/stat: user, nice, system, irq, softirq


def cpu_seconds() -> float:
    """The machine's CPU time so far."""
    numbers = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(numbers[place] for place in BUSY) / TICKS


class Bench:
    """A warm local cloud, and rounds of tasks on it."""

    def __init__(self, cloud: LocalCloud, scenario: Scenario) -> None:
        """Every task is answered from the scenario."""
        self.scenario = scenario
        self.table = cloud.table("TasksTable")
        self.sqs, self.queue = cloud.client("sqs"), cloud.outputs["TaskQueueUrl"]
        self.workflow, self.machine = (
            cloud.client("stepfunctions"),
            cloud.outputs["StateMachineArn"],
        )
        self.rounds = 0
        cloud.add_scenario(scenario)

    def round(self, size: int, most_s: float = 600) -> dict[str, float]:
        """Send `size` tasks and wait for the last; say how long it took and what went wrong."""
        self.rounds += 1
        ids = [f"r{self.rounds}-{number:03}" for number in range(size)]
        before, cpu, began = self.ended(), cpu_seconds(), time.monotonic()
        self.send(ids)
        while (done := self.ended() - before) < size and time.monotonic() - began < most_s:
            sys.stderr.write(f"\r{done} of {size} " if sys.stderr.isatty() else "")
            time.sleep(0.5)
        wall, used = time.monotonic() - began, cpu_seconds() - cpu
        found = [self.table.get_item(Key={"task_id": i}).get("Item", {}) for i in ids]
        failed = sum(record.get("status") != "SUCCEEDED" for record in found)
        return {"wall": wall, "cpu": used, "failed": failed, **self.order(ids, found)}

    def send(self, ids: list[str]) -> None:
        """Send a message for each id, ten at a time as SQS takes them."""
        message = self.scenario.task_message()
        for start in range(0, len(ids), 10):
            entries = [
                {"Id": i, "MessageBody": json.dumps({**message, "task_id": i})}
                for i in ids[start : start + 10]
            ]
            self.sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)

    def ended(self) -> int:
        """How many tasks have ended so far; one query a status, whatever their number."""
        return sum(
            self.table.query(
                IndexName=STATUS_INDEX,
                KeyConditionExpression=Key("status").eq(status),
                Select="COUNT",
            )["Count"]
            for status in TERMINAL
        )

    def order(self, ids: list[str], found: list[dict[str, Any]]) -> dict[str, int]:
        """Count executions that are missing or doubled, and tasks that overtook an older one."""
        pages = self.workflow.get_paginator("list_executions").paginate(
            stateMachineArn=self.machine
        )
        names = Counter(e["name"].rpartition("-")[0] for page in pages for e in page["executions"])
        started = sorted(
            (str(r["created_at"]), str(r["started_at"])) for r in found if r.get("started_at")
        )
        latest, overtook = "", 0
        for _, start in started:
            overtook += start < latest
            latest = max(latest, start)
        return {"executions": sum(names[i] != 1 for i in ids), "overtook": overtook}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--at-once", type=int, nargs="*", default=[10])
    parser.add_argument("--scenario", type=Path, default=Path("scenarios/fix-loop"))
    args = parser.parse_args()
    scenario, cores = load(args.scenario), os.cpu_count() or 1
    with LocalCloud(lambda line: None) as cloud:
        bench = Bench(cloud, scenario)
        bench.round(2)  # warms it
        one = bench.round(1)
        row = "{:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>12} {:>10}\n".format
        wrong = ("failed", "executions", "overtook")
        sys.stdout.write(row("tasks", "wall s", "cpu s", "limit s", "ratio", *wrong))
        for size in args.at_once:
            limit = size * one["cpu"] / cores
            found = bench.round(size, most_s=120 + 5 * limit)
            figures = [f"{found['wall']:.1f}", f"{found['cpu']:.1f}", f"{limit:.1f}"]
            figures.append(f"{found['wall'] / limit:.2f}")
            sys.stdout.write(row(size, *figures, *(int(found[name]) for name in wrong)))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
