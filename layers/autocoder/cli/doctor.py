"""`autocoder doctor`: what must be true before a task can run, one line each, with a remedy.

One table of checks, for `autocoder setup` (before there is a stack), a stack in AWS and the local
cloud alike; where one makes no sense, it says so.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import e2b
import httpx
from botocore.exceptions import BotoCoreError, ClientError
from typing_extensions import TypedDict

from autocoder.cli.problems import in_words
from autocoder.cli.queue import counts
from autocoder.cli.service import AwsService, LocalService, Service, open_service
from autocoder.cli.shown import print_json
from autocoder.cli.target import Target
from autocoder.cli.team import Team, TeamError, asked
from autocoder.errors import AutocoderError, Mendable
from autocoder.local.cloud import local_egress
from autocoder.record import STATUS_INDEX
from autocoder.sandbox.client import Sandboxes, SandboxHandle
from autocoder.sandbox.egress import Egress
from autocoder.text import printable
from infra.egress import egress_of, registries_here
from infra.settings import Settings
from infra.template import claude_version, template_name

# One free request with the placeholder key: 200 means that E2B put the real one in its place.
ASK_MODEL = """
import os, urllib.error, urllib.request
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/models"
try:
    print(urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print("no answer:", error)
"""


SPARE_FUNCTIONS = 20  # intake, dispatch, upkeep, and steps that two tasks are in at once
NEEDED = ("TaskQueueUrl", "DeadLettersUrl", "TasksTable", "TaskEventsTable", "BucketName")
NEWER = ("SandboxOwner", "E2bTemplate", "MaxRunning")


PLAIN_TEXT = (
    "Store the key alone, as plain text (in the console: Plaintext, not Key/value), or name "
    "another secret in cdk.json."
)


class CheckFailedError(Mendable):
    """What was found instead."""


class NotHereError(Exception):
    """Why a check makes no sense here, or can't be made."""


REFUSALS = (BotoCoreError, ClientError, AutocoderError, Mendable)


@dataclass
class Account:
    """An AWS account and an E2B team, as a deployment uses them; or the local cloud in their place.

    `service` is the stack that is deployed there, once there is one.
    """

    client: Callable[[str], Any]
    region: str
    settings: Settings
    service: Service | None = None
    name: str = field(default_factory=lambda: f"doctor-{uuid.uuid4().hex[:8]}-1")
    box: SandboxHandle | None = None

    @classmethod
    def of(cls, service: Service) -> "Account":
        """What a deployed stack uses: it says itself of which stage it is, and more."""
        service.use_e2b()
        region = service.region if isinstance(service, AwsService) else ""
        stage = service.outputs.get("Stage")
        return cls(service.client, region, Settings.load(stage), service)

    @property
    def local(self) -> LocalService | None:
        """The local cloud, if it is that."""
        return self.service if isinstance(self.service, LocalService) else None

    @property
    def outputs(self) -> Mapping[str, str]:
        """The stack's."""
        return self.service.outputs if self.service else {}

    @property
    def secrets(self) -> tuple[str, str]:
        """The names of the secrets with Anthropic's and E2B's key."""
        return (
            self.outputs.get("AnthropicSecretName", self.settings.anthropic_secret_name),
            self.outputs.get("E2bSecretName", self.settings.e2b_secret_name),
        )

    @cached_property
    def egress(self) -> Egress:
        """What sandboxes may reach; this machine's tools are asked, which takes a second."""
        if self.local:
            return local_egress(dict(self.local.sandboxes))
        return egress_of(self.settings, registries_here())

    @cached_property
    def team(self) -> Team:
        """The E2B team whose key the functions use."""
        return Team(self.stored(self.secrets[1]).strip())

    def stored(self, name: str) -> str:
        """A secret of Secrets Manager, which must be the key and nothing else."""
        found = self.client("secretsmanager").get_secret_value(SecretId=name)
        text = found.get("SecretString")
        if text is None:
            raise CheckFailedError(f"the secret {name} is binary. {PLAIN_TEXT}")
        if text.lstrip().startswith("{"):
            raise CheckFailedError(f"the secret {name} holds JSON, not a key. {PLAIN_TEXT}")
        return str(text)

    @cached_property
    def template(self) -> str:
        """The template that sandboxes are made from: a deployed stack's, or what it would be."""
        return self.outputs.get("E2bTemplate") or template_name(self.settings, self.egress)

    @property
    def tag(self) -> str:
        """The tag that a current template has."""
        return self.template.partition(":")[2]

    @property
    def max_running(self) -> int:
        """So many tasks run at once."""
        return int(self.outputs.get("MaxRunning", self.settings.max_running))

    @cached_property
    def sandboxes(self) -> Sandboxes:
        """E2B, as a task has it."""
        return Sandboxes(
            api_key=self.team.api_key,
            template=self.template,
            owner=self.outputs.get("SandboxOwner", self.settings.stack_name),
            egress=self.egress,
            model_key=lambda: self.stored(self.secrets[0]),
        )

    def in_box(self) -> SandboxHandle:
        """The sandbox that an earlier check made."""
        if self.box is None:
            raise NotHereError("there is no sandbox to look into")
        return self.box

    def end(self) -> None:
        """End the sandbox, whatever became of the checks."""
        if self.box:
            self.sandboxes.kill_all(self.name)


def aws_credentials(account: Account) -> str:
    """AWS knows who we are."""
    if account.local:
        raise NotHereError(f"no account: the local cloud is at {account.local.endpoint}")
    who = account.client("sts").get_caller_identity()
    return f"account {who['Account']} in {account.region}"


def stack_is_deployed(account: Account) -> str:
    """The stack says where everything is."""
    if missing := [name for name in (*NEEDED, *NEWER) if name not in account.outputs]:
        raise CheckFailedError(f"it has no output {', '.join(missing)}")
    return str(account.service and account.service.where)


def queue_answers(account: Account) -> str:
    """Messages can be sent, and come to somebody who takes them in."""
    assert account.service  # noqa: S101 - it is a check of deployed stacks
    found = counts(account.service, "TaskQueueUrl")
    return f"{found['waiting']} waiting, {found['in_flight']} in flight"


def no_dead_letters(account: Account) -> str:
    """Every message was accepted."""
    assert account.service  # noqa: S101 - it is a check of deployed stacks
    found = counts(account.service, "DeadLettersUrl")
    if count := found["waiting"] + found["in_flight"]:
        raise CheckFailedError(f"{count} messages were not accepted")
    return "none"


def tables_are_there(account: Account) -> str:
    """Both tables can be used, and the index that lists go by."""
    names = [account.outputs[output] for output in ("TasksTable", "TaskEventsTable")]
    client = account.service.dynamodb if account.service else account.client("dynamodb")
    for name in names:
        table = client.describe_table(TableName=name)["Table"]
        if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
            raise CheckFailedError(f"the table {name} is {table['TableStatus']}")
        indexes = [index["IndexName"] for index in table.get("GlobalSecondaryIndexes", [])]
        if name == names[0] and STATUS_INDEX not in indexes:
            raise CheckFailedError(f"the table {name} has no index {STATUS_INDEX}")
    return ", ".join(names)


def functions_may_run(account: Account) -> str:
    """AWS lets as many functions run at once as tasks need: one that waits for each agent."""
    if account.local:
        raise NotHereError("functions are processes of this machine, without such a limit")
    limits = account.client("lambda").get_account_settings()["AccountLimit"]
    there, tasks = int(limits["ConcurrentExecutions"]), account.max_running
    if there < tasks + SPARE_FUNCTIONS:
        raise CheckFailedError(
            f"{there} functions may run at once in this account and region, and {tasks} tasks "
            f"need {tasks + SPARE_FUNCTIONS}"
        )
    return f"{there} functions at once, for {tasks} tasks"


def keys_stored(account: Account) -> str:
    """Both keys are where the functions look for them."""
    for name in account.secrets:
        if not account.stored(name).strip():
            raise CheckFailedError(f"the secret {name} is empty")
    return ", ".join(account.secrets)


def e2b_accepts_the_key(account: Account) -> str:
    """E2B answers with the stored key."""
    account.team.accepts_the_key()
    return "accepted"


def anthropic_accepts_the_key(account: Account) -> str:
    """Anthropic answers with the planner's key."""
    if account.local and account.local.only_scenarios:
        raise NotHereError(
            "no key; only examples and scenarios are answered: end the local cloud, export "
            "ANTHROPIC_API_KEY, and start it again for all else"
        )
    key = account.stored(account.secrets[0]).strip()
    if not key:
        raise NotHereError("there is no key to try")
    url = account.local.sandboxes["gateway_url"] if account.local else anthropic(account.settings)
    try:
        status = ask_for_models(url, key)
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise CheckFailedError(f"{url} did not answer: {problem}".replace(key, "***")) from None
    if status != 200:
        raise CheckFailedError(f"{url} answered {status} to the key in {account.secrets[0]}")
    return "accepted"


def anthropic(settings: Settings) -> str:
    """Where the model answers."""
    return os.environ.get("ANTHROPIC_BASE_URL") or f"https://{settings.model_host}"


def ask_for_models(url: str, key: str) -> int:
    """Ask which models there are, which costs nothing; give the status."""
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return httpx.get(f"{url.rstrip('/')}/v1/models", headers=headers, timeout=30).status_code


def e2b_has_the_model_key(account: Account) -> str:
    """E2B can inject the Anthropic key."""
    name = account.settings.injected_secret_name
    if account.local:
        raise NotHereError("the local cloud's gateway has the key, if there is one")
    if account.egress.key_in_sandbox:
        return "not used: key_in_sandbox is on, and agents can read the key"
    if not name or not account.team.has_secret(name):
        raise CheckFailedError(f"E2B has no secret {name!r}")
    return name


def template_is_current(account: Account) -> str:
    """The template that the functions name is there."""
    if account.local:
        raise NotHereError("local sandboxes have this machine's tools")
    name, _, tag = account.template.partition(":")
    if tag not in account.team.template_tags(name):
        raise CheckFailedError(f"the template {name} has no tag {tag}")
    here = template_name(account.settings, account.egress)
    older = "" if here == account.template else f"; a deployment from here would use {here}"
    return f"{account.template}{older}"


def sandbox_starts(account: Account) -> str:
    """A sandbox can be made as a task's is, and runs commands."""
    with asked():
        account.box = account.sandboxes.create(account.name, 1)
        output(account.box, "true")
    return f"{account.box.sandbox_id} runs"


def claude_code_runs(account: Account) -> str:
    """The sandbox has the tools, Claude Code in the pinned version first of all."""
    box = account.in_box()
    with asked():
        found = output(box, "claude --version").partition(" ")[0]
        if found != claude_version():
            raise CheckFailedError(f"it has Claude Code {found}, not {claude_version()}")
        output(
            box, "git --version && node --version && npm --version && python3 -m pytest --version"
        )
    return found


def model_answers(account: Account) -> str:
    """The sandbox reaches the model when it is let, and only then."""
    box = account.in_box()
    with asked():
        box.write("ask.py", ASK_MODEL)
        box.admit_model()
        status = output(box, "python3 ask.py")
        if status != "200":
            raise CheckFailedError(f"the model's host said {status}")
        box.withdraw_model()
        if output(box, "python3 ask.py") == "200":
            raise CheckFailedError("the model can still be reached when it must not be")
    return "answers while it is let in, and not after"


def sandbox_ends(account: Account) -> str:
    """The sandbox can be ended, and is gone then."""
    box = account.in_box()
    with asked():
        account.sandboxes.kill(box.sandbox_id)
        if box.sandbox_id in [info.sandbox_id for info in account.sandboxes.all()]:
            raise CheckFailedError(f"E2B still lists {box.sandbox_id}")
    account.box = None
    return "it is gone"


def output(box: SandboxHandle, command: str) -> str:
    """Run a command in a sandbox that must succeed."""
    try:
        return str(box.sandbox.commands.run(command).stdout).strip()
    except e2b.CommandExitException as error:
        raise CheckFailedError(f"`{command}` failed in it: {error}") from None


class Check(NamedTuple):
    """One line. `deployed` is one of a stack, which set-up does without."""

    name: str
    look: Callable[[Account], str]
    remedy: str
    deployed: bool = False


SETUP = "Run `autocoder setup` again."
DEPLOY = "Deploy it again (docs/deploying.md)."
QUOTA = (
    "Ask Service Quotas for more (lambda, Concurrent executions), or lower max_running in "
    "cdk.json. The caller needs lambda:GetAccountSettings."
)
LETTERS = (
    "`autocoder queue peek` shows them and why, `autocoder queue redrive` sends them again, "
    "`autocoder queue discard` deletes them."
)
CHECKS = [
    Check("AWS", aws_credentials, ""),  # what AWS refuses is said with its remedy
    Check("stack", stack_is_deployed, DEPLOY, deployed=True),
    Check("queue", queue_answers, f"The caller needs sqs:GetQueueAttributes. {DEPLOY}", True),
    Check("dead letters", no_dead_letters, LETTERS, deployed=True),
    Check("tables", tables_are_there, f"The caller needs dynamodb:DescribeTable. {DEPLOY}", True),
    Check("Lambda", functions_may_run, QUOTA),
    Check("keys", keys_stored, SETUP),
    Check("E2B", e2b_accepts_the_key, ""),
    Check("Anthropic", anthropic_accepts_the_key, f"Make a new key, if it was refused. {SETUP}"),
    Check("injection", e2b_has_the_model_key, f"Set injected_secret_name in cdk.json. {SETUP}"),
    Check("template", template_is_current, f"{SETUP} It builds what is missing."),
    Check("sandbox", sandbox_starts, "Look at the E2B team's limits, and at E2B's status page."),
    Check("Claude Code", claude_code_runs, f"{SETUP} It builds the template anew."),
    Check("model", model_answers, "Check the Anthropic key and its credit, and extra_hosts."),
    Check("clean-up", sandbox_ends, "`autocoder sandboxes kill ID` ends it."),
]


class Finding(TypedDict):
    """One line of `autocoder doctor --json`."""

    name: str
    status: Literal["ok", "failed", "not_checked"]
    message: str
    remedy: str | None


def findings(account: Account, checks: list[Check]) -> Iterator[Finding]:
    """Make the checks, one after the other; what one made is gone at the end."""
    try:
        for check in checks:
            yield finding(account, check)
    finally:
        account.end()


def finding(account: Account, check: Check) -> Finding:
    """Make one check."""
    try:
        said = check.look(account)
    except NotHereError as reason:
        return Finding(name=check.name, status="not_checked", message=f"{reason}", remedy=None)
    except REFUSALS as problem:
        remedy = None if isinstance(problem, TeamError) else check.remedy  # it has its own
        return Finding(
            name=check.name,
            status="failed",
            message=f"{in_words(problem).rstrip('.')}.",
            remedy=remedy or None,
        )
    return Finding(name=check.name, status="ok", message=said, remedy=None)


def examine(target: Target, *, as_json: bool) -> int:
    """Make all checks of where the command goes; 1 if one fails."""
    found = []
    for one in all_findings(target):
        found.append(one)
        if not as_json:
            show(one)
    if as_json:
        print_json(found)
    failed = sum(one["status"] == "failed" for one in found)
    if failed and not as_json:
        sys.stdout.write(f"{failed} of {len(found)} checks failed.\n")
    return 1 if failed else 0


def all_findings(target: Target) -> Iterator[Finding]:
    """Find the stack, then check it; without it, that alone is what is found."""
    progress("stack")
    try:
        account = Account.of(open_service(target))
    except (BotoCoreError, ClientError, Mendable) as problem:
        said = in_words(problem)  # which has the remedy in it
        yield Finding(name="stack", status="failed", message=said, remedy=None)
        return
    following = iter([*(check.name for check in CHECKS[1:]), ""])
    progress(CHECKS[0].name)
    for one in findings(account, CHECKS):
        progress("")
        yield one
        progress(next(following))


def progress(name: str) -> None:
    """Say in a terminal what is being checked, in a line that the next one replaces."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'… {name}' if name else ''}")
        sys.stderr.flush()


MARKS = {"ok": "ok", "failed": "FAILED", "not_checked": "-"}


def show(one: Finding) -> None:
    """Say one line, as soon as it is known."""
    remedy = f" {one['remedy']}" if one["remedy"] else ""
    line = f"{MARKS[one['status']]:>6}  {one['name']}: {one['message']}{remedy}"
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()
