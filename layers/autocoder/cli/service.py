"""The service that a command talks to: a stack's outputs, and clients to reach what they name.

In AWS or on this machine: what follows from here on does not care which.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autocoder.cli.problems import UsageError
from autocoder.cli.target import Target
from autocoder.local.dynamodb import DynamoDB
from autocoder.local.running import find
from autocoder.local.state import REGION, LocalCloudError

if TYPE_CHECKING:
    from botocore.session import Session

# For the local cloud: nothing of the caller's own profiles and files.
NO_FILES: dict[str, Any] = {
    "profile": (None, [], None, None),
    "config_file": (None, [], os.devnull, None),
    "credentials_file": (None, [], os.devnull, None),
}


class Service:
    """A deployed stack. `where` says in words which one this is."""

    poll_s = 1.0  # how often a task is looked at that somebody watches

    def __init__(self, where: str, outputs: Mapping[str, str]) -> None:
        """`outputs` are the stack's: queues, tables, bucket, machine."""
        self.where = where
        self.outputs = outputs
        self.clients: dict[str, Any] = {}

    def client(self, name: str) -> Any:
        """A botocore client, by the service's name in it."""
        if name not in self.clients:
            self.clients[name] = self.connect(name)
        return self.clients[name]

    def connect(self, name: str) -> Any:
        """Make such a client."""
        raise NotImplementedError

    @property
    def dynamodb(self) -> Any:
        """The tables, with DynamoDB's own typed values."""
        return self.client("dynamodb")

    def use_e2b(self) -> None:
        """Have the E2B SDK, which goes by the environment, reach what this service's functions do.

        For a stack in AWS that is E2B itself, or what the caller's own variables name.
        """

    def send(self, body: str) -> str:
        """Put a message on the queue; give SQS's id of it, which becomes the task's if need be."""
        queue = self.outputs["TaskQueueUrl"]
        answer = self.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
        return str(answer["MessageId"]).lower()


class LocalService(Service):
    """A local cloud that is running."""

    poll_s = 0.25

    def __init__(
        self,
        endpoint: str,
        outputs: Mapping[str, str],
        sandboxes: Mapping[str, str] | None = None,
        *,
        only_scenarios: bool = False,
    ) -> None:
        """Its outputs are known without asking; `sandboxes` says where those are."""
        super().__init__("the local cloud", outputs)
        self.endpoint = endpoint
        self.sandboxes = sandboxes or {}
        self.only_scenarios = only_scenarios

    def use_e2b(self) -> None:
        """Reach the sandbox server on loopback, whatever proxies there are."""
        os.environ |= {
            "E2B_API_URL": self.sandboxes["api_url"],
            "E2B_SANDBOX_URL": self.sandboxes["sandbox_url"],
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def connect(self, name: str) -> Any:
        """Reach it on loopback, whatever proxies there are."""
        if name == "dynamodb":
            return DynamoDB(self.endpoint)
        from botocore.config import Config

        return self.session.create_client(
            name,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106 - it takes any
            config=Config(proxies={}),
        )

    @cached_property
    def session(self) -> "Session":
        """Nothing of the caller's AWS set-up has a part in it."""
        from botocore.session import Session

        return Session(session_vars=NO_FILES)


class AwsService(Service):
    """A stack in AWS, whose outputs CloudFormation tells."""

    def __init__(self, session: "Session", stack: str, region: str) -> None:
        """Ask for the outputs: everything else follows from them."""
        self.session = session
        self.region = region
        super().__init__(f"the stack {stack} in {region}", {})
        self.outputs = self.outputs_of(stack)

    def connect(self, name: str) -> Any:
        """Reach AWS as the aws CLI does; what a person waits for gives up sooner than a server."""
        from botocore.config import Config

        settings = Config(connect_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
        return self.session.create_client(name, region_name=self.region, config=settings)

    def outputs_of(self, stack: str) -> dict[str, str]:
        """Read what the stack says of itself."""
        from botocore.exceptions import ClientError

        try:
            answer = self.client("cloudformation").describe_stacks(StackName=stack)
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
            raise UsageError(
                f"there is no stack {stack} in {self.region}: name another with --stack, or its "
                "region with --region; or deploy it (docs/deploying.md)."
            ) from None
        found = answer["Stacks"][0].get("Outputs", [])
        outputs = {output["OutputKey"]: output["OutputValue"] for output in found}
        if "TasksTable" not in outputs:
            status = answer["Stacks"][0]["StackStatus"]
            raise UsageError(
                f"{self.where} is {status} and has no output TasksTable: wait until it is "
                "deployed, or name a stack of this service with --stack."
            )
        return outputs


def open_service(target: Target) -> Service:
    """Go where the command line says; without a word, to the local cloud if one is running."""
    named = target.stack or target.region or target.profile
    if named and target.local:
        raise UsageError(
            "--local is this machine, --stack, --region and --profile are AWS: choose."
        )
    if not named:
        running = find()
        if running and running.endpoint:
            return LocalService(
                running.endpoint,
                running.outputs,
                running.sandboxes,
                only_scenarios=running.only_scenarios,
            )
        if running:
            raise LocalCloudError(
                f"the local cloud is only starting (process {running.pid}): try again in a moment."
            )
        if target.local:
            raise LocalCloudError("no local cloud is running: `autocoder local up` starts one.")
    return in_aws(target)


def in_aws(target: Target) -> AwsService:
    """Find credentials and region as the CDK CLI does: botocore does not know AWS_REGION."""
    from botocore.exceptions import NoRegionError
    from botocore.session import Session

    session = Session(profile=target.profile)
    region = target.region or os.environ.get("AWS_REGION")
    region = region or session.get_config_variable("region")
    if not region:
        raise NoRegionError
    return AwsService(session, target.stack or own_stack(), str(region))


def own_stack() -> str:
    """The stack that this folder's cdk.json deploys."""
    from infra.settings import Settings

    return Settings.load().stack_name
