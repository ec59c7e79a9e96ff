"""What a sandbox may reach, as data: package registries always, the model while the agent runs.

Everything else is closed, DNS too: with it open, any host could be reached through queries. E2B
matches allowed hosts by name, so the template's /etc/hosts only has to give each name an address.
"""

from typing import Any

from pydantic import Field

from autocoder.model import Frozen

EVERYTHING = "0.0.0.0/0"
PLACEHOLDER = "injected-outside-the-sandbox"
KEY_HEADER = "x-api-key"
MODEL_HOST = "api.anthropic.com"

# E2B's proxy opens the model's TLS to add the key, and signs with an authority that only the
# system's bundle knows.
CA_VARIABLES = dict.fromkeys(
    ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    "/etc/ssl/certs/ca-certificates.crt",
)


class Egress(Frozen):
    """A deployment's policy; infra/egress.py makes it at synth."""

    model_host: str = MODEL_HOST
    package_hosts: tuple[str, ...] = ()
    env: dict[str, str] = Field(
        default_factory=dict
    )  # where a sandbox's tools find registries and certificates
    injected_secret: str = ""  # the name of E2B's secret with the model's key
    key_in_sandbox: bool = False  # the explicit other way: the agent can read the key

    @property
    def has_key(self) -> bool:
        """Say whether an agent can be answered at all."""
        return bool(self.injected_secret) or self.key_in_sandbox

    def closed(self) -> dict[str, Any]:
        """Allow the registries alone. Complete: an update clears what it does not name."""
        return {
            "allow_out": list(self.package_hosts),
            "deny_out": [EVERYTHING],
            "dns_servers": [],
            "rules": {},
        }

    def with_model(self, header: str | None) -> dict[str, Any]:
        """Allow the model too; `header` stands for the key, which E2B puts there outside."""
        rule = {"transform": {"headers": {KEY_HEADER: header}}} if header else {}
        return {
            **self.closed(),
            "allow_out": [self.model_host, *self.package_hosts],
            "rules": {self.model_host: [rule]},
        }

    def variables(self, key: str | None) -> dict[str, str]:
        """A sandbox's environment; `key` only where the deployer chose to have it there."""
        return {
            **self.env,
            "ANTHROPIC_BASE_URL": f"https://{self.model_host}",
            "ANTHROPIC_API_KEY": key or PLACEHOLDER,
        }
