"""What a deployment's sandboxes may reach: the deployer's registries and what cdk.json adds."""

import asyncio
import ipaddress
import sys
from urllib.parse import urlsplit

from autocoder.local.toolchain import ensure_toolchain
from autocoder.registries import Registries, find_registries, is_loopback, local_folder
from autocoder.sandbox.egress import CA_VARIABLES, Egress
from infra.settings import Settings

PORTS = {"https": 443, "http": 80}  # E2B knows allowed hosts by name on these alone
PIP_VARIABLES, NPM_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"), ("npm_config_registry",)

NO_KEY = (
    "injected_secret_name is empty in cdk.json, so no sandbox can use the model: tasks will fail "
    "with model_not_configured. Name a secret there, run `autocoder setup` and deploy again."
)
KEY_INSIDE = (
    "key_in_sandbox is on in cdk.json: the Anthropic key is in every sandbox's environment, where "
    "the agent and whatever it runs can read it and carry it off."
)
NO_REGISTRY = (
    "This machine's {tool} has no registry that can be reached from the cloud: projects with "
    "dependencies for it will fail. Configure one, or name hosts in extra_hosts."
)


def registries_here() -> Registries:
    """Ask this machine's pip and npm where packages come from."""
    return asyncio.run(find_registries(ensure_toolchain(say)))


def egress_of(settings: Settings, registries: Registries) -> Egress:
    """Let sandboxes reach those registries, and what cdk.json names."""
    hosts = [urlsplit(url).hostname or "" for url in registries.urls if not left_out(url)]
    return Egress(
        model_host=settings.model_host,
        package_hosts=tuple(sorted({*hosts, *settings.extra_hosts})),
        env={**CA_VARIABLES, **tool_env(registries)},
        injected_secret="" if settings.key_in_sandbox else settings.injected_secret_name,
        key_in_sandbox=settings.key_in_sandbox,
    )


def say(line: str) -> None:
    """Tell what a deployer should see; stdout is the CDK's."""
    print(line, file=sys.stderr)  # noqa: T201


def tool_env(registries: Registries) -> dict[str, str]:
    """The variables by which pip and npm in a sandbox find the same registries."""
    variables = (*PIP_VARIABLES, *NPM_VARIABLES)
    chosen = {name: registries.env.get(name, "").split() for name in variables}
    found = {name: " ".join(u for u in urls if not left_out(u)) for name, urls in chosen.items()}
    return {name: value for name, value in found.items() if value}


def left_out(url: str) -> str | None:
    """Say why a sandbox in the cloud can't reach a registry, if it can't."""
    if local_folder(url):
        return "it is a folder of this machine"
    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    if is_loopback(host):
        return "it is on this machine"
    if parts.scheme not in PORTS or parts.port not in (None, PORTS[parts.scheme]):
        return "E2B lets sandboxes reach hosts on the ports 80 and 443 alone"
    if is_address(host):
        return "sandboxes reach hosts by their names alone, not by addresses"
    if "." not in host:
        return "a name without a dot is known in your own network alone"
    return None


def is_address(host: str) -> bool:
    """Say whether a URL's host is an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def warnings(settings: Settings, registries: Registries) -> list[str]:
    """What a deployer should hear before deploying."""
    egress = egress_of(settings, registries)
    found = [KEY_INSIDE] if egress.key_in_sandbox else []
    if not egress.has_key:
        found.append(NO_KEY)
    for url in dict.fromkeys(registries.urls):
        if why := left_out(url):
            found.append(f"The registry {url} is left out: {why}.")
    for tool, variables in (("pip", PIP_VARIABLES), ("npm", NPM_VARIABLES)):
        if not any(name in egress.env for name in variables):
            found.append(NO_REGISTRY.format(tool=tool))
    return found
