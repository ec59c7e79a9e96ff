"""`autocoder setup`: an AWS account and an E2B team made ready, as often as you like.

Nothing is stored before both keys were tried: a typing error must not break a stack that works.
No key is ever printed: all that is said goes through `Speaker`, which knows the keys.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError

from autocoder.cli.doctor import (
    CHECKS,
    REFUSALS,
    Account,
    anthropic,
    ask_for_models,
    aws_credentials,
    findings,
)
from autocoder.cli.problems import UsageError, in_words
from autocoder.cli.team import Team
from infra.settings import Settings
from infra.template import template

PREFIXES = {"ANTHROPIC_API_KEY": "sk-ant-", "E2B_API_KEY": "e2b_"}
NOTHING_STORED = "Nothing was stored."

Remedy = Callable[[Exception], str]


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
    def doing(self, what: str, remedy: Remedy = lambda _: "") -> Iterator[None]:
        """Turn what goes wrong into a sentence, and a remedy where the sentence has none."""
        try:
            yield
        except REFUSALS as problem:
            reason = self.clean(in_words(problem))
            raise UsageError(f"{what} failed: {reason}\n{remedy(problem)}".rstrip()) from None


@dataclass(frozen=True)
class Key:
    """A key that is to be used, and what is stored in its place now."""

    variable: str
    secret: str
    value: str
    stored: str


def set_up(*, profile: str | None, region: str | None, stage: str | None, from_env: bool) -> int:
    """Store the keys, hand the model's to E2B, build the template, check; 1 if a check fails."""
    speaker = Speaker(echo)
    settings = Settings.load(stage)
    session: Any = open_session(profile, region)
    account = Account(session.client, session.region_name, settings)
    with speaker.doing("Asking AWS who calls"):
        speaker.say("AWS", f"{aws_credentials(account)}, for the stack {settings.stack_name}")
    anthropic = find_key(
        account, speaker, "ANTHROPIC_API_KEY", settings.anthropic_secret_name, from_env
    )
    e2b = find_key(account, speaker, "E2B_API_KEY", settings.e2b_secret_name, from_env)
    try_anthropic(settings, speaker, anthropic)
    try_e2b(speaker, e2b)
    store(account, speaker, anthropic)
    store(account, speaker, e2b)
    inject(account, speaker, anthropic.value)
    build(account, speaker)
    return check(account, speaker)


def echo(line: str) -> None:
    """Write a line now: a build takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def open_session(profile: str | None, region: str | None) -> boto3.session.Session:
    """Find credentials and region as the CDK CLI does: boto3 alone does not know AWS_REGION."""
    chosen = region or os.environ.get("AWS_REGION") or None
    try:
        session = boto3.session.Session(profile_name=profile, region_name=chosen)
    except BotoCoreError as problem:
        raise UsageError(f"{problem}. Name a profile of `aws configure list-profiles`.") from None
    if not session.region_name:
        raise UsageError("no AWS region is chosen: set AWS_REGION, or name one with --region.")
    return session


def find_key(account: Account, speaker: Speaker, variable: str, secret: str, from_env: bool) -> Key:
    """Take a key from the environment, from the terminal, or as it is stored already."""
    stored = stored_key(account, speaker, secret)
    given = os.environ.get(variable, "").strip()
    if not given and not from_env and sys.stdin.isatty():
        given = ask(speaker, variable, stored)
    key = Key(variable, secret, given or stored, stored)
    if not key.value:
        raise UsageError(
            f"there is no {variable}: set it in the environment, or call `autocoder setup` in a "
            "terminal without --from-env and type it in."
        )
    speaker.keys.append(key.value)
    check_shape(key)
    speaker.say("key", f"{variable}: {'given' if given else 'stored'}")
    return key


def ask(speaker: Speaker, variable: str, stored: str) -> str:
    """Ask for a key; none is an answer only where one is stored."""
    question = f"{variable} (hidden{'; Enter keeps the stored one' if stored else ''})"
    while True:
        answer = typer.prompt(question, default="", hide_input=True, show_default=False)
        if str(answer).strip() or stored:
            return str(answer).strip()
        speaker.say("key", f"{variable}: none is stored yet: type it in")


def stored_key(account: Account, speaker: Speaker, secret: str) -> str:
    """The key that Secrets Manager has, if any."""
    with speaker.doing(f"Reading the secret {secret}", secret_remedy(secret)):
        try:
            return account.stored(secret)
        except ClientError as problem:
            if code_of(problem) != "ResourceNotFoundException":
                raise
            return ""


def secret_remedy(secret: str) -> Remedy:
    """What helps where Secrets Manager does not give or take a secret."""

    def remedy(problem: Exception) -> str:
        match code_of(problem):
            case "InvalidRequestException":
                return (
                    "A secret that was deleted stays for its recovery window, 30 days: take it "
                    f"back with `aws secretsmanager restore-secret --secret-id {secret}`, and run "
                    "`autocoder setup` again."
                )
            case "AccessDeniedException":
                return (
                    "The caller needs secretsmanager:GetSecretValue, CreateSecret and "
                    "PutSecretValue on it."
                )
            case _:
                return ""

    return remedy


def code_of(problem: Exception) -> str:
    """AWS's own code for an error, where it is one of AWS's."""
    return str(problem.response["Error"]["Code"]) if isinstance(problem, ClientError) else ""


def check_shape(key: Key) -> None:
    """Refuse what can't be a key, without repeating it."""
    if not key.value.isascii() or not key.value.isprintable() or " " in key.value:
        raise UsageError(f"{key.variable} has characters that no key has: copy it again.")
    for other, prefix in PREFIXES.items():
        if other != key.variable and key.value.startswith(prefix):
            raise UsageError(f"{key.variable} looks like the {other}: they were mixed up.")


