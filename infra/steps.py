"""The functions: one file in functions/ is one Lambda, with a role of its own."""

from collections.abc import Sequence
from typing import NamedTuple

from aws_cdk import Annotations, Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from autocoder.ports.tasks import QUEUE_INDEX, STATUS_INDEX
from infra.egress import egress_of, registries_here, warnings
from infra.explained import explain, shown
from infra.layers import Layers
from infra.settings import ROOT, Settings
from infra.storage import Storage
from infra.template import template_name

READ, CREATE, UPDATE = "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"
GET, PUT, DELETE = "s3:GetObject", "s3:PutObject", "s3:DeleteObject"


class Spec(NamedTuple):
    """What a function needs, and what it may do."""

    memory_mb: int
    timeout_s: int
    tasks: tuple[str, ...]  # its actions on the Tasks table
    sandbox: bool = False  # it talks to E2B
    planner: bool = False  # it talks to Anthropic
    bucket: tuple[str, ...] = ()  # its actions on tasks/* in S3
    sources: bool = False  # it reads what senders put into sources/*
    indexes: tuple[str, ...] = ()  # the indexes of the Tasks table that it queries
    feed: bool = True  # it writes to TaskEvents
    emits: bool = True  # it puts events on EventBridge
    signs: bool = False  # it signs evidence, as no other function can


