"""The functions: one file in functions/ is one Lambda, with a role of its own."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.layers import Layers
from infra.settings import ROOT, Settings
from infra.storage import Storage

# name: (memory in MB, time-out in seconds, whether it talks to a sandbox). A function that follows
# a job returns `running` shortly before its time-out and is called again.
FUNCTIONS = {
    "start_task": (256, 60, False),
    "dispatch_tasks": (256, 60, False),
    "create_sandbox": (512, 300, True),
    "run_claude_code": (512, 900, True),
    "test_and_build": (512, 900, True),
    "decide_next": (256, 30, False),
    "extract_artifacts": (1024, 600, False),
    "finish_task": (512, 120, True),
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
        self.functions = {name: self._function(name) for name in FUNCTIONS}
        self._allow_sandboxes()

    def __getitem__(self, name: str) -> lambda_.Function:
        """Give a function by its file's name."""
        return self.functions[name]

    def _function(self, name: str) -> lambda_.Function:
        memory, timeout_s, sandbox = FUNCTIONS[name]
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
            memory_size=memory,
            timeout=Duration.seconds(timeout_s),
            layers=[self.layers.code, self.layers.base, *([self.layers.e2b] if sandbox else [])],
            environment=self._environment(sandbox=sandbox),
            log_group=log_group,
        )
        self.storage.tasks.grant_read_write_data(function)
        self.storage.events.grant(function, "dynamodb:PutItem")
        events.EventBus.grant_all_put_events(function)
        if name not in ("dispatch_tasks", "decide_next", "finish_task"):
            self.storage.bucket.grant_read_write(function, "tasks/*")
        return function

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
            }
        return variables

    def _allow_sandboxes(self) -> None:
        secret = secretsmanager.Secret.from_secret_name_v2(
            self, "E2bKey", self.settings.e2b_secret_name
        )
        for name, (_, _, sandbox) in FUNCTIONS.items():
            if sandbox:
                secret.grant_read(self.functions[name])
