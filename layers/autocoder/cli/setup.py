"""`autocoder setup`: an AWS account and an E2B team made ready, as often as you like.

No key is ever printed: all that is said goes through `Speaker`, which knows the keys.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import boto3
import e2b
import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from autocoder.cli.doctor import CHECKS, Account, CheckFailedError, template_tags
from autocoder.cli.problems import UsageError
from autocoder.errors import AutocoderError
from infra.egress import egress_of
from infra.settings import ROOT, Settings
from infra.template import template

# What the two SDKs raise has no common base.
REFUSALS = (
    BotoCoreError,
    ClientError,
    AutocoderError,
    e2b.SandboxException,
    e2b.AuthenticationException,
    e2b.ServiceBusyException,
    e2b.BuildException,
    e2b.SecretException,
    httpx.HTTPError,
    json.JSONDecodeError,
    CheckFailedError,
)
KEYS = {"ANTHROPIC_API_KEY": "sk-ant-", "E2B_API_KEY": "e2b_"}


class SetupError(Exception):
    """A step could not be done; the text says which, why, and what to do."""


class Speaker:
    """Says what is done, without any key in it."""

    def __init__(self, out: Callable[[str], None]) -> None:
        """`out` gets a line."""
        self.out = out
        self.keys: list[str] = []

    def clean(self, text: str) -> str:
        """Take the keys out of a text that somebody else wrote."""
        for key in self.keys:
            text = text.replace(key, "***")
        return text

    def say(self, what: str, text: str) -> None:
        """Say one line."""
        self.out(self.clean(f"{what:>10}  {text}"))

    @contextmanager
    def doing(self, what: str, remedy: str) -> Iterator[None]:
        """Turn what goes wrong into a sentence with a remedy."""
        try:
            yield
        except REFUSALS as problem:
            reason = self.clean(in_words(problem))
            raise SetupError(f"{what} failed: {reason}\n{remedy}") from None


def set_up(*, profile: str | None, region: str | None, from_env: bool) -> int:
    """Store the keys, hand the model's to E2B, build the template, check; 1 if a check fails."""
    speaker = Speaker(echo)
    settings = load_settings()
    account = Account(open_session(profile, region), settings, egress_of(settings))
    names = settings.anthropic_secret_name, settings.e2b_secret_name
    anthropic = ask_key(account, speaker, "ANTHROPIC_API_KEY", names[0], from_env)
    e2b_key = ask_key(account, speaker, "E2B_API_KEY", names[1], from_env)
    store(account, speaker, names[0], anthropic)
    store(account, speaker, names[1], e2b_key)
    inject(account, speaker, anthropic)
    build(account, speaker)
    return check(account, speaker)


def in_words(problem: Exception) -> str:
    """Say what went wrong; the text of our own errors is for machines."""
    if isinstance(problem, AutocoderError):
        return f"{problem.message} {problem.hint}"
    kind = "" if isinstance(problem, CheckFailedError) else f"{type(problem).__name__}: "
    return f"{kind}{problem}".rstrip(".") + "."


