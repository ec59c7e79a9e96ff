"""What must be true of an account before a task can run: one line each, with a remedy."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import e2b

from autocoder.cli.team import Team, asked
from autocoder.sandbox.client import Sandboxes, SandboxHandle
from autocoder.sandbox.egress import Egress
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


PLAIN_TEXT = (
    "Store the key alone, as plain text (in the console: Plaintext, not Key/value), or name "
    "another secret in cdk.json."
)


class CheckFailedError(Exception):
    """What was found instead."""


@dataclass
class Account:
    """An AWS account and an E2B team, as this deployment uses them."""

    session: Any
    settings: Settings

    @cached_property
    def egress(self) -> Egress:
        """What sandboxes may reach; this machine's tools are asked, which takes a second."""
        return egress_of(self.settings, registries_here())

    @cached_property
    def team(self) -> Team:
        """The E2B team whose key the functions use."""
        return Team(self.stored(self.settings.e2b_secret_name))

    def stored(self, name: str) -> str:
        """A secret of Secrets Manager, which must be the key and nothing else."""
        found = self.session.client("secretsmanager").get_secret_value(SecretId=name)
        text = found.get("SecretString")
        if text is None:
            raise CheckFailedError(f"the secret {name} is binary. {PLAIN_TEXT}")
        if text.lstrip().startswith("{"):
            raise CheckFailedError(f"the secret {name} holds JSON, not a key. {PLAIN_TEXT}")
        return str(text)

    @cached_property
    def tag(self) -> str:
        """The tag that a current template has."""
        return template_name(self.settings, self.egress).partition(":")[2]

    @contextmanager
    def sandbox(self) -> Iterator[SandboxHandle]:
        """A sandbox as a task gets it, for a moment."""
        sandboxes = Sandboxes(
            api_key=self.team.api_key,
            template=template_name(self.settings, self.egress),
            owner=self.settings.stack_name,
            egress=self.egress,
            model_key=lambda: self.stored(self.settings.anthropic_secret_name),
        )
        name = f"doctor-{uuid.uuid4().hex[:8]}-1"
        try:
            yield sandboxes.create(name, 1)
        finally:
            sandboxes.kill_all(name)


def aws_credentials(account: Account) -> str:
    """AWS knows who we are."""
    who = account.session.client("sts").get_caller_identity()
    return f"account {who['Account']} in {account.session.region_name}"


def keys_stored(account: Account) -> str:
    """Both keys are where the functions look for them."""
    names = [account.settings.anthropic_secret_name, account.settings.e2b_secret_name]
    for name in names:
        if not account.stored(name):
            raise CheckFailedError(f"the secret {name} is empty")
    return ", ".join(names)


def functions_may_run(account: Account) -> str:
    """AWS lets as many functions run at once as tasks need: one that waits for each agent."""
    limits = account.session.client("lambda").get_account_settings()["AccountLimit"]
    there, tasks = int(limits["ConcurrentExecutions"]), account.settings.max_running
    if there < tasks + SPARE_FUNCTIONS:
        raise CheckFailedError(
            f"{there} functions may run at once in this account and region, and {tasks} tasks "
            f"need {tasks + SPARE_FUNCTIONS}"
        )
    return f"{there} functions at once, for {tasks} tasks"


def e2b_accepts_the_key(account: Account) -> str:
    """E2B answers with the stored key."""
    account.team.accepts_the_key()
    return "accepted"


def e2b_has_the_model_key(account: Account) -> str:
    """E2B can inject the Anthropic key."""
    name = account.settings.injected_secret_name
    if account.egress.key_in_sandbox:
        return "not used: key_in_sandbox is on, and agents can read the key"
    if not name or not account.team.has_secret(name):
        raise CheckFailedError(f"E2B has no secret {name!r}")
    return name


def template_is_current(account: Account) -> str:
    """The template has this version's tag."""
    name = account.settings.e2b_template
    if account.tag not in account.team.template_tags(name):
        raise CheckFailedError(f"the template {name} has no tag {account.tag}")
    return f"{name}:{account.tag}"


def sandbox_works(account: Account) -> str:
    """A sandbox starts, has the tools, and reaches the model only when it is let."""
    with asked(), account.sandbox() as box:
        found = output(box, "claude --version").partition(" ")[0]
        if found != claude_version():
            raise CheckFailedError(f"it has Claude Code {found}, not {claude_version()}")
        output(
            box, "git --version && node --version && npm --version && python3 -m pytest --version"
        )
        box.write("ask.py", ASK_MODEL)
        box.admit_model()
        status = output(box, "python3 ask.py")
        if status != "200":
            raise CheckFailedError(f"the model's host said {status}")
        box.withdraw_model()
        if output(box, "python3 ask.py") == "200":
            raise CheckFailedError("the model can still be reached when it must not be")
    return f"Claude Code {found}; the model answers while it is let in, and not after"


def output(box: SandboxHandle, command: str) -> str:
    """Run a command in a sandbox that must succeed."""
    try:
        return str(box.sandbox.commands.run(command).stdout).strip()
    except e2b.CommandExitException as error:
        raise CheckFailedError(f"`{command}` failed in it: {error}") from None


SETUP = "Run `autocoder setup` again."
CHECKS: list[tuple[str, Callable[[Account], str], str]] = [
    ("AWS", aws_credentials, "Log in as for the aws CLI, or name --profile and --region."),
    (
        "Lambda",
        functions_may_run,
        "Ask Service Quotas for more (lambda, Concurrent executions), or lower max_running in "
        "cdk.json. The caller needs lambda:GetAccountSettings.",
    ),
    ("keys", keys_stored, SETUP),
    ("E2B", e2b_accepts_the_key, ""),
    ("injection", e2b_has_the_model_key, f"Set injected_secret_name in cdk.json. {SETUP}"),
    ("template", template_is_current, SETUP),
    ("sandbox", sandbox_works, "Check the Anthropic key and its credit, and extra_hosts."),
]