# A function that follows a job returns `running` shortly before its time-out, and is called again.
FUNCTIONS = {
    "start_task": Spec(256, 60, (READ, CREATE, UPDATE), bucket=(GET, PUT), sources=True),
    "dispatch_tasks": Spec(
        256, 60, (READ, UPDATE), feed=False, emits=False, indexes=(QUEUE_INDEX,)
    ),
    "plan_task": Spec(1024, 300, (UPDATE,), planner=True, bucket=(GET, PUT)),
    "create_sandbox": Spec(
        512, 300, (UPDATE,), sandbox=True, bucket=(GET, PUT), sources=True, emits=False
    ),
    "run_claude_code": Spec(512, 900, (UPDATE,), sandbox=True, bucket=(GET, PUT), emits=False),
    "test_and_build": Spec(512, 900, (UPDATE,), sandbox=True, bucket=(GET, PUT), emits=False),
    "decide_next": Spec(256, 30, (UPDATE,), feed=False),
    "verify_clean": Spec(512, 900, (UPDATE,), sandbox=True, bucket=(GET, PUT), emits=False),
    "extract_artifacts": Spec(
        1024, 600, (UPDATE,), bucket=(GET, PUT, DELETE), feed=False, emits=False, signs=True
    ),
    "finish_task": Spec(512, 120, (READ, UPDATE), sandbox=True),
    # Not steps: they end what the workflow could not.
    "end_stranded_task": Spec(512, 120, (READ, UPDATE), sandbox=True),
    "reap_sandboxes": Spec(
        512, 300, (READ, UPDATE), sandbox=True, indexes=(STATUS_INDEX, QUEUE_INDEX)
    ),
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
        registries = registries_here()
        self.egress = egress_of(settings, registries)
        for text in warnings(settings, registries):
            Annotations.of(self).add_warning(text)
        self.template = template_name(settings, self.egress)
        # Stacks of the same name in other accounts may share the E2B team.
        self.sandbox_owner = f"{Stack.of(self).stack_name}-{Aws.ACCOUNT_ID}-{Aws.REGION}"
        self.anthropic_key = secretsmanager.Secret.from_secret_name_v2(
            self, "AnthropicKey", settings.anthropic_secret_name
        )
        self.functions = {name: self._function(name, spec) for name, spec in FUNCTIONS.items()}

    def __getitem__(self, name: str) -> lambda_.Function:
        """Give a function by its file's name."""
        return self.functions[name]

    def version(self, name: str, *, caller: iam.Role) -> lambda_.IVersion:
        """Give the version that is deployed now, and let the caller call it.

        Older ones too: an execution goes on with the definition that it was started with.
        """
        function = self.functions[name]
        function.grant_invoke(caller)
        every_version = f"IAM5[Resource::{shown(function)}:*]"
        explain(caller, {every_version: "Tasks that run during a deploy call older versions."})
        return function.current_version

    def _function(self, name: str, spec: Spec) -> lambda_.Function:
        id = "".join(part.capitalize() for part in name.split("_"))
        log_group = logs.LogGroup(
            self,
            f"{id}Logs",
            retention=self.storage.log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, f"{id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            id,
            description=f"Autocoder: functions/{name}.py",
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
                *([self.layers.anthropic] if spec.planner else []),
            ],
            environment=self._environment(spec),
            log_group=log_group,
            role=role,
            tracing=lambda_.Tracing.ACTIVE,
            # Tasks that run during a deploy call the older versions: no deploy removes one.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
        )
        self._grant(role, spec)
        if name == "create_sandbox" and self.settings.key_in_sandbox:
            self.anthropic_key.grant_read(role)
        explain(role, {"IAM5[Resource::*]": "X-Ray's actions know no resources."})
        explain(function, {"L1": "The layers hold wheels for 3.13; both move together."})
        return function

    def _grant(self, role: iam.Role, spec: Spec) -> None:
        tasks, bucket = self.storage.tasks.table_arn, self.storage.bucket
        allow(role, spec.tasks, tasks)
        if spec.indexes:
            allow(role, ["dynamodb:Query"], *(f"{tasks}/index/{name}" for name in spec.indexes))
        if spec.feed:
            allow(role, [CREATE], self.storage.events.table_arn)
        if spec.emits:
            self.bus.grant_put_events_to(role)
        if spec.bucket:
            more = ["s3:AbortMultipartUpload"] if PUT in spec.bucket else []
            allow(role, [*spec.bucket, *more], bucket.arn_for_objects("tasks/*"))
            # Without it S3 answers 403, not 404, for an object that is not there.
            allow(role, ["s3:ListBucket"], bucket.bucket_arn)
            all_tasks = f"IAM5[Resource::{shown(bucket)}/tasks/*]"
            explain(role, {all_tasks: "Every task has a folder there."})
        if spec.sources:
            allow(role, [GET], bucket.arn_for_objects("sources/*"))
            every = f"IAM5[Resource::{shown(bucket)}/sources/*]"
            explain(role, {every: "Senders choose the names there."})
        if spec.signs:
            key = self.storage.evidence_key.key_arn
            allow(role, ["kms:Sign", "kms:GetPublicKey"], key)
        if spec.sandbox:
            self.e2b_key.grant_read(role)
        if spec.planner:
            self.anthropic_key.grant_read(role)

    def _environment(self, spec: Spec) -> dict[str, str]:
        variables = {
            "STACK_NAME": Stack.of(self).stack_name,
            "BUCKET_NAME": self.storage.bucket.bucket_name,
            "TASKS_TABLE": self.storage.tasks.table_name,
            "EVENTS_TABLE": self.storage.events.table_name,
            "RETENTION_DAYS": str(self.settings.retention_days),
        }
        if spec.sandbox:
            variables |= {
                "SANDBOX_OWNER": self.sandbox_owner,
                "E2B_SECRET_NAME": self.settings.e2b_secret_name,
                "E2B_TEMPLATE": self.template,
                "SANDBOX_CPUS": str(self.settings.sandbox_cpus),
                "SANDBOX_MEMORY_MB": str(self.settings.sandbox_memory_mb),
                "MODEL": self.settings.model,
                "EGRESS": self.egress.model_dump_json(),
            }
        if spec.signs:
            variables["EVIDENCE_KEY"] = self.storage.evidence_key.key_arn
        if spec.planner or (spec.sandbox and self.settings.key_in_sandbox):
            variables["ANTHROPIC_SECRET_NAME"] = self.settings.anthropic_secret_name
        if spec.planner:
            variables["MODEL"] = self.settings.model
        return variables


def allow(role: iam.Role, actions: Sequence[str], *resources: str) -> None:
    """Let a role do just this."""
    role.add_to_policy(iam.PolicyStatement(actions=[*actions], resources=[*resources]))