def echo(line: str) -> None:
    """Write a line now: a build takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def load_settings() -> Settings:
    """Read cdk.json as the stack does."""
    try:
        chosen = json.loads((ROOT / "cdk.json").read_text())["context"]["autocoder"]
        return Settings.model_validate(chosen)
    except (ValidationError, ValueError, KeyError) as problem:
        raise SetupError(f"cdk.json can't be used: {problem}\nCorrect the named setting.") from None


def open_session(profile: str | None, region: str | None) -> boto3.session.Session:
    """Find credentials and region as the aws CLI does."""
    try:
        session = boto3.session.Session(profile_name=profile, region_name=region)
    except BotoCoreError as problem:
        raise SetupError(f"{problem}. Name a profile of `aws configure list-profiles`.") from None
    if not session.region_name:
        raise UsageError("no AWS region is chosen: name one with --region or AWS_DEFAULT_REGION.")
    return session


def ask_key(account: Account, speaker: Speaker, variable: str, secret: str, from_env: bool) -> str:
    """Take a key from the environment, from the terminal, or as it is stored already."""
    key = os.environ.get(variable, "").strip()
    if not key and not from_env and sys.stdin.isatty():
        question = f"{variable} (hidden; Enter keeps the stored one)"
        key = str(typer.prompt(question, default="", hide_input=True, show_default=False)).strip()
    source = "given" if key else "stored"
    if not key:
        key = stored_key(account, speaker, secret)
    if not key:
        raise UsageError(
            f"there is no {variable}: set it in the environment, or call `autocoder setup` in a "
            "terminal without --from-env and type it in."
        )
    speaker.keys.append(key)
    check_shape(variable, key)
    speaker.say("key", f"{variable}: {source}")
    return key


def stored_key(account: Account, speaker: Speaker, secret: str) -> str:
    """The key that Secrets Manager has, if any."""
    with speaker.doing(f"Reading the secret {secret}", "Check the AWS credentials."):
        try:
            return account.stored(secret)
        except ClientError as problem:
            raise_unless_missing(problem)
            return ""


def raise_unless_missing(problem: ClientError) -> None:
    """Let through what means that there is no such secret, or that it is empty."""
    if problem.response["Error"]["Code"] != "ResourceNotFoundException":
        raise problem


def check_shape(variable: str, key: str) -> None:
    """Refuse what can't be a key, without repeating it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{variable} has characters that no key has: copy it again.")
    for other, prefix in KEYS.items():
        if other != variable and key.startswith(prefix):
            raise UsageError(f"{variable} looks like the {other}: they were mixed up.")


def store(account: Account, speaker: Speaker, name: str, key: str) -> None:
    """Put a key into Secrets Manager; nothing is written when it is there already."""
    client = account.session.client("secretsmanager")
    remedy = (
        "The caller needs secretsmanager:GetSecretValue, CreateSecret and PutSecretValue; a secret "
        "that is scheduled for deletion needs `aws secretsmanager restore-secret` first."
    )
    with speaker.doing(f"Storing the secret {name}", remedy):
        if stored_key(account, speaker, name) == key:
            return speaker.say("secret", f"{name}: unchanged")
        try:
            client.put_secret_value(SecretId=name, SecretString=key)
        except ClientError as problem:
            raise_unless_missing(problem)
            client.create_secret(Name=name, SecretString=key, Description="Autocoder")
            return speaker.say("secret", f"{name}: created")
        return speaker.say("secret", f"{name}: new version")


def inject(account: Account, speaker: Speaker, key: str) -> None:
    """Give E2B the model's key, to add it outside of sandboxes. It can't be read back."""
    name = account.settings.injected_secret_name
    if account.egress.key_in_sandbox or not name:
        return speaker.say("injection", "off in cdk.json: sandboxes do not get the key from E2B")
    with speaker.doing(f"Storing E2B's secret {name}", "Check E2B_API_KEY in E2B's dashboard."):
        if e2b.Secret.exists(name, api_key=account.e2b_key):
            made = e2b.Secret.update(name, key, api_key=account.e2b_key)
        else:
            made = e2b.Secret.create(name, key, api_key=account.e2b_key)
    speaker.say("injection", f"E2B's secret {name}: version {made.version}")


def build(account: Account, speaker: Speaker) -> None:
    """Build the template, unless the current one is there."""
    settings, key = account.settings, account.e2b_key
    remedy = "Read the lines above; `autocoder setup` again continues from E2B's cache."
    with speaker.doing(f"Building the template {settings.e2b_template}", remedy):
        if account.tag in template_tags(settings.e2b_template, key):
            return speaker.say("template", f"{settings.e2b_template}: current")
        speaker.say("template", f"building {settings.e2b_template}, which takes some minutes")
        e2b.Template.build(
            template(account.egress),
            settings.e2b_template,
            tags=[account.tag],
            cpu_count=settings.sandbox_cpus,
            memory_mb=settings.sandbox_memory_mb,
            on_build_logs=lambda entry: speaker.say("build", entry.message),
            api_key=key,
        )
    speaker.say("template", f"{settings.e2b_template}: built as {account.tag}")


def check(account: Account, speaker: Speaker) -> int:
    """Say for each check whether it holds, and what to do where it does not."""
    failed = 0
    for name, look, remedy in CHECKS:
        try:
            speaker.say("ok", f"{name}: {look(account)}")
        except REFUSALS as problem:
            failed += 1
            speaker.say("FAILED", f"{name}: {in_words(problem)} {remedy}")
    return 1 if failed else 0
