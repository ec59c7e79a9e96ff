"""The local cloud: embedded AWS, sandboxes and the model's gateway, with the stack deployed in it.

Everything lies in one temporary folder, all processes are children of this one, and both are gone
when it ends. The children end with their stdin, so they go even when this process is killed.
"""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3

from autocoder.archive import pack
from autocoder.local.assembly import synthesize
from autocoder.local.aws.deploy import deploy
from autocoder.local.gateway.asker import PLANNER_FILE
from autocoder.local.gateway.forward import Upstream
from autocoder.local.gateway.messages import CLOUD_FILE
from autocoder.local.scenario import Scenario, dump
from autocoder.local.signing import signing_key
from autocoder.local.state import REGION, LocalCloudError
from autocoder.local.toolchain import ensure_toolchain
from autocoder.sandbox.egress import Egress

LOCK = "owner.lock"
AWS, SANDBOXES = "autocoder.local.aws", "autocoder.local.sandboxes"
ENDS_WITHIN_S = 10


class LocalCloud:
    """A context in which the service runs on this machine."""

    def __init__(
        self,
        say: Callable[[str], None],
        keep: Path | None = None,
        upstream: Upstream | None = None,
        port: int = 0,
    ) -> None:
        """`say` gets a line on what is being done; `keep` is where logs go at the end.

        With `upstream`, tasks that have no scenario are answered by a model. `port` is the embedded
        AWS's; 0 is any that is free.
        """
        self.port = port
        self.say = say
        self.keep = keep
        self.upstream = upstream
        self.stack = ExitStack()
        self.session: Any = boto3.session.Session("local", "local", region_name=REGION)
        self.servers: dict[str, subprocess.Popen[str]] = {}
        self.clients: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.outputs: dict[str, str] = {}
        self.endpoint = ""
        self.sandboxes: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start everything and deploy the stack."""
        with ExitStack() as started:
            self.folder = started.enter_context(state_folder())
            if self.keep:
                started.callback(self._keep_logs, self.keep)
            try:
                self._start(started)
            except BaseException:
                no_more_interrupts()
                raise
            self.stack = started.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End every process, then remove the folder."""
        no_more_interrupts()
        self.stack.close()

    def _start(self, started: ExitStack) -> None:
        environment = self.folder / "function-env.json"
        (self.folder / "scenarios").mkdir()
        with ThreadPoolExecutor(2) as pool:
            assembly = pool.submit(synthesize, self.say)
            toolchain = pool.submit(ensure_toolchain, self.say)
            self.say("starting the embedded AWS and the sandbox server")
            options = ["--function-env", str(environment), "--port", str(self.port)]
            options += ["--signing-key", str(signing_key())]
            aws = started.enter_context(child(AWS, self.folder, *options))
            toolchain.result()
            sandboxes = started.enter_context(serve_sandboxes(self.folder, self.upstream))
            self.servers = {AWS: aws, SANDBOXES: sandboxes}
            self.endpoint = ready(aws, AWS, self.folder)["endpoint"]
            self.sandboxes = ready(sandboxes, SANDBOXES, self.folder)
            environment.write_text(json.dumps(self.function_environment()))
            self.assembly = assembly.result()
        self.outputs = deploy(self.endpoint, self.assembly, self.say)
        tell_gateway(self.folder, self.endpoint, self.outputs["BucketName"])
        for output, value in {
            "E2bSecretName": "any key will do here",
            "AnthropicSecretName": (self.folder / PLANNER_FILE).read_text(),
        }.items():
            self.client("secretsmanager").create_secret(
                Name=self.outputs[output], SecretString=value
            )

    def function_environment(self) -> dict[str, str]:
        """What differs from the cloud for a function: where E2B, Anthropic and packages are."""
        return {
            "EGRESS": local_egress(self.sandboxes).model_dump_json(),
            "E2B_API_URL": self.sandboxes["api_url"],
            "E2B_SANDBOX_URL": self.sandboxes["sandbox_url"],
            "ANTHROPIC_BASE_URL": self.sandboxes["gateway_url"],
        }

    def check(self) -> None:
        """Raise if one of the servers has ended: without it, nothing comes to an end."""
        for module, process in self.servers.items():
            if process.poll() is not None:
                raise LocalCloudError(f"{module} ended: {last_words(module, self.folder)}")

    def client(self, service: str) -> Any:
        """A boto3 client of the embedded AWS."""
        if service not in self.clients:
            made = self.session.client(service, endpoint_url=self.endpoint)
            self.clients[service] = made
        return self.clients[service]

    def table(self, output: str) -> Any:
        """A DynamoDB table, by the name of the stack's output."""
        if output not in self.tables:
            dynamodb = self.session.resource("dynamodb", endpoint_url=self.endpoint)
            self.tables[output] = dynamodb.Table(self.outputs[output])
        return self.tables[output]

    def add_scenario(self, scenario: Scenario, task_id: str = "default") -> None:
        """Let the gateway answer for a task, or for every task that has none of its own."""
        (self.folder / "scenarios" / f"{task_id}.json").write_text(dump(scenario))

    def with_source(self, scenario: Scenario, message: dict[str, Any]) -> dict[str, Any]:
        """Put the project that a scenario begins with where senders put theirs, and name it."""
        if scenario.source is None:
            return message
        key = f"sources/{uuid.uuid4().hex}.tar.gz"
        bucket = self.outputs["BucketName"]
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=pack(scenario.source))
        return {**message, "source": {"s3": f"s3://{bucket}/{key}"}}

    def send(self, body: str) -> str:
        """Put a message on the queue; give SQS's id of it."""
        queue = self.outputs["TaskQueueUrl"]
        answer = self.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
        return str(answer["MessageId"]).lower()

    def _keep_logs(self, target: Path) -> None:
        logs = target / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for path in [*self.folder.glob("*.log"), *self.folder.glob("*.jsonl")]:
            shutil.copy(path, logs)
        for path in (self.folder / "logs").glob("*"):
            shutil.copy(path, logs)


