"""What a sandbox may reach, by the `network` that it was given: as E2B decides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autocoder.sandbox.egress import EVERYTHING, KEY_HEADER

LOOPBACK = "localhost"
"""The name under which a registry on this machine's own loopback is allowed."""

_SUPPORTED = ("allowOut", "denyOut", "rules", "allow_internet_access")


@dataclass(frozen=True)
class Policy:
    """Allowed names come first, then what is denied; what is neither is allowed."""

    allowed: frozenset[str] = frozenset()
    closed: bool = False
    injected: frozenset[str] = frozenset()
    """Hosts whose requests get a key on the way: there the gateway answers."""

    @classmethod
    def of(cls, network: Mapping[str, Any] | None, internet: bool | None = None) -> Policy:
        network = network or {}
        rules = network.get("rules") or {}
        return cls(
            frozenset(host.lower() for host in network.get("allowOut") or []),
            EVERYTHING in (network.get("denyOut") or []) or internet is False,
            frozenset(host.lower() for host, all in rules.items() if any(map(_injects, all))),
        )

    def allows(self, host: str) -> bool:
        return not self.closed or bool({host.lower(), EVERYTHING} & self.allowed)

    @property
    def model(self) -> bool:
        """The gateway answers: nothing is closed, or an allowed host's requests get a key."""
        return not self.closed or any(self.allows(host) for host in self.injected)


def _injects(rule: Mapping[str, Any]) -> bool:
    return KEY_HEADER in _headers(rule)


def _headers(rule: Mapping[str, Any]) -> set[str]:
    return {name.lower() for name in (rule.get("transform") or {}).get("headers") or {}}


def find_unsupported(network: Mapping[str, Any] | None) -> str | None:
    """What of it can't be done here; silence would be taken for consent."""
    network = network or {}
    for name, value in network.items():
        if value and name not in _SUPPORTED:
            return f"the network's {name}"
    if any(address != EVERYTHING for address in network.get("denyOut") or []):
        return "denying some addresses and not all"
    if any("*" in host for host in network.get("allowOut") or []):
        return "wildcards in hosts"
    rules = (rule for all in (network.get("rules") or {}).values() for rule in all)
    if any(_headers(rule) - {KEY_HEADER} for rule in rules):
        return f"headers for a host, but for {KEY_HEADER}"
    return None
