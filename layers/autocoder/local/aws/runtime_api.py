"""The Lambda Runtime API that a runtime process polls: one listener for each process.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import SimpleQueue

PREFIX = "/2018-06-01/runtime/"


@dataclass(frozen=True)
class Outcome:
    """What an invocation gave: the handler's JSON, or an error as Lambda words it."""

    payload: bytes
    failed: bool = False

    @classmethod
    def error(cls, kind: str, message: str) -> "Outcome":
        return cls(json.dumps({"errorType": kind, "errorMessage": message}).encode(), failed=True)


class Invocation:
    """One event on its way through a runtime process."""

    def __init__(self, arn: str, payload: bytes, timeout: float) -> None:
        self.id = str(uuid.uuid4())
        self.arn = arn
        self.payload = payload
        self.deadline = time.time() + timeout
        self._outcome: Outcome | None = None
        self._finished = threading.Event()

    def finish(self, outcome: Outcome) -> None:
        self._outcome = self._outcome or outcome
        self._finished.set()

    def wait(self) -> Outcome | None:
        """The outcome, or None when the function's time is up."""
        self._finished.wait(self.deadline - time.time())
        return self._outcome


class RuntimeApi:
    """Serves one runtime process: hands it invocations and takes what it answers."""

    def __init__(self) -> None:
        self.initialised = threading.Event()
        self.init_error: Outcome | None = None
        self._inbox: SimpleQueue[Invocation | None] = SimpleQueue()
        self._current: Invocation | None = None
        self._ended: Callable[[Invocation | None], Outcome] | None = None
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._server.timeout = 1
        threading.Thread(target=self._serve, name="runtime-api", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def alive(self) -> bool:
        return self._ended is None

    def hand(self, invocation: Invocation) -> None:
        with self._lock:
            if self._ended:
                invocation.finish(self._ended(invocation))
            else:
                self._current = invocation
                self._inbox.put(invocation)

    def end(self, reason: Callable[[Invocation | None], Outcome]) -> None:
        """The process is gone: fail what it was doing and stop listening."""
        with self._lock:
            self._ended = reason
            if self._current:
                self._current.finish(reason(self._current))
            if not self.initialised.is_set():
                self.init_error = self.init_error or reason(None)
                self.initialised.set()
            self._inbox.put(None)

    def next(self) -> Invocation | None:
        self.initialised.set()
        return self._inbox.get()

    def answer(self, request_id: str, outcome: Outcome) -> bool:
        with self._lock:
            if self._current is None or self._current.id != request_id:
                return False
            self._current.finish(outcome)
            self._current = None
            return True

    def _serve(self) -> None:
        with self._server:
            while self.alive:
                self._server.handle_request()


class _Server(HTTPServer):
    api: RuntimeApi


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets: 40 ms each time otherwise

    def do_GET(self) -> None:
        invocation = self.server.api.next()
        if invocation is None:
            self.close_connection = True
            return
        self._reply(
            200,
            invocation.payload,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation.id,
                "Lambda-Runtime-Deadline-Ms": str(int(invocation.deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        body = self._body()
        kind, _, rest = self.path.removeprefix(PREFIX).partition("/")
        if kind == "init":
            self.server.api.init_error = Outcome(body, failed=True)
            known = True
        else:
            request_id, _, verb = rest.partition("/")
            known = self.server.api.answer(request_id, Outcome(body, failed=verb == "error"))
        self._reply(202 if known else 400, b'{"status":"OK"}', {})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what a function does is in its own log."""
