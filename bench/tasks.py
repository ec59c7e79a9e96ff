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
from itertools import pairwise
from pathlib import Path
from typing import Any

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import Scenario, load
from autocoder.ports.tasks import to_plain
from autocoder.task import TERMINAL

TICKS = os.sysconf("SC_CLK_TCK")
BUSY = (0, 1, 2, 5, 6)  # of /proc/stat: user, nice, system, irq, softirq


def cpu_seconds() -> float:
    """The machine's CPU time so far."""
    numbers = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(numbers[place] for place in BUSY) / TICKS


def records(cloud: LocalCloud, ids: list[str]) -> list[dict[str, Any]]:
    """The tasks' records, those that are there."""
    table = cloud.table("TasksTable")
    found = (table.get_item(Key={"task_id": i}).get("Item") for i in ids)
    return [to_plain(item) for item in found if item]


def send(cloud: LocalCloud, scenario: Scenario, ids: list[str]) -> None:
    """Send a message for each id, ten at a time as SQS takes them."""
    client, queue = cloud.client("sqs"), cloud.outputs["TaskQueueUrl"]
    for start in range(0, len(ids), 10):
        entries = [
            {"Id": i, "MessageBody": json.dumps({**scenario.task_message(), "task_id": i})}
            for i in ids[start : start + 10]
        ]
        client.send_message_batch(QueueUrl=queue, Entries=entries)


def round_of(cloud: LocalCloud, scenario: Scenario, name: str, size: int) -> dict[str, float]:
    """Send `size` tasks and wait for the last; say how long it took and what went wrong."""
    ids = [f"{name}-{number:03}" for number in range(size)]
    cpu, began = cpu_seconds(), time.monotonic()
    send(cloud, scenario, ids)
    waiting = set(ids)
    while waiting:
        time.sleep(0.5)
        waiting -= {
            r["task_id"] for r in records(cloud, sorted(waiting)) if r["status"] in TERMINAL
        }
        progress = f"\r{size - len(waiting)} of {size} "
        sys.stderr.write(progress if sys.stderr.isatty() else "")
    wall, used = time.monotonic() - began, cpu_seconds() - cpu
    ended = records(cloud, ids)
    bad = [r["task_id"] for r in ended if r["status"] != "SUCCEEDED"]
    return {"wall": wall, "cpu": used, "bad": len(bad), **order(cloud, ended)}


def order(cloud: LocalCloud, ended: list[dict[str, Any]]) -> dict[str, int]:
    """Count executions that are missing or doubled, and tasks that overtook another."""
    client, machine = cloud.client("stepfunctions"), cloud.outputs["StateMachineArn"]
    pages = client.get_paginator("list_executions").paginate(stateMachineArn=machine)
    names = Counter(e["name"].rpartition("-")[0] for page in pages for e in page["executions"])
    wrong = sum(names[r["task_id"]] != 1 for r in ended)
    by_age = sorted(ended, key=lambda r: str(r["created_at"]))
    starts = [str(r["started_at"]) for r in by_age]
    overtaken = sum(later < earlier for earlier, later in pairwise(starts))
    return {"executions": wrong, "overtaken": overtaken}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--at-once", type=int, nargs="*", default=[10])
    parser.add_argument("--scenario", type=Path, default=Path("scenarios/fix-loop"))
    args = parser.parse_args()
    scenario, cores = load(args.scenario), os.cpu_count() or 1
    with LocalCloud(lambda line: None) as cloud:
        cloud.add_scenario(scenario)
        round_of(cloud, scenario, "warm", 2)
        one = round_of(cloud, scenario, "one", 1)
        row = "{:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>12} {:>10}\n".format
        head = ("tasks", "wall s", "cpu s", "limit s", "ratio", "failed", "executions", "overtaken")
        sys.stdout.write(row(*head))
        for size, found in [(1, one)] + [
            (n, round_of(cloud, scenario, f"n{n}", n)) for n in args.at_once
        ]:
            limit = size * one["cpu"] / cores
            figures = [f"{found['wall']:.1f}", f"{found['cpu']:.1f}", f"{limit:.1f}"]
            ratio = f"{found['wall'] / limit:.2f}"
            wrong = [int(found[key]) for key in ("bad", "executions", "overtaken")]
            sys.stdout.write(row(size, *figures, ratio, *wrong))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
