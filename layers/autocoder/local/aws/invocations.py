"""Invoke, as Lambda answers it: at once with the outcome, or later with retries."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from autocoder.local.aws.functions import CodeStore, Function
from autocoder.local.aws.processes import ProcessPool
from autocoder.local.aws.runtime_api import Outcome

log = logging.getLogger(__name__)

RETRY_DELAYS = (1.0, 2.0)
"""Seconds before the second and third attempt; on AWS these are one and two minutes."""

LOGGING_VARIABLES = {"LogFormat": "LOG_FORMAT", "ApplicationLogLevel": "LOG_LEVEL"}


class Invoker:
    """Runs moto's functions in real runtime processes."""

    def __init__(
        self,
        pool: ProcessPool,
        code: CodeStore,
        find_layer: Callable[[str], Any],
    ) -> None:
        self._pool = pool
        self._code = code
        self._find_layer = find_layer

    def invoke(self, deployed: Any, payload: bytes) -> Outcome:
        return self._pool.run(self._function(deployed), payload)

    def invoke_later(self, deployed: Any, payload: bytes) -> None:
        function = self._function(deployed)
        name = f"async-{function.label}"
        threading.Thread(
            target=self._with_retries, args=(function, payload), name=name, daemon=True
        ).start()

    def _with_retries(self, function: Function, payload: bytes) -> None:
        for attempt in range(function.retries + 1):
            outcome = self._pool.run(function, payload)
            if not outcome.failed:
                return
            log.warning(
                "%s failed, attempt %d of %d: %s",
                *(function.label, attempt + 1, function.retries + 1, outcome.payload.decode()),
            )
            if attempt < function.retries:
                time.sleep(RETRY_DELAYS[min(attempt, len(RETRY_DELAYS) - 1)])
        log.error("%s failed for good, its event is dropped as on AWS", function.label)

    def _function(self, deployed: Any) -> Function:
        """Read what CloudFormation recorded about a function (see `shims`)."""
        settings = getattr(deployed, "async_settings", {})
        logged = getattr(deployed, "logging_config", {})
        return Function(
            arn=deployed.function_arn,
            name=deployed.function_name,
            version=str(deployed.version),
            label=getattr(deployed, "logical_resource_id", deployed.function_name),
            handler=deployed.handler,
            runtime=deployed.run_time,
            timeout=int(deployed.timeout),
            memory=int(deployed.memory_size),
            region=deployed.region,
            task_root=self._code.code(deployed.code_bytes, deployed.code_digest),
            layers=self._code.layers(self._find_layer(x["Arn"]) for x in deployed.layers),
            variables=tuple((k, str(v)) for k, v in deployed.environment_vars.items()),
            logging=tuple((v, logged[k]) for k, v in LOGGING_VARIABLES.items() if k in logged),
            retries=int(settings.get("MaximumRetryAttempts", 2)),
        )
