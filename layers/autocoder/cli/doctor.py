"""What must be true of an account before a task can run: one line each, with a remedy."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import e2b

from autocoder.sandbox.client import Sandboxes, SandboxHandle
from autocoder.sandbox.egress import Egress
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


class CheckFailedError(Exception):
    """What was found instead."""


@dataclass
class Account:
    """An AWS account and an E2B team, as this deployment uses them."""

    session: Any
    settings: Settings
    egress: Egress

    @cached_property
    def e2b_key(self) -> str:
        """The E2B key that the functions use."""
        return self.stored(self.settings.e2b_secret_name)

    def stored(self, name: str) -> str:
        """A secret of Secrets Manager."""
        found = self.session.client("secretsmanager").get_secret_value(SecretId=name)
        return str(found["SecretString"])

    @cached_property
    def tag(self) -> str:
        """The tag that a current template has."""
        return template_name(self.settings, self.egress).partition(":")[2]

    @contextmanager
    def sandbox(self) -> Iterator[SandboxHandle]:
        """A sandbox as a task gets it, for a moment."""
        sandboxes = Sandboxes(
            api_key=self.e2b_key,
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


def e2b_accepts_the_key(account: Account) -> str:
    """E2B answers with the stored key."""
    e2b.Sandbox.list(limit=1, api_key=account.e2b_key).next_items()
    return "accepted"


def e2b_has_the_model_key(account: Account) -> str:
    """E2B can inject the Anthropic key."""
    name = account.settings.injected_secret_name
    if account.egress.key_in_sandbox:
        return "not used: key_in_sandbox is on, and agents can read the key"
    if not name or not e2b.Secret.exists(name, api_key=account.e2b_key):
        raise CheckFailedError(f"E2B has no secret {name!r}")
    return name


def template_is_current(account: Account) -> str:
    """The template has this version's tag."""
    name = account.settings.e2b_template
    if account.tag not in template_tags(name, account.e2b_key):
        raise CheckFailedError(f"the template {name} has no tag {account.tag}")
    return f"{name}:{account.tag}"


def template_tags(name: str, api_key: str) -> list[str]:
    """The tags of a template; none where there is no template."""
    if not e2b.Template.exists(name, api_key=api_key):
        return []
    return [tag.tag for tag in e2b.Template.get_tags(name, api_key=api_key)]


def sandbox_works(account: Account) -> str:
    """A sandbox starts, has the tools, and reaches the model only when it is let."""
    with account.sandbox() as box:
        run = box.sandbox.commands.run
        found = str(run("claude --version").stdout).split()[0]
        if found != claude_version():
            raise CheckFailedError(f"it has Claude Code {found}, not {claude_version()}")
        run("git --version && node --version && npm --version && python3 -m pytest --version")
        box.write("ask.py", ASK_MODEL)
        box.admit_model()
        status = str(run("python3 ask.py").stdout).strip()
        if status != "200":
            raise CheckFailedError(f"the model's host said {status}")
        box.withdraw_model()
        if str(run("python3 ask.py").stdout).strip() == "200":
            raise CheckFailedError("the model can still be reached when it must not be")
    return f"Claude Code {found}; the model answers while it is let in, and not after"


SETUP = "Run `autocoder setup` again."
CHECKS: list[tuple[str, Callable[[Account], str], str]] = [
    ("AWS", aws_credentials, "Log in as for the aws CLI, or name --profile and --region."),
    ("keys", keys_stored, SETUP),
    ("E2B", e2b_accepts_the_key, f"Get a new key in E2B's dashboard. {SETUP}"),
    ("injection", e2b_has_the_model_key, f"Set injected_secret_name in cdk.json. {SETUP}"),
    ("template", template_is_current, SETUP),
    ("sandbox", sandbox_works, "Check the Anthropic key and its credit, and extra_hosts."),
]
