"""What the clean room costs: `python bench/clean_room.py [SCENARIO …]`.

Each line is one scenario on a warm local cloud. By the execution's own history, the time of
VerifyClean stands beside that of one cold check run with its sandbox: CreateSandbox and
TestAndBuild of the first iteration. The model is asked in neither. Asked for is at most 1.5 times.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from autocoder.local.cloud import LocalCloud
from autocoder.local.scenario import load
from autocoder.task import TERMINAL

SCENARIOS = ("first-try", "api", "planned")


def run(cloud: LocalCloud, scenario: str, task_id: str) -> dict[str, float]:
    """Run a task to its end; give each state's seconds, of the first time that it was entered."""
    script = load(Path(scenario))
    cloud.add_scenario(script, task_id)
    cloud.send(json.dumps({**script.task_message(), "task_id": task_id}))
    table = cloud.table("TasksTable")
    record: dict[str, Any] = {}
    while record.get("status") not in TERMINAL:
        time.sleep(0.2)
        record = dict(table.get_item(Key={"task_id": task_id}).get("Item", {}))
    if record["status"] != "SUCCEEDED":
        sys.exit(f"{scenario} ended {record['status']}: {record.get('failure')}")
    history = cloud.client("stepfunctions").get_paginator("get_execution_history")
    entered, took = {}, dict[str, float]()
    for page in history.paginate(executionArn=str(record["execution_arn"])):
        for event in page["events"]:
            if event["type"] == "TaskStateEntered":
                entered[event["stateEnteredEventDetails"]["name"]] = event["timestamp"]
            elif event["type"] == "TaskStateExited":
                name = event["stateExitedEventDetails"]["name"]
                took.setdefault(name, (event["timestamp"] - entered[name]).total_seconds())
    return took


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    row = "{:<16} {:>14} {:>14} {:>7}\n".format
    with LocalCloud(lambda line: None) as cloud:
        run(cloud, args.scenarios[0], "warm")  # every function has started once
        sys.stdout.write(row("scenario", "cold checks s", "clean room s", "ratio"))
        for scenario in args.scenarios:
            name = Path(scenario).name
            found = [run(cloud, scenario, f"{name}-{number}") for number in range(args.times)]
            cold = statistics.median(one["CreateSandbox"] + one["TestAndBuild"] for one in found)
            clean = statistics.median(one["VerifyClean"] for one in found)
            figures = (f"{cold:.2f}", f"{clean:.2f}", f"{clean / cold:.2f}")
            sys.stdout.write(row(name, *figures))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
