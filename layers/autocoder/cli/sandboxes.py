"""`autocoder sandboxes`: what runs in E2B for this stack, what it costs, and what was left."""

import sys
from datetime import UTC, datetime

from typing_extensions import TypedDict

from autocoder.cli.asking import confirm
from autocoder.cli.problems import UsageError
from autocoder.cli.queue import age_of
from autocoder.cli.records import find_record
from autocoder.cli.service import Service
from autocoder.cli.shown import print_json
from autocoder.cli.table import print_table
from autocoder.prices import sandbox_usd
from autocoder.record import TaskRecord
from autocoder.sandbox.client import ATTEMPT, Sandboxes
from autocoder.sandbox.egress import Egress
from autocoder.task import attempt_of, is_over


class SandboxRow(TypedDict):
    """One sandbox: E2B's word for it, and the record's."""

    sandbox_id: str
    task_id: str | None
    attempt: int | None
    stage: str | None
    started_at: str
    age_seconds: float
    cost_usd: float
    orphan: bool


def show_sandboxes(service: Service, *, as_json: bool) -> int:
    """List them, oldest first."""
    found = sandboxes_of(service, connect(service))
    if as_json:
        print_json(found)
    elif not found:
        sys.stderr.write(f"There are no sandboxes of {service.where}.\n")
    else:
        heads = ("sandbox", "task", "stage", "age", "USD so far")
        print_table(heads, map(cells, found), numbers=2)
    return 0


def kill_sandboxes(service: Service, sandbox_id: str | None, *, yes: bool, as_json: bool) -> int:
    """End one, or all orphans; never one of another stack's, though the key would allow it."""
    sandboxes = connect(service)
    found = sandboxes_of(service, sandboxes)
    chosen = [
        row for row in found if (row["orphan"] if sandbox_id is None else is_it(row, sandbox_id))
    ]
    if sandbox_id and not chosen:
        raise UsageError(
            f"{service.where} has no sandbox {sandbox_id}: `autocoder sandboxes` lists those that "
            "are there."
        )
    if chosen:
        confirm(f"End {', '.join(map(described, chosen))} in {service.where}?", yes=yes)
    for row in chosen:
        sandboxes.kill(row["sandbox_id"])
    if as_json:
        print_json(chosen)
    else:
        sys.stdout.write("".join(f"{row['sandbox_id']} is ended.\n" for row in chosen))
        sys.stdout.write("" if chosen else "There are no orphans.\n")
    return 0


def described(row: SandboxRow) -> str:
    """A sandbox in a question."""
    state = "an orphan" if row["orphan"] else f"in use by {row['task_id']}"
    return f"{row['sandbox_id']} ({state})"


def is_it(row: SandboxRow, sandbox_id: str) -> bool:
    """Whether it is the one that was named."""
    return row["sandbox_id"] == sandbox_id


def connect(service: Service) -> Sandboxes:
    """Reach E2B with the key that the functions use, as the stack that they are."""
    service.use_e2b()
    owner = service.outputs.get("SandboxOwner")
    if owner is None:
        raise UsageError(
            f"{service.where} has no output SandboxOwner, for it was deployed by an older version: "
            "deploy it again (docs/deploying.md)."
        )
    key = service.client("secretsmanager").get_secret_value(
        SecretId=service.outputs["E2bSecretName"]
    )
    return Sandboxes(
        api_key=str(key.get("SecretString", "")).strip(),
        template="",
        owner=owner,
        egress=Egress(),
        model_key=str,
    )


def sandboxes_of(service: Service, sandboxes: Sandboxes) -> list[SandboxRow]:
    """Ask E2B what there is, and the records whose it is."""
    now = datetime.now(UTC)
    rows = []
    records: dict[str, TaskRecord | None] = {}

    def find(task_id: str) -> TaskRecord | None:
        if task_id not in records:
            records[task_id] = find_record(service, task_id)
        return records[task_id]

    found = sandboxes.all()
    for info in sorted(found, key=lambda info: info.started_at):
        name = info.metadata.get(ATTEMPT, "")
        task_id, attempt = attempt_of(name) or (None, None)
        record = find(task_id) if task_id else None
        age = (now - info.started_at).total_seconds()
        rows.append(
            SandboxRow(
                sandbox_id=info.sandbox_id,
                task_id=task_id,
                attempt=attempt,
                stage=record.get("stage") if record else None,
                started_at=info.started_at.isoformat(timespec="milliseconds").replace(
                    "+00:00", "Z"
                ),
                age_seconds=round(age, 1),
                cost_usd=round(sandbox_usd(age, info.cpu_count, info.memory_mb), 6),
                orphan=is_over(name, find),
            )
        )
    return rows


def cells(row: SandboxRow) -> tuple[str, ...]:
    """A sandbox for people."""
    whose = row["task_id"] or "-"
    if (row["attempt"] or 1) > 1:
        whose += f", attempt {row['attempt']}"
    stage = "orphan" if row["orphan"] else (row["stage"] or "-").replace("_", " ")
    return row["sandbox_id"], whose, stage, age_of(row["age_seconds"]), f"{row['cost_usd']:.4f}"
