"""Every change made to moto, one function each: what moto does, what AWS does.

moto answers the AWS APIs; it was not made to run a system under load. Each shim closes one gap
that a deployed Autocoder would notice. They reach into moto's internals, so the version is pinned.
"""

import copy
import functools
import importlib.metadata
import logging
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autocoder.local.aws import events
from autocoder.local.aws.absent import AbsentServices
from autocoder.local.aws.runtime_api import Outcome

log = logging.getLogger(__name__)

MOTO = "5.2."


@dataclass(frozen=True)
class Hooks:
    """What the local cloud does in moto's place."""

    endpoint: str
    invoke: Callable[[Any, bytes], Outcome]
    invoke_later: Callable[[Any, bytes], None]
    event_source_added: Callable[[Any], None]
    event_matched: Callable[[Any, dict[str, Any]], None]
    schedule_added: Callable[[Any, Callable[[], bool]], None]


def install(hooks: Hooks) -> None:
    check_version()
    remember_what_a_request_is_for()
    run_functions_in_processes(hooks)
    keep_what_cloudformation_says_of_functions()
    name_layers_and_versions_by_arn()
    poll_event_sources(hooks)
    lock_queues()
    lock_tables()
    snapshot_tables_cheaply()
    lock_objects()
    execute_state_machines()
    parse_definitions_once()
    reuse_boto_clients(hooks)
    start_executions_once()
    finish_every_execution()
    keep_the_reason_of_a_stop()
    deliver_events(hooks)
    fire_schedules(hooks)
    accept_every_resource_type()
    name_the_resource_that_failed()


def check_version() -> None:
    """These shims were written against one minor version of moto: look again at another."""
    version = importlib.metadata.version("moto")
    if not version.startswith(MOTO):
        raise RuntimeError(f"The shims are made for moto {MOTO}x, this is {version}: check each.")


# --- start-up ------------------------------------------------------------------------------------


def skip_unused_services() -> None:
    """moto's CloudFormation imports every service; these take 1.4 s and are never called here."""
    sys.meta_path.insert(0, AbsentServices())


def remember_what_a_request_is_for() -> None:
    """moto lists its own folders and inspects its classes for every request: 2 ms, in a lock."""
    import moto.core.responses as responses
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    DomainDispatcherApplication.get_backend_for_host = functools.cache(
        DomainDispatcherApplication.get_backend_for_host
    )
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)


# --- Lambda --------------------------------------------------------------------------------------


def run_functions_in_processes(hooks: Hooks) -> None:
    """moto runs functions in Docker containers. Here they run in runtime processes."""
    from moto.awslambda.models import LambdaFunction

    def invoke(self: Any, body: Any, request_headers: Any, response_headers: Any) -> bytes:
        payload = (body.encode() if isinstance(body, str) else body) or b"{}"
        headers = {name.lower(): value for name, value in dict(request_headers).items()}
        response_headers["x-amz-executed-version"] = str(self.version)
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        if kind != "RequestResponse":  # the other two are Event and DryRun
            if kind == "Event":
                hooks.invoke_later(self, payload)
            return b""
        outcome = hooks.invoke(self, payload)
        if outcome.failed:
            response_headers["x-amz-function-error"] = "Unhandled"
        return outcome.payload

    LambdaFunction.invoke = invoke


def keep_what_cloudformation_says_of_functions() -> None:
    """moto drops layers, logging, dead letters, and the architectures of layers. AWS uses them."""
    from moto.awslambda.models import LambdaFunction, LayerVersion

    create_function = LambdaFunction.create_from_cloudformation_json.__func__
    create_layer = LayerVersion.create_from_cloudformation_json.__func__

    def function(cls: Any, name: str, template: Any, *args: Any, **kwargs: Any) -> Any:
        created = create_function(cls, name, template, *args, **kwargs)
        properties = template["Properties"]
        created.layers = created._get_layers_data(properties.get("Layers", []))
        created.architectures = properties.get("Architectures", ["x86_64"])
        created.logging_config = properties.get("LoggingConfig", {})
        created.dead_letters = properties.get("DeadLetterConfig", {})
        return created

    def layer(cls: Any, name: str, template: Any, *args: Any, **kwargs: Any) -> Any:
        created = create_layer(cls, name, template, *args, **kwargs)
        created.compatible_architectures = template["Properties"].get("CompatibleArchitectures", [])
        return created

    LambdaFunction.create_from_cloudformation_json = classmethod(function)
    LayerVersion.create_from_cloudformation_json = classmethod(layer)


