"""`autocoder local`: a local cloud that stays, for the aws CLI, boto3 and other terminals."""

import json
import shlex
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autocoder.cli.live import Say, plain_lines
from autocoder.cli.request import KEY, take_upstream
from autocoder.cli.run import forget_the_account
from autocoder.local.cloud import LocalCloud
from autocoder.local.running import Running, find, owner, stop
from autocoder.local.scenario import replayable

AWS = 'aws --endpoint-url "$AWS_ENDPOINT_URL"'  # older ones do not go by the variable alone
CHECK_S = 0.5
NOT_RUNNING = "No local cloud is running: `autocoder local up` starts one.\n"


def up(*, port: int, keep: Path | None) -> int:
    """Keep a cloud running until Ctrl-C, SIGTERM, `autocoder local down`, or a server's end."""
    upstream = take_upstream()
    forget_the_account()
    say = plain_lines(sys.stderr)
    with owner() as write:
        cloud = LocalCloud(lambda line: say("local cloud", line), keep, upstream, port=port)
        with cloud:
            sys.stderr.write(cloud.sandboxes["warning"])
            answers = f"replayed for the task ids {', '.join(replayed(cloud))}"
            others = upstream.base_url if upstream else f"{KEY} is not set: other tasks fail"
            running = Running.of(cloud, f"{answers}; {others}", only_scenarios=not upstream)
            write(running)
            tell(running, say)
            while True:
                cloud.check()
                time.sleep(CHECK_S)
    return 0


def replayed(cloud: LocalCloud) -> list[str]:
    """Let the shipped scenarios answer for the tasks of their names."""
    scenarios = replayable()
    for name, scenario in scenarios.items():
        cloud.add_scenario(scenario, name)
    return sorted(scenarios)


def tell(running: Running, say: Say) -> None:
    """Say how to reach it; the lines for a shell go to stdout, so that they can be evaluated."""
    say("AWS", running.endpoint)
    say("isolation", running.isolation)
    say("model", running.model)
    say("ready", "in another terminal: autocoder submit --example hello-world --watch")
    say("", f'or with any SDK (or: eval "$({sys.argv[0]} local status --export)"):')
    sys.stdout.write(exports(running))
    message = '{"task_id": "fix-loop", "specification": "a module for slugs", "plan": false}'
    sys.stdout.write(
        f'# {AWS} sqs send-message --queue-url "$TASK_QUEUE_URL" '
        f"--message-body '{message}'\n"
        f'# {AWS} dynamodb get-item --table-name "$TASKS_TABLE" '
        '--key \'{"task_id": {"S": "fix-loop"}}\'\n'
    )
    sys.stdout.flush()


def exports(running: Running) -> str:
    """Lines for a shell."""
    found = running.environment().items()
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in found)


def status(*, as_json: bool, export: bool) -> int:
    """Say what runs; 1 if nothing does."""
    running = find()
    if running is None:
        sys.stderr.write(NOT_RUNNING)
        return 1
    if not running.endpoint:
        sys.stderr.write(f"A local cloud is starting (process {running.pid}).\n")
        return 1
    if export:
        sys.stdout.write(exports(running))
    elif as_json:
        sys.stdout.write(json.dumps(asdict(running), indent=2) + "\n")
    else:
        age = datetime.now(UTC) - datetime.fromisoformat(running.since)
        up_for = timedelta(seconds=int(age.total_seconds()))
        rows = {
            "AWS": running.endpoint,
            "process": f"{running.pid}, up for {up_for}",
            "isolation": running.isolation,
            "model": running.model,
            **running.reachable(),
        }
        for name, value in rows.items():
            sys.stdout.write(f"{name:<20} {value}\n")
    return 0


def down(*, as_json: bool) -> int:
    """End it, and everything in it."""
    running = find()
    if running is None:
        sys.stderr.write(NOT_RUNNING)
        return 1
    stop(running)
    said = "The local cloud is gone, and everything in it."
    sys.stdout.write((json.dumps({"ended": running.pid}) if as_json else said) + "\n")
    return 0
