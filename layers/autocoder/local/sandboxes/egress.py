"""placeholder"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Egress:
    loopback_ports: list[int] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def tool_env(self) -> dict[str, str]:
        return {}

    def proxy_env(self, port: int) -> dict[str, str]:
        return {}

    def host_proxy_env(self) -> dict[str, str]:
        return {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