def name_layers_and_versions_by_arn() -> None:
    """moto gives a layer version and a function version no physical id; `Ref` is their ARN."""
    from moto.awslambda.models import LambdaVersion, LayerVersion, lambda_backends

    LayerVersion.physical_resource_id = property(lambda self: self.arn)
    create_version = LambdaVersion.create_from_cloudformation_json.__func__

    def version(
        cls: Any, name: str, template: Any, account: str, region: str, /, **kwargs: Any
    ) -> Any:
        created = create_version(cls, name, template, account, region, **kwargs)
        function = lambda_backends[account][region].get_function(
            template["Properties"]["FunctionName"], str(created.version)
        )
        created.physical_resource_id = function.function_arn
        return created

    LambdaVersion.create_from_cloudformation_json = classmethod(version)
    LambdaVersion.has_cfn_attr = classmethod(lambda cls, attr: attr == "Version")
    LambdaVersion.get_cfn_attribute = lambda self, _: str(self.version)


def poll_event_sources(hooks: Hooks) -> None:
    """moto invokes the function inside SendMessage, a message at a time. AWS polls the queue."""
    from moto.awslambda.models import LambdaBackend
    from moto.sqs.models import sqs_backends

    create = LambdaBackend.create_event_source_mapping

    def create_event_source_mapping(self: Any, spec: dict[str, Any]) -> Any:
        mapping = create(self, spec)
        for queue in sqs_backends[self.account_id][self.region_name].queues.values():
            if queue.queue_arn == mapping.event_source_arn:
                queue.lambda_event_source_mappings.clear()
                hooks.event_source_added(mapping)
        return mapping

    LambdaBackend.create_event_source_mapping = create_event_source_mapping


# --- locks ---------------------------------------------------------------------------------------


# fmt: off
QUEUE_OPERATIONS = (
    "change_message_visibility", "change_message_visibility_batch", "create_queue",
    "delete_message", "delete_message_batch", "delete_queue", "get_queue_attributes",
    "purge_queue", "send_message", "send_message_batch", "set_queue_attributes",
)
# fmt: on


def lock_queues() -> None:
    """moto's queues have no lock, so a message can be received twice. SQS delivers it once.

    Its long poll also looks only once a second; this one wakes with the message.
    """
    from moto.sqs.models import Queue, SQSBackend

    changed = threading.Condition(threading.RLock())
    receive, add = SQSBackend.receive_message, Queue.add_message

    def receive_message(
        self: Any,
        queue_name: str,
        count: int,
        wait_seconds_timeout: float,
        visibility_timeout: int,
        message_attribute_names: list[str] | None = None,
    ) -> list[Any]:
        ends = time.monotonic() + float(wait_seconds_timeout or 0)
        with changed:
            while True:
                found: list[Any] = receive(
                    self, queue_name, count, 0, visibility_timeout, message_attribute_names
                )
                remaining = ends - time.monotonic()
                if found or remaining <= 0:
                    return found
                changed.wait(min(remaining, _next_visible(self.get_queue(queue_name))))

    def add_message(self: Any, message: Any) -> None:
        add(self, message)
        changed.notify_all()

    SQSBackend.receive_message = receive_message
    Queue.add_message = add_message
    for name in QUEUE_OPERATIONS:
        setattr(SQSBackend, name, _notifying(changed, getattr(SQSBackend, name)))


def _next_visible(queue: Any) -> float:
    """Seconds until a message that is delayed or in flight can be received."""
    hidden = [max(m.visible_at, m.delayed_until) / 1000 for m in queue._messages]
    return max(0.001, min(hidden, default=float("inf")) - time.time() + 0.001)


