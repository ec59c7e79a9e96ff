"""Workflow: DecideNext → here → FinishTask. Brings the last checkpoint's files to S3, with proof.

It reads the checkpoint, never the sandbox. `manifest.json` is written last: where it is, the result
is complete. A cancel that comes now comes too late: the task is decided, and ends as it would.
"""

import hashlib
import io
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import IO, Any, NamedTuple

from autocoder.archive import header, project_files
from autocoder.changes import Changes, Digests, compare, digests
from autocoder.checks import CheckReport
from autocoder.errors import InputError
from autocoder.evidence import (
    Agent,
    Evidence,
    Iteration,
    Ran,
    Software,
    fingerprint,
    pem,
    service,
)
from autocoder.ledger import Cost, Ledger
from autocoder.model import Hashed
from autocoder.ports.objects import TaskFolder, as_json, hashed
from autocoder.ports.tasks import now
from autocoder.services import Services, step
from autocoder.summary import as_markdown, summarize
from autocoder.task import Result, State, verdict

UPLOADS_AT_ONCE = 8
NO_SOFTWARE = Software(claude_code=None, model=None, replayed=False, tools={})


class Stored(NamedTuple):
    """The project in S3; one that was cancelled early has none."""

    files: list[Hashed]  # by their paths within the project
    archive: Hashed | None


class Round(NamedTuple):
    """One iteration; the last may have been cut short before its checks."""

    number: int
    agent: dict[str, Any]
    software: Software
    checks: CheckReport | None
    clean_room: CheckReport | None
    changes: Changes | None
    cost: Cost


def run(state: State, services: Services) -> Result:
    """Store files, archive, result, summary, evidence, and the manifest."""
    record = services.tasks.running(state.task_id, state.attempt, stage="extracting")
    folder = TaskFolder(state.task_id)
    services.objects.delete(folder.manifest)  # of an earlier attempt: this result is not complete
    forget_files(state, folder, services)
    project = Stored([], None)
    if state.checkpoint:
        with services.objects.open(state.checkpoint) as checkpoint:
            for _ in project_files(checkpoint):
                pass  # read to its end once: of an archive that is refused, nothing is stored
        with services.objects.open(state.checkpoint) as checkpoint:
            project = store_project(checkpoint, folder, services)
    if not project.files and verdict(state)[0] == "SUCCEEDED":
        raise InputError("no_files", "The agent left no file in the project's folder.")
    at = now()
    rounds = all_rounds(state, Ledger.of(record), at, project, services)
    content = describe(state, record, at, rounds, project, services)
    documents = store_documents(content, folder, services)
    store_evidence(prove(state, content, rounds, project, documents, services), folder, services)
    services.objects.write_json(
        folder.manifest,
        {"task_id": state.task_id, "attempt": state.attempt, "files": listed(project)},
    )
    return Result(
        bucket=services.objects.bucket,
        prefix=folder.prefix,
        files=len(project.files),
        bytes=sum(file.bytes for file in project.files),
    )


def forget_files(state: State, folder: TaskFolder, services: Services) -> None:
    """Remove the files of an earlier attempt's result: this one may not have them."""
    if state.attempt > 1 and services.objects.exists(folder.result):
        for file in services.objects.read_json(folder.result)["files"]:
            services.objects.delete(folder.files + file["path"])


def store_project(checkpoint: IO[bytes], folder: TaskFolder, services: Services) -> Stored:
    """Store each file, and all of them as one clean archive."""
    files = []
    with (
        ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool,
        tempfile.TemporaryFile() as packed,
    ):
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as tar:
            uploads = []
            for file, data in project_files(checkpoint):
                tar.addfile(header(file), io.BytesIO(data))
                uploads.append(pool.submit(services.objects.write, folder.files + file.path, data))
                if len(uploads) > 4 * UPLOADS_AT_ONCE:
                    uploads.pop(0).result()  # keeps few files in memory, and raises what failed
                sha256 = hashlib.sha256(data).hexdigest()
                files.append(Hashed(path=file.path, bytes=file.size, sha256=sha256))
            for upload in uploads:
                upload.result()
        size = packed.tell()
        packed.seek(0)
        sha256 = hashlib.file_digest(packed, "sha256").hexdigest()
        packed.seek(0)
        services.objects.upload_file(folder.archive, packed)
    path = folder.archive.removeprefix(folder.prefix)
    archive = Hashed(path=path, bytes=size, sha256=sha256)
    return Stored(sorted(files, key=lambda file: file.path), archive)


def listed(project: Stored) -> list[dict[str, Any]]:
    """The project's files, as manifest and result.json have them."""
    return [file.model_dump() for file in project.files]


