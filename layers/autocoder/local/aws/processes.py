"""The pool of Lambda runtime processes: one for each concurrent invocation, kept warm."""

import importlib.util
import itertools
import json
import logging
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import IO, Any, cast

from autocoder.local.aws import functions
from autocoder.local.aws.functions import Function
from autocoder.local.aws.runtime_api import Invocation, Outcome, RuntimeApi

log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
INIT_SECONDS = 30.0
"""Lambda gives 10 s; a laptop under load may need longer for the same imports."""


class UnsupportedPlatformError(RuntimeError):
    """Lambda's Python runtime cannot be installed on this machine."""


class Worker:
    """One runtime process of one function."""

    _numbers = itertools.count(1)

    def __init__(self, function: Function) -> None:
        self.name = f"{function.label}-{next(self._numbers)}"
        self.function = function
        self.api = RuntimeApi()
        self.idle_since = 0.0

    def ended(self, status: int) -> None:
        reason = "Runtime exited without providing a reason"
        if status > 0:
            reason = f"Runtime exited with error: exit status {status}"
        elif status < 0:
            name = signal.strsignal(-status) or str(-status)
            reason = f"Runtime exited with error: signal: {name.lower()}"

        def error(invocation: Invocation | None) -> Outcome:
            request = f"RequestId: {invocation.id} Error: " if invocation else ""
            return Outcome.error("Runtime.ExitError", request + reason)

        self.api.end(error)


class Zygote:
    """The process that forks the workers, and tells when one has ended."""

    def __init__(self, log_file: Path) -> None:
        if importlib.util.find_spec("awslambdaric") is None:
            raise UnsupportedPlatformError(
                "The local cloud runs handlers in AWS's own Python runtime, awslambdaric, which is "
                f"published for Linux only and is not installed on this {sys.platform} machine. "
                "Run it on Linux or in a Linux container."
            )
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()
        with log_file.open("ab") as stderr:
            process = subprocess.Popen(
                # -P -S: neither this folder nor any .pth file is on the children's path.
                [sys.executable, "-P", "-S", str(Path(__file__).with_name("zygote.py")), *_site()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=functions.CREDENTIALS | functions.from_host(),
            )
        self._process = process
        self._commands = cast(IO[bytes], process.stdin)
        self._endings = cast(IO[bytes], process.stdout)
        threading.Thread(target=self._listen, name="zygote", daemon=True).start()

    def start(self, worker: Worker, environment: dict[str, str], log_file: Path) -> None:
        with self._lock:
            self._workers[worker.name] = worker
        self._send(
            {
                "start": worker.name,
                "handler": worker.function.handler,
                "task_root": str(worker.function.task_root),
                "path": worker.function.path,
                "environment": environment,
                "log": str(log_file),
            }
        )

    def kill(self, worker: Worker) -> None:
        self._send({"kill": worker.name})

    def close(self) -> None:
        """End every worker: the zygote does so when its input ends."""
        with self._lock:
            self._commands.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers follow it: PR_SET_PDEATHSIG
            self._process.wait()

    def _send(self, request: dict[str, Any]) -> None:
        with self._lock:
            if not self._commands.closed:
                self._commands.write(json.dumps(request).encode() + b"\n")
                self._commands.flush()

    def _listen(self) -> None:
        for line in self._endings:
            event = json.loads(line)
            with self._lock:
                worker = self._workers.pop(event["ended"])
            worker.ended(event["status"])
        self._endings.close()
        with self._lock:
            orphans = list(self._workers.values())
            if not self._commands.closed:
                log.critical("the zygote has ended by itself: no function can be started any more")
        for worker in orphans:
            worker.ended(-signal.SIGKILL)


def _site() -> list[str]:
    """The folders of the installed packages, without what their .pth files would add."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"]]))


class ProcessPool:
    """Gives every invocation a process of its own: a warm one, or a new one."""

    def __init__(self, zygote: Zygote, logs: Path, limit: int, extra_env: Path | None) -> None:
        self.endpoint = ""
        self._zygote = zygote
        self._logs = logs
        self._limit = limit
        self._extra_env = extra_env
        self._idle: list[Worker] = []  # least recently used first
        self._size = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._retire_idle, name="retire-idle", daemon=True).start()

    def run(self, function: Function, payload: bytes) -> Outcome:
        worker = self._acquire(function)
        reusable = False
        try:
            if not worker.api.initialised.wait(INIT_SECONDS):
                return Outcome.error("Sandbox.Timedout", "The function's init phase timed out")
            if worker.api.init_error:
                return worker.api.init_error
            invocation = Invocation(function.arn, payload, function.timeout)
            worker.api.hand(invocation)
            outcome = invocation.wait()
            reusable = outcome is not None and worker.api.alive
            return outcome or self._timed_out(function, invocation)
        finally:
            self._give_back(worker, reusable)

    def _timed_out(self, function: Function, invocation: Invocation) -> Outcome:
        message = (
            f"RequestId: {invocation.id} Error: Task timed out after {function.timeout:.2f} seconds"
        )
        with self._log_file(function).open("a") as file:
            file.write(message + "\n")
        return Outcome.error("Sandbox.Timedout", message)

    def _acquire(self, function: Function) -> Worker:
        with self._changed:
            while True:
                for worker in reversed(self._idle):
                    if worker.function == function:
                        self._idle.remove(worker)
                        if worker.api.alive:
                            return worker
                        self._size -= 1
                if self._size < self._limit:
                    self._size += 1
                    break
                if self._idle:  # another function's: its place is taken over
                    self._zygote.kill(self._idle.pop(0))
                    break
                self._changed.wait()
        return self._start(function)

    def _start(self, function: Function) -> Worker:
        worker = Worker(function)
        try:
            variables = functions.environment(function, self.endpoint, self._extra_env)
            variables["AWS_LAMBDA_RUNTIME_API"] = worker.api.address
            self._zygote.start(worker, variables, self._log_file(function))
        except Exception:
            self._give_back(worker, reusable=False)
            raise
        return worker

    def _give_back(self, worker: Worker, reusable: bool) -> None:
        with self._changed:
            if reusable:
                worker.idle_since = time.monotonic()
                self._idle.append(worker)
            else:
                self._zygote.kill(worker)
                self._size -= 1
            self._changed.notify()

    def _log_file(self, function: Function) -> Path:
        return self._logs / f"{function.label}.log"

    def _retire_idle(self) -> None:
        while True:
            time.sleep(IDLE_SECONDS / 4)
            with self._changed:
                oldest = time.monotonic() - IDLE_SECONDS
                while self._idle and self._idle[0].idle_since < oldest:
                    self._zygote.kill(self._idle.pop(0))
                    self._size -= 1
