"""Who a request from inside a sandbox comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SandboxIdentity:
    """A live sandbox, as the model gateway knows it by the token that the sandbox holds."""

    sandbox_id: str
    metadata: dict[str, str]
    home: str
    """The home folder's path as processes inside the sandbox see it."""
