"""Workflow: DecideNext → here → FinishTask. Brings the last checkpoint's files to S3.

It reads the checkpoint, never the sandbox. `manifest.json` is written last: where it is, the result
is complete. A cancel that comes now comes too late: the task is decided, and ends as it would.
"""

import hashlib
import io
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from autocoder.archive import header, project_files
from autocoder.errors import InputError
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services, step
from autocoder.summary import write_summary
from autocoder.task import Result, State, verdict

UPLOADS_AT_ONCE = 8


def run(state: State, services: Services) -> Result:
    """Store files, archive, result, summary, and the manifest."""
    services.tasks.running(state.task_id, state.attempt, stage="extracting")
    folder = TaskFolder(state.task_id)
    services.objects.delete(folder.manifest)  # of an earlier attempt: this result is not complete
    files: list[dict[str, Any]] = []
    if state.run and state.run.checkpoint:  # one that was cancelled early has none
        with services.objects.open(state.run.checkpoint) as checkpoint:
            for _ in project_files(checkpoint):
                pass  # read to its end once: of an archive that is refused, nothing is stored
        with services.objects.open(state.run.checkpoint) as checkpoint:
            files = store_project(checkpoint, folder, services)
    status, failure = verdict(state)
    if not files and status == "SUCCEEDED":
        raise InputError("no_files", "The agent left no file in the project's folder.")
    stored = services.objects.plan(state.task_id)
    content = {
        "task_id": state.task_id,
        "status": status,
        "failure": failure.model_dump() if failure else None,
        "message": services.objects.read_json(folder.message),
        "planning": state.plan.model_dump(exclude_none=True) if state.plan else None,
        "plan": stored.plan.model_dump() if stored else None,
        "iterations": iterations(state, services),
        "cost": {"model_usd": state.run.cost_usd if state.run else 0.0},
        "files": files,
    }
    services.objects.write_json(folder.result, content)
    services.objects.write(folder.summary, write_summary(content), "text/markdown")
    size = sum(file["bytes"] for file in files)
    services.objects.write_json(
        folder.manifest, {"task_id": state.task_id, "attempt": state.attempt, "files": files}
    )
    return Result(
        bucket=services.objects.bucket, prefix=folder.prefix, files=len(files), bytes=size
    )


def store_project(
    checkpoint: IO[bytes], folder: TaskFolder, services: Services
) -> list[dict[str, Any]]:
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
                files.append({"path": file.path, "bytes": file.size, "sha256": sha256})
            for upload in uploads:
                upload.result()
        packed.seek(0)
        services.objects.upload_file(folder.archive, packed)
    return sorted(files, key=lambda file: str(file["path"]))


def iterations(state: State, services: Services) -> list[dict[str, Any]]:
    """Collect what every iteration found; the last may have been cut short before its checks."""
    found, folder = [], TaskFolder(state.task_id)
    for number in range(1, state.iteration + 1):
        if report := services.objects.report(folder.checks(number)):
            afresh = services.objects.report(folder.clean_room(number))
            clean_room = afresh.model_dump(mode="json")["checks"] if afresh else None
            content = report.model_dump(mode="json")
            if afresh:
                content["findings"] += afresh.model_dump(mode="json")["findings"]
            found.append({"iteration": number, **content, "clean_room": clean_room})
    return found


handler = step(run)
