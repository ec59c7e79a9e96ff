"""What a deployment's sandboxes may reach: the deployer's registries and what cdk.json adds."""

import asyncio
import sys
from urllib.parse import urlsplit

from autocoder.local.toolchain import ensure_toolchain
from autocoder.registries import Registries, find_registries, is_loopback
from autocoder.sandbox.egress import CA_VARIABLES, Egress
from infra.settings import Settings

PORTS = {("https", 443), ("http", 80)}  # E2B knows allowed hosts by name on these alone
TOOL_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "npm_config_registry")

NO_KEY = (
    "injected_secret_name is empty in cdk.json, so no sandbox can use the model: tasks will fail "
    "with model_not_configured. Name a secret there, run `autocoder setup` and deploy again."
)
KEY_INSIDE = (
    "key_in_sandbox is on in cdk.json: the Anthropic key is in every sandbox's environment, where "
    "the agent and whatever it runs can read it and carry it off."
)


def egress_of(settings: Settings) -> Egress:
    """Ask this machine's tools where packages come from, and add what cdk.json names."""
    registries = asyncio.run(find_registries(ensure_toolchain(say)))
    hosts = [urlsplit(url).hostname or "" for url in registries.urls if reachable(url)]
    return Egress(
        model_host=settings.model_host,
        package_hosts=tuple(sorted({*hosts, *settings.extra_hosts})),
        env={**CA_VARIABLES, **tool_env(registries)},
        injected_secret="" if settings.key_in_sandbox else settings.injected_secret_name,
        key_in_sandbox=settings.key_in_sandbox,
    )


def say(line: str) -> None:
    """Tell what takes a while; stdout is the CDK's."""
    print(line, file=sys.stderr)  # noqa: T201


def tool_env(registries: Registries) -> dict[str, str]:
    """The variables by which pip and npm in a sandbox find the same registries."""
    chosen = {name: registries.env.get(name, "").split() for name in TOOL_VARIABLES}
    found = {name: " ".join(filter(reachable, urls)) for name, urls in chosen.items()}
    return {name: value for name, value in found.items() if value}


def reachable(url: str) -> bool:
    """Say whether a sandbox in the cloud can reach it: not this machine, not an odd port."""
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    return (parts.scheme, port) in PORTS and not is_loopback(parts.hostname or "localhost")


def warnings(settings: Settings, egress: Egress) -> list[str]:
    """What a deployer should hear before deploying."""
    found = [KEY_INSIDE] if egress.key_in_sandbox else []
    if not egress.has_key:
        found.append(NO_KEY)
    if not set(egress.package_hosts) - set(settings.extra_hosts):
        found.append(
            "No package registry of this machine's pip and npm can be reached from the cloud: "
            "projects with dependencies will fail. Configure one, or name hosts in extra_hosts."
        )
    return found
