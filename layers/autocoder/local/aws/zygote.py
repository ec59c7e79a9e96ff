"""Forks Lambda runtime processes that start with the common modules already imported.

Run as a script by `processes.Zygote`, without `site`: an editable install of this project is a
`.pth` file, so nothing of the project can be imported here or in the children, except from what
was deployed. It has no threads, because a fork copies only the calling one.

    stdin   one JSON object per line: start a worker, or kill one
    stdout  one JSON object per line: a worker has ended, with its exit status
    EOF     the server is gone: every worker, and whatever it started, is killed
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from typing import Any

PRELOADED = (
    "boto3",
    "botocore.httpsession",
    "botocore.signers",
    "http.client",
    "pydantic",
    "aws_lambda_powertools",
    "aws_lambda_powertools.metrics",
    "aws_lambda_powertools.utilities.batch",
    "e2b",
)
SERVICES = ("dynamodb", "events", "s3", "secretsmanager", "sqs", "stepfunctions")
PR_SET_PDEATHSIG = 1


def preload() -> None:
    """Import what most handlers import; one that is not installed is left to the handler."""
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            sys.stderr.write(f"zygote: {name} is not preloaded: {error}\n")
    if "boto3" in sys.modules:
        share_service_models()
    gc.collect()
    gc.freeze()  # the children then do not copy these pages just to mark them


def share_service_models() -> None:
    """Parse the AWS service models once; every botocore session of the children reuses them."""
    import boto3
    import botocore.session

    loader = botocore.session.create_loader()
    botocore.session.create_loader = lambda search_path_string=None: loader
    session: Any = boto3.session.Session("unused", "unused", region_name="us-east-1")
    for service in SERVICES:
        session.client(service)  # the loader keeps what this reads, the client is dropped


def become_runtime(request: dict[str, Any], zygote: int) -> None:
    """Turn this freshly forked child into the function's runtime process."""
    os.setsid()  # one process group, so that what the handler starts ends with it
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:
        os._exit(1)  # the zygote was killed before it could be watched
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, max(log, null) + 1)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["task_root"])
    sys.path[:0] = request["path"]
    # Imported only now: on import it reads the Runtime API's address from the environment.
    from awslambdaric import __main__ as runtime
    from awslambdaric import bootstrap

    # CloudWatch shows its carriage returns as line ends, a terminal does not.
    bootstrap.ERROR_LOG_LINE_TERMINATE = "\n"
    runtime.main(["bootstrap", request["handler"]])


def fork_worker(request: dict[str, Any]) -> int:
    zygote = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        become_runtime(request, zygote)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # A child must never fall back into the zygote's loop.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def kill(pid: int) -> None:
    """Kill a worker and its group, which exists only once the worker called setsid."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            send(pid, signal.SIGKILL)


class Workers:
    """The children, by process id."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def obey(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._names[fork_worker(request)] = request["start"]
        else:
            for pid, name in self._names.items():
                if name == request["kill"]:
                    kill(pid)

    def reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what the handler left running
            ended = {"ended": self._names.pop(pid), "status": os.waitstatus_to_exitcode(status)}
            with contextlib.suppress(BrokenPipeError):  # the server is gone: EOF follows
                os.write(1, json.dumps(ended).encode() + b"\n")

    def kill_all(self) -> None:
        for pid in self._names:
            kill(pid)


def serve(workers: Workers, child_ended: int) -> None:
    """Obey the server until it closes the pipe."""
    unfinished = b""
    while True:
        ready, _, _ = select.select([0, child_ended], [], [])
        if child_ended in ready:
            os.read(child_ended, 4096)
            workers.reap()
        if 0 in ready:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *lines, unfinished = (unfinished + chunk).split(b"\n")
            for line in lines:
                workers.obey(json.loads(line))


def main() -> None:
    sys.path.extend(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    child_ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    preload()
    workers = Workers()
    try:
        serve(workers, child_ended)
    finally:
        workers.kill_all()


if __name__ == "__main__":
    main()