def _notifying(changed: threading.Condition, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with changed:
            try:
                return method(*args, **kwargs)
            finally:
                changed.notify_all()

    return call


def _locked(lock: Any, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return method(*args, **kwargs)

    return call


def lock_tables() -> None:
    """moto checks a condition and writes in two steps. DynamoDB's write is one."""
    from moto.dynamodb.responses import DynamoHandler

    DynamoHandler.call_action = _locked(threading.RLock(), DynamoHandler.call_action)


def snapshot_tables_cheaply() -> None:
    """moto copies whole tables, item by item, once for each write of a transaction.

    Here a copy shares the items, and an update works on a copy of its one item.
    """
    from moto.dynamodb.models import DynamoDBBackend
    from moto.dynamodb.models.table import Table

    update = DynamoDBBackend.update_item

    def share_items(self: Any, _: Any) -> Any:
        snapshot = copy.copy(self)
        snapshot.items = defaultdict(dict)
        for key, found in self.items.items():
            snapshot.items[key] = dict(found) if self.has_range_key else found
        return snapshot

    def update_item(self: Any, table_name: str, key: Any, *args: Any, **kwargs: Any) -> Any:
        table = self.get_table(table_name)
        hash_value, range_value = self.get_keys_value(table, key)
        if item := table.get_item(hash_value, range_value):
            place = table.items[hash_value] if table.has_range_key else table.items
            place[range_value if table.has_range_key else hash_value] = copy.deepcopy(item)
        return update(self, table_name, key, *args, **kwargs)

    Table.__deepcopy__ = share_items
    DynamoDBBackend.update_item = update_item


def lock_objects() -> None:
    """moto checks `If-None-Match: *` and puts in two steps. S3 lets exactly one writer win."""
    from moto.s3.responses import S3Response

    lock = threading.RLock()
    for name in ("put_object", "delete_object", "_key_response_post"):
        setattr(S3Response, name, _locked(lock, getattr(S3Response, name)))


# --- Step Functions ------------------------------------------------------------------------------


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


# --- EventBridge ---------------------------------------------------------------------------------


def deliver_events(hooks: Hooks) -> None:
    """moto refuses Lambda targets, and sends disabled rules and schedules every event."""
    from moto.events.models import Rule

    def send_to_targets(self: Any, original_event: dict[str, Any], *_: Any, **__: Any) -> None:
        if self.event_pattern.get_pattern() and self.event_pattern.matches_event(original_event):
            event = {k: v for k, v in original_event.items() if k != "ingestion-time"}
            hooks.event_matched(self, event | {"time": events.iso(event["time"])})

    Rule.send_to_targets = send_to_targets


def fire_schedules(hooks: Hooks) -> None:
    """moto records schedules and never fires one."""
    from moto.events.models import EventsBackend

    put = EventsBackend.put_rule

    def put_rule(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        rule = put(self, name, *args, **kwargs)
        if rule.scheduled_expression:
            bus = self.describe_event_bus("default")
            hooks.schedule_added(rule, lambda: bus.rules.get(rule.name) is rule)
        return rule

    EventsBackend.put_rule = put_rule


# --- CloudFormation ------------------------------------------------------------------------------


def accept_every_resource_type() -> None:
    """moto skips types that it does not know, so that what refers to them breaks."""
    from moto.cloudformation import parsing

    from autocoder.local.aws.cloudformation import Inert

    def resource_class_from_type(resource_type: str) -> Any:
        # A custom resource's provider is CDK's own function, often not written in Python.
        return parsing.get_model_map().get(resource_type, Inert)

    parsing.resource_class_from_type = resource_class_from_type


def name_the_resource_that_failed() -> None:
    """moto raises whatever broke. CloudFormation says which resource it was, and why."""
    from moto.cloudformation import parsing
    from moto.cloudformation.exceptions import ValidationError

    create = parsing.parse_and_create_resource

    class ResourceFailedError(ValidationError):  # type: ignore[misc]
        """Already names its resource: what depends on it must not take the blame."""

    def parse_and_create_resource(
        logical_id: str, resource_json: Any, *args: Any, **kw: Any
    ) -> Any:
        try:
            return create(logical_id, resource_json, *args, **kw)
        except ResourceFailedError:
            raise
        except Exception as error:
            log.exception("%s could not be created", logical_id)
            reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            raise ResourceFailedError(
                message=f"{logical_id} ({resource_json['Type']}): {reason}"
            ) from error

    parsing.parse_and_create_resource = parse_and_create_resource
