"""Step Functions: executions that really run, once, to an end."""

import functools
import logging
import sys
import threading
import uuid
from typing import Any

from autocoder.local.aws import events
from autocoder.local.aws.shims.hooks import Hooks

log = logging.getLogger(__name__)


def execute_state_machines() -> None:
    """moto records executions and runs none, unless asked; and CloudFormation never asks."""
    import moto.stepfunctions.models as models
    from moto.core.config import default_user_config
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    models.stepfunctions_backends = stepfunctions_parser_backends


def parse_definitions_once() -> None:
    """moto parses the definition for each execution, 100 ms. The syntax tree can be kept."""
    from moto.stepfunctions.parser.asl.parse.asl_parser import (
        AmazonStateLanguageParser,
        Preprocessor,
    )

    parse = AmazonStateLanguageParser.parse

    @functools.lru_cache(maxsize=32)
    def syntax(definition: str) -> Any:
        return parse(definition)[1]

    def parse_definition(definition: str) -> tuple[Any, Any]:
        tree = syntax(definition)
        return Preprocessor().visit(tree), tree

    AmazonStateLanguageParser.parse = staticmethod(parse_definition)


def reuse_boto_clients(hooks: Hooks) -> None:
    """moto makes a client for each attempt of each task, 5 to 130 ms. One per service will do."""
    import boto3
    import moto.stepfunctions.parser.models  # noqa: F401 - imports every module patched below
    from botocore.config import Config
    from moto.stepfunctions.parser.asl.utils import boto_client

    settings = Config(
        parameter_validation=False,
        retries={"total_max_attempts": 1},
        connect_timeout=60,
        read_timeout=3600,
        max_pool_connections=128,
    )
    lock = threading.Lock()

    @functools.cache
    def create(region: str, service: str) -> Any:
        session: Any = boto3.session.Session("local", "local", region_name=region)
        return session.client(service, endpoint_url=hooks.endpoint, config=settings)

    def boto_client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        with lock:
            return create(region, service)

    original = boto_client.boto_client_for
    for module in list(sys.modules.values()):
        if getattr(module, "boto_client_for", None) is original:
            module.boto_client_for = boto_client_for  # type: ignore[attr-defined]


def start_executions_once() -> None:
    """moto looks for the name and adds the execution in two steps, and names one `None`."""
    from moto.stepfunctions.parser.backend.execution import Execution
    from moto.stepfunctions.parser.models import ExecutionStatus, StepFunctionsParserBackend

    lock = threading.Lock()
    begin, initialise = StepFunctionsParserBackend.start_execution, Execution.__init__

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        self.exec_status = ExecutionStatus.RUNNING  # moto: None, until the thread has started

    def start_execution(
        self: Any,
        state_machine_arn: str,
        name: str | None = None,
        execution_input: str | None = None,
        trace_header: str | None = None,
    ) -> Any:
        with lock:
            return begin(
                self,
                state_machine_arn,
                name or str(uuid.uuid4()),
                execution_input or "{}",
                trace_header,
            )

    Execution.__init__ = initialised
    StepFunctionsParserBackend.start_execution = start_execution


def finish_every_execution() -> None:
    """moto sends no status events, and an execution whose thread breaks stays RUNNING for ever."""
    from moto.events.models import events_backends
    from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication
    from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker
    from moto.stepfunctions.parser.models import ExecutionStatus

    terminated = BaseExecutionWorkerCommunication.terminated
    run = ExecutionWorker._execution_logic

    def emit(execution: Any) -> None:
        events_backends[execution.account_id][execution.region_name].put_events(
            [events.execution_entry(execution)]
        )

    def and_tell(self: Any) -> None:
        terminated(self)
        emit(self.execution)

    def or_fail(self: Any) -> None:
        try:
            run(self)
        except Exception as error:
            log.exception("an execution broke")
            execution = self._execution_communication.execution
            execution.stop_date = events.now()
            execution.error, execution.cause = "States.Runtime", repr(error)
            execution.exec_status = ExecutionStatus.FAILED
            emit(execution)

    BaseExecutionWorkerCommunication.terminated = and_tell
    ExecutionWorker._execution_logic = or_fail


def keep_the_reason_of_a_stop() -> None:
    """moto drops the error and cause of StopExecution. AWS shows them in the execution."""
    from moto.stepfunctions.responses import StepFunctionResponse

    stop = StepFunctionResponse.stop_execution

    def stop_execution(self: Any) -> Any:
        execution = self.stepfunction_backend.describe_execution(self._get_param("executionArn"))
        if execution.status == "RUNNING":
            execution.error = self._get_param("error")
            execution.cause = self._get_param("cause")
        return stop(self)

    StepFunctionResponse.stop_execution = stop_execution
