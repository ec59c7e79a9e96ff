"""Puts the parts together and serves them on loopback."""

import logging
import os
import socket
import threading
from pathlib import Path
from typing import Any

from autocoder.local.aws import events, shims
from autocoder.local.aws.event_sources import QueuePoller
from autocoder.local.aws.functions import CREDENTIALS, CodeStore
from autocoder.local.aws.invocations import Invoker
from autocoder.local.aws.processes import ProcessPool, Zygote
from autocoder.local.aws.runtime_api import Outcome
from autocoder.local.aws.shims.hooks import Hooks
from autocoder.local.aws.shims.startup import skip_unused_services

ACCOUNT = "123456789012"
REGION = "us-east-1"


class PortTakenError(Exception):
    """Somebody else listens there, or may not; the text says what to do."""


class EmbeddedAws:
    """Starts serving when made; `close` ends every process it started."""

    def __init__(
        self,
        state_dir: Path,
        function_env: Path | None = None,
        port: int = 0,
        signing_key: Path | None = None,
    ) -> None:
        listener = listen(port)
        logs = state_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        _log_to(logs / "aws.log")
        _forget_credentials()
        self._zygote = Zygote(logs / "aws.log")  # first: it imports while this process does too
        limit = int(os.environ.get("AUTOCODER_LAMBDA_PROCESSES", "64"))
        self._pool = ProcessPool(self._zygote, logs, limit, function_env)
        skip_unused_services()
        self._server = _make_server(listener)
        self.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.close()  # the server has a copy of it
        self._pool.endpoint = self.endpoint
        self._connect(CodeStore(state_dir / "code"), signing_key)
        threading.Thread(target=self._server.serve_forever, name="moto", daemon=True).start()

    def close(self) -> None:
        self._zygote.close()

    def _connect(self, code: CodeStore, signing_key: Path | None) -> None:
        from moto.awslambda.models import lambda_backends
        from moto.sqs.models import sqs_backends

        functions = lambda_backends[ACCOUNT][REGION]
        queues = sqs_backends[ACCOUNT][REGION]

        def send(queue_arn: str, body: str) -> None:
            queues.send_message(queue_arn.rsplit(":", 1)[-1], body)

        invoker = Invoker(self._pool, code, functions.layers_versions_by_arn)

        def invoke(arn: str, payload: bytes) -> Outcome:
            return invoker.invoke(functions.get_function(arn), payload)

        delivery = events.Delivery(
            {
                "lambda": lambda arn, payload: invoker.invoke_later(
                    functions.get_function(arn), payload.encode()
                ),
                "sqs": send,
            }
        )
        shims.install(
            Hooks(
                endpoint=self.endpoint,
                invoke=invoker.invoke,
                invoke_later=invoker.invoke_later,
                event_source_added=lambda mapping: QueuePoller(mapping, queues, invoke).start(),
                event_matched=delivery.send,
                schedule_added=events.Scheduler(delivery.send).add,
                signing_key=signing_key,
            )
        )


def listen(port: int) -> socket.socket:
    """Take a port on loopback before anything else is done."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        reason = f"port {port} on 127.0.0.1 can't be used ({error.strerror})"
        raise PortTakenError(f"{reason}: name another one with --port, or 0 for any.") from None
    listener.listen(256)
    return listener


def _make_server(listener: socket.socket) -> Any:
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):  # type: ignore[misc]
        disable_nagle_algorithm = True  # a reply is two packets: 40 ms each time otherwise

    app = DomainDispatcherApplication(create_backend_app)
    port, fd = listener.getsockname()[1], listener.fileno()
    return make_server("127.0.0.1", port, app, threaded=True, request_handler=Handler, fd=fd)


def _log_to(file: Path) -> None:
    logging.basicConfig(
        filename=file,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.captureWarnings(True)
    logging.getLogger("autocoder").setLevel(logging.INFO)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it would log every request


def _forget_credentials() -> None:
    """A profile or endpoint of the user's must not reach the clients inside moto."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ.update(CREDENTIALS, AWS_DEFAULT_REGION=REGION, AWS_EC2_METADATA_DISABLED="true")