@contextmanager
def serve_sandboxes(
    folder: Path, upstream: Upstream | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run the sandbox server with the gateway; the key goes through its stdin and nowhere else."""
    with child(SANDBOXES, folder, *(["--forward"] if upstream else [])) as process:
        if upstream:
            assert process.stdin  # noqa: S101 - it is a pipe
            process.stdin.write(upstream.model_dump_json() + "\n")
            process.stdin.flush()
        yield process


def tell_gateway(folder: Path, endpoint: str, bucket: str) -> None:
    """Say where the tasks' messages are."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    aws = {**keys, "region_name": REGION, "endpoint_url": endpoint}
    where = {"aws": aws, "bucket": bucket}
    (folder / CLOUD_FILE).write_text(json.dumps(where))


def local_egress(sandboxes: dict[str, str]) -> Egress:
    """What local sandboxes may reach: their server knows the registries, and has the key's place.

    It tells their tools itself where registries and certificates are.
    """
    hosts = tuple(filter(None, sandboxes["package_hosts"].split(",")))
    return Egress(package_hosts=hosts, injected_secret="the gateway has it")  # noqa: S106


def no_more_interrupts() -> None:
    """See the end through: a second Ctrl-C would leave what the first one was to clean up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def state_folder() -> Iterator[Path]:
    """Make the cloud's folder, locked as long as it is in use; remove those that dead ones left."""
    top = Path(tempfile.gettempdir())
    prefix = f"autocoder-{os.geteuid()}-"
    for left in top.glob(f"{prefix}*"):
        sweep(left)
    # Made under another name and renamed when it is locked: nobody may take it for a dead one's.
    fresh = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=top))
    fresh.chmod(0o711)  # sandboxes run as another user and must get through, not look around
    lock = os.open(fresh / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = fresh.rename(top / fresh.name[1:])
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove the folder of a cloud that was killed: ours, and locked by nobody."""
    try:
        info = folder.lstat()
    except FileNotFoundError:
        return  # its owner ended this very moment
    if info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode):
        return  # in a folder that all users share, a name says nothing
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return  # none, or a link: not made by us
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its owner lives
    else:
        shutil.rmtree(folder)
    finally:
        os.close(lock)


@contextmanager
def child(module: str, folder: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """Run one of the cloud's servers; it ends when its stdin does."""
    log = log_of(module, folder).open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--state-dir", str(folder), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which ends the others in order
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)},
    )
    with log, process:
        try:
            yield process
        finally:
            assert process.stdin  # noqa: S101 - it is a pipe
            process.stdin.close()
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()


def log_of(module: str, folder: Path) -> Path:
    """Where a server's own words go."""
    return folder / f"{module.rpartition('.')[2]}.log"


def last_words(module: str, folder: Path) -> str:
    """The end of what a server said."""
    said = log_of(module, folder).read_text(errors="replace").strip()
    return said[-2000:] or "it said nothing"


def ready(process: "subprocess.Popen[str]", module: str, folder: Path) -> dict[str, str]:
    """Wait for the line in which a server says where it is."""
    assert process.stdout  # noqa: S101 - it is a pipe
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise LocalCloudError(f"the local cloud did not start: {last_words(module, folder)}")
    return dict(json.loads(line))
