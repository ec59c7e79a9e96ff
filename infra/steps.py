"""The functions: one file in functions/ is one Lambda, with a role of its own."""

from typing import NamedTuple

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.egress import egress_of, warnings
from infra.layers import Layers
from infra.settings import ROOT, Settings
from infra.storage import Storage

READ, CREATE, UPDATE = "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"


class Spec(NamedTuple):
    """What a function needs, and what it may do."""

    memory_mb: int
    timeout_s: int
    tasks: tuple[str, ...]  # its actions on the Tasks table
    sandbox: bool = False  # it talks to E2B
    bucket: bool = False  # it reads and writes tasks/* in S3
    feed: bool = True  # it writes to TaskEvents
    emits: bool = True  # it puts events on EventBridge


# A function that follows a job returns `running` shortly before its time-out, and is called again.
FUNCTIONS = {
    "start_task": Spec(256, 60, (READ, CREATE, UPDATE), bucket=True),
    "dispatch_tasks": Spec(
        256, 60, ("dynamodb:Query", "dynamodb:ConditionCheckItem", UPDATE), feed=False
    ),
    "create_sandbox": Spec(512, 300, (UPDATE,), sandbox=True, bucket=True, emits=False),
    "run_claude_code": Spec(512, 900, (UPDATE,), sandbox=True, bucket=True, emits=False),
    "test_and_build": Spec(512, 900, (UPDATE,), sandbox=True, bucket=True),
    "decide_next": Spec(256, 30, (UPDATE,), feed=False, emits=False),
    "extract_artifacts": Spec(1024, 600, (UPDATE,), bucket=True, feed=False, emits=False),
    "finish_task": Spec(512, 120, (READ, UPDATE), sandbox=True),
}


class Steps(Construct):
    """Every function of the service, by its file's name."""

    def __init__(self, scope: Construct, id: str, *, settings: Settings, storage: Storage) -> None:
        """Grants that depend on the other constructs are made there."""
        super().__init__(scope, id)
        self.settings = settings
        self.storage = storage
        self.layers = Layers(self, "Layers")
        self.code = lambda_.Code.from_asset(
            str(ROOT / "functions"), exclude=["__init__.py", "__pycache__"]
        )
        self.bus = events.EventBus.from_event_bus_name(self, "Bus", "default")
        self.e2b_key = secretsmanager.Secret.from_secret_name_v2(
            self, "E2bKey", settings.e2b_secret_name
        )
        self.egress = egress_of(settings)
        for text in warnings(settings, self.egress):
            Annotations.of(self).add_warning(text)
        self.anthropic_key = secretsmanager.Secret.from_secret_name_v2(
            self, "AnthropicKey", settings.anthropic_secret_name
        )
        self.functions = {name: self._function(name, spec) for name, spec in FUNCTIONS.items()}

    def __getitem__(self, name: str) -> lambda_.Function:
        """Give a function by its file's name."""
        return self.functions[name]

    def _function(self, name: str, spec: Spec) -> lambda_.Function:
        id = "".join(part.capitalize() for part in name.split("_"))
        log_group = logs.LogGroup(
            self,
            f"{id}Logs",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=RemovalPolicy.DESTROY,
        )
        function = lambda_.Function(
            self,
            id,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=self.code,
            handler=f"{name}.handler",
            memory_size=spec.memory_mb,
            timeout=Duration.seconds(spec.timeout_s),
            layers=[
                self.layers.code,
                self.layers.base,
                *([self.layers.e2b] if spec.sandbox else []),
            ],
            environment=self._environment(sandbox=spec.sandbox),
            log_group=log_group,
        )
        self._grant(function, spec)
        if name == "create_sandbox" and self.settings.key_in_sandbox:
            self.anthropic_key.grant_read(function)
        return function

    def _grant(self, function: lambda_.Function, spec: Spec) -> None:
        self.storage.tasks.grant(function, *spec.tasks)
        if spec.feed:
            self.storage.events.grant(function, CREATE)
        if spec.emits:
            self.bus.grant_put_events_to(function)
        if spec.bucket:
            self.storage.bucket.grant_read_write(function, "tasks/*")
        if spec.sandbox:
            self.e2b_key.grant_read(function)

    def _environment(self, *, sandbox: bool) -> dict[str, str]:
        variables = {
            "STACK_NAME": Stack.of(self).stack_name,
            "BUCKET_NAME": self.storage.bucket.bucket_name,
            "TASKS_TABLE": self.storage.tasks.table_name,
            "EVENTS_TABLE": self.storage.events.table_name,
            "RETENTION_DAYS": str(self.settings.retention_days),
        }
        if sandbox:
            variables |= {
                "E2B_SECRET_NAME": self.settings.e2b_secret_name,
                "E2B_TEMPLATE": self.settings.e2b_template,
                "MODEL": self.settings.model,
                "EGRESS": self.egress.model_dump_json(),
                "ANTHROPIC_SECRET_NAME": self.settings.anthropic_secret_name,
            }
        return variables
