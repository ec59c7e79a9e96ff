"""`autocoder run`: one task on a local cloud of its own, from the queue to the files in S3."""

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from autocoder.cli.download import fetch
from autocoder.cli.live import Say, View
from autocoder.cli.output import folder_for, prepare, prepare_keep, write_record
from autocoder.cli.request import Asked, Request, requested
from autocoder.cli.service import LocalService, Service
from autocoder.cli.watch import Watcher, follow
from autocoder.errors import InputError
from autocoder.local.cloud import LocalCloud
from autocoder.local.gateway.forward import Upstream
from autocoder.local.gateway.recorder import entries
from autocoder.message import decode, own_id
from autocoder.prices import AS_OF
from autocoder.record import TaskRecord, stable


class Places(NamedTuple):
    """Where what is made goes, by the command line."""

    output: Path | None = None
    force: bool = False
    keep: Path | None = None


def run_task(asked: Asked, places: Places, *, as_json: bool) -> int:
    """Run the task, show it, and say by the exit code how it ended."""
    request = requested(asked)
    if places.keep:
        prepare_keep(places.keep)
    if places.output:
        prepare("--output", places.output, force=places.force)
    forget_the_account()
    view = View(sys.stderr if as_json else sys.stdout)
    say, upstream = view.say, request.upstream
    cloud = LocalCloud(lambda line: say("local cloud", line), places.keep, upstream)
    with view.live, cloud:
        sys.stderr.write(cloud.sandboxes["warning"])
        say("isolation", cloud.sandboxes["isolation"])
        body = with_model(cloud, request, say)
        message_id = cloud.send(body)
        say("queue", f"message {message_id} sent")
        service = LocalService(cloud.endpoint, cloud.outputs)
        watcher = Watcher(service, view.tasks[0], say, candidates(body, message_id))
        (record,) = follow([watcher], service.poll_s, cloud.check)
        deliver(service, record, places, say, paid=upstream is not None)
        if upstream:
            show_cost(record, upstream, say)
        sys.stderr.write(cloud.sandboxes["warning"])
    if as_json:
        sys.stdout.write(json.dumps(stable(record), indent=2) + "\n")
    return 0 if record["status"] == "SUCCEEDED" else 1


def with_model(cloud: LocalCloud, request: Request, say: Say) -> str:
    """Say who answers for the model; give the message to send."""
    if request.upstream:
        where = request.upstream.base_url
        say("model", f"at {where}, with your key, which stays outside of the sandbox")
    if request.script is None:
        return request.body
    cloud.add_scenario(request.script)
    say("model", f"replayed from the scenario {request.script.name!r}: nothing is paid for")
    if request.script.source is None:
        return request.body
    return json.dumps(cloud.with_source(request.script, json.loads(request.body)))


def deliver(service: Service, record: TaskRecord, places: Places, say: Say, *, paid: bool) -> None:
    """Bring what was made out of the cloud, which is gone in a moment.

    What was paid for is kept, asked or not.
    """
    if places.keep:
        fetch(service, record, places.keep)
        write_record(record, places.keep)
        say("kept", f"results and logs are in {places.keep}")
    if record.get("result") and (places.output or paid):
        target = places.output or folder_for(record, force=places.force)
        fetch(service, record, target, only="files", force=True)
        say("files", f"the project is in {target.resolve()}")
    elif not places.keep:
        say("", "all of it is gone now; --keep DIR keeps files, prompts, transcripts and logs")


def forget_the_account() -> None:
    """Let nothing of the caller's AWS or proxy set-up reach servers that are on loopback."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))


def candidates(body: str, message_id: str) -> list[str]:
    """The ids that the task may get: its own, or SQS's id of the message."""
    try:
        own = own_id(decode(body))
    except InputError:
        own = None
    return [own, message_id] if own else [message_id]


def show_cost(record: TaskRecord, upstream: Upstream, say: Say) -> None:
    """Show what the model cost, planning included, as the gateway counted it."""
    task = record["task_id"]
    paid = [entry for entry in entries(upstream.recordings / task) if entry.status == 200]
    total, limits = sum(entry.usd for entry in paid), record.get("limits")
    of = f" of {limits['budget_usd']:.2f}" if limits else ""
    say("paid", f"{total:.4f}{of} USD, {len(paid)} answers, by the prices of {AS_OF}")
    for model, other in {(e.model, e.priced_as) for e in paid}:
        if not model.startswith(other):
            say("", f"no price is known for {model}: counted as {other}, the dearest")
    if paid:
        say("recorded", f"autocoder record {task} makes a scenario of it")