def try_anthropic(settings: Settings, speaker: Speaker, key: Key) -> None:
    """Ask Anthropic for its models, which costs nothing."""
    url = anthropic(settings)
    try:
        status = ask_for_models(url, key.value)
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise UsageError(
            f"Trying {key.variable} failed: {url} did not answer: {speaker.clean(str(problem))}. "
            f"{NOTHING_STORED} Check the network, the proxy variables and ANTHROPIC_BASE_URL."
        ) from None
    if status in (401, 403):
        raise UsageError(
            f"{key.variable} was refused by {url} ({status}). {NOTHING_STORED} Copy "
            "it again, or make a new one in Anthropic's console."
        )
    if status != 200:
        raise UsageError(
            f"Trying {key.variable} failed: {url} answered {status}. "
            f"{NOTHING_STORED} Try again in a minute."
        )
    speaker.say("key", f"{key.variable}: accepted")


def try_e2b(speaker: Speaker, key: Key) -> None:
    """Ask E2B for a list, which costs nothing."""
    with speaker.doing(f"Trying {key.variable}", lambda _: NOTHING_STORED):
        Team(key.value).accepts_the_key()
    speaker.say("key", f"{key.variable}: accepted")


def store(account: Account, speaker: Speaker, key: Key) -> None:
    """Put a key into Secrets Manager; nothing is written when it is there already."""
    if key.value == key.stored:
        return speaker.say("secret", f"{key.secret}: unchanged")
    client = account.client("secretsmanager")
    with speaker.doing(f"Storing the secret {key.secret}", secret_remedy(key.secret)):
        try:
            client.put_secret_value(SecretId=key.secret, SecretString=key.value)
        except ClientError as problem:
            if code_of(problem) != "ResourceNotFoundException":
                raise
            client.create_secret(Name=key.secret, SecretString=key.value, Description="Autocoder")
            return speaker.say("secret", f"{key.secret}: created")
    return speaker.say("secret", f"{key.secret}: new version")


def inject(account: Account, speaker: Speaker, key: str) -> None:
    """Give E2B the model's key, to add it outside of sandboxes. It can't be read back."""
    name = account.settings.injected_secret_name
    if account.egress.key_in_sandbox or not name:
        return speaker.say("injection", "off in cdk.json: sandboxes do not get the key from E2B")
    with speaker.doing(f"Storing E2B's secret {name}"):
        version = account.team.store_secret(name, key)
    return speaker.say("injection", f"E2B's secret {name}: version {version}")


def build(account: Account, speaker: Speaker) -> None:
    """Build the template, unless the current one is there."""
    settings = account.settings
    with speaker.doing(f"Building the template {settings.e2b_template}"):
        if account.tag in account.team.template_tags(settings.e2b_template):
            return speaker.say("template", f"{settings.e2b_template}: current")
        speaker.say("template", f"building {settings.e2b_template}, which takes some minutes")
        account.team.build(
            template(account.egress, settings.sandbox_languages),
            settings.e2b_template,
            tag=account.tag,
            cpus=settings.sandbox_cpus,
            memory_mb=settings.sandbox_memory_mb,
            say=lambda line: speaker.say("build", line),
        )
    return speaker.say("template", f"{settings.e2b_template}: built as {account.tag}")


def check(account: Account, speaker: Speaker) -> int:
    """Say for each check whether it holds, and what to do where it does not."""
    failed = 0
    for found in findings(account, [check for check in CHECKS if not check.deployed]):
        if found["status"] == "failed":
            failed += 1
            speaker.say("FAILED", f"{found['name']}: {found['message']} {found['remedy'] or ''}")
        else:
            mark = "ok" if found["status"] == "ok" else "-"
            speaker.say(mark, f"{found['name']}: {found['message']}")
    return 1 if failed else 0