def all_rounds(
    state: State, ledger: Ledger, at: str, project: Stored, services: Services
) -> list[Round]:
    """Collect what every iteration came to, from what was stored of it."""
    found, folder, objects = [], TaskFolder(state.task_id), services.objects
    files = digests_of(folder.checkpoint(0), services) or {}
    for number in range(1, state.iteration + 1):
        before, key = files, folder.checkpoint(number)
        if key == state.checkpoint:
            after: Digests | None = {file.path: file.sha256 for file in project.files}
        else:
            after = digests_of(key, services)
        files = before if after is None else after
        checks = objects.report(folder.checks(number))
        said = objects.outcome(folder.transcript(number))
        if not (checks or said):
            continue
        agent = said.model_dump(include={"outcome", "turns", "tokens"}) if said else {}
        run = state.run if state.run and state.run.iteration == number else None
        # The service knows better how a run ended, and what it cost.
        known = run.model_dump(include={"outcome", "turns"}) if run else {}
        cost = ledger.of_iteration(number, at)
        agent = {
            **{"outcome": None, "turns": 0, "tokens": {}},
            **{**agent, **known, **(checks.agent if checks else {})},
            "model_usd": cost.model_usd,
        }
        clean_room = objects.report(folder.clean_room(number))
        software = Software(
            claude_code=said.version if said else None,
            model=said.model if said else None,
            replayed=bool(said and said.replayed),
            tools=clean_room.versions if clean_room else {},
        )
        changes = None if after is None else compare(before, after)
        found.append(Round(number, agent, software, checks, clean_room, changes, cost))
    return found


def digests_of(checkpoint: str, services: Services) -> Digests | None:
    """Hash the files of a checkpoint; None if it was not kept, or is no project's."""
    if not services.objects.exists(checkpoint):
        return None
    try:
        with services.objects.open(checkpoint) as archive:
            return digests(archive)
    except InputError:
        return None  # the iteration that left it was ended for it


def software_of(rounds: list[Round]) -> Software:
    """What did the work in the end; one replayed answer is enough to say so."""
    last = rounds[-1].software if rounds else NO_SOFTWARE
    return last.model_copy(update={"replayed": any(one.software.replayed for one in rounds)})


def describe(
    state: State,
    record: dict[str, Any],
    at: str,
    rounds: list[Round],
    project: Stored,
    services: Services,
) -> dict[str, Any]:
    """Say everything about the task in one file: result.json."""
    status, failure = verdict(state)
    stored = services.objects.plan(state.task_id)
    took = datetime.fromisoformat(at) - datetime.fromisoformat(record["started_at"])
    return {
        "task_id": state.task_id,
        "attempt": state.attempt,
        "status": status,
        "failure": failure.model_dump() if failure else None,
        "message": services.objects.read_json(TaskFolder(state.task_id).message),
        "planning": state.plan.model_dump(exclude_none=True) if state.plan else None,
        "plan": stored.plan.model_dump() if stored else None,
        "iterations": [as_result(one) for one in rounds],
        "cost": Ledger.of(record).cost(at).model_dump(),
        "created_at": record["created_at"],
        "started_at": record["started_at"],
        "written_at": at,
        "seconds": round(took.total_seconds(), 1),
        "software": software_of(rounds).model_dump(),
        "evidence_key": fingerprint(services.signer.public_key),
        "files": listed(project),
    }


def as_result(one: Round) -> dict[str, Any]:
    """Say an iteration as result.json does."""
    report = one.checks or CheckReport(toolchain=None)
    content = report.model_dump(mode="json", exclude={"versions"})
    clean_room = None
    if one.clean_room:
        afresh = one.clean_room.model_dump(mode="json")
        clean_room = afresh["checks"]
        content["findings"] += afresh["findings"]
    return {
        "iteration": one.number,
        **content,
        "agent": one.agent,
        "changes": one.changes.model_dump() if one.changes else None,
        "checked": one.checks is not None,
        "clean_room": clean_room,
        "cost": one.cost.model_dump(),
    }


def store_documents(
    content: dict[str, Any], folder: TaskFolder, services: Services
) -> list[Hashed]:
    """Store result and summary; say what they and what the task began with hold."""
    objects = services.objects
    given = [folder.message, *([folder.plan] if content["plan"] else [])]
    page = as_markdown(summarize(content)).encode()
    return [
        *(hashed(folder, key, objects.read(key)) for key in given),
        objects.keep(folder, folder.result, as_json(content), "application/json"),
        objects.keep(folder, folder.summary, page, "text/markdown"),
    ]


def prove(
    state: State,
    content: dict[str, Any],
    rounds: list[Round],
    project: Stored,
    documents: list[Hashed],
    services: Services,
) -> Evidence:
    """Put together what the result rests on."""
    said = {name: content[name] for name in ("task_id", "status", "failure")}
    times = {name: content[name] for name in ("created_at", "started_at", "written_at")}
    return Evidence(
        **said,
        **times,
        attempt=state.attempt,
        service=service(services.settings.stack_name),
        software=software_of(rounds),
        cost=Cost.model_validate(content["cost"]),
        iterations=[
            Iteration(
                iteration=one.number,
                agent=Agent(**{name: one.agent[name] for name in Agent.model_fields}),
                checks=Ran.of(one.checks) if one.checks else None,
                clean_room=Ran.of(one.clean_room) if one.clean_room else None,
            )
            for one in rounds
        ],
        documents=documents,
        archive=project.archive,
        files=[file.model_copy(update={"path": f"files/{file.path}"}) for file in project.files],
    )


def store_evidence(evidence: Evidence, folder: TaskFolder, services: Services) -> None:
    """Store the evidence, the signature of its bytes, and the key that they are checked with."""
    body = as_json(evidence.model_dump(mode="json"))
    services.objects.write(folder.evidence, body, "application/json")
    signature = services.signer.sign(body)
    services.objects.write(folder.signature, signature, "application/octet-stream")
    public_key = pem(services.signer.public_key)
    services.objects.write(folder.public_key, public_key, "application/x-pem-file")


handler = step(run)
