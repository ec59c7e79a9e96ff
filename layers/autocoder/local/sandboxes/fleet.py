"""All live sandboxes: made, found, listed, and ended when their time is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from autocoder.local.sandboxes import bubblewrap, launch
from autocoder.local.sandboxes.egress import Egress
from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.local.sandboxes.isolation import Isolation
from autocoder.local.sandboxes.network import Handler, forward_to, guarded, serve_inside
from autocoder.local.sandboxes.policy import LOOPBACK
from autocoder.local.sandboxes.sandbox import Order, Sandbox

_log = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Host:
    """What this machine offers to its sandboxes."""

    isolation: Isolation
    toolchain: Path
    state_dir: Path
    gateway_port: int
    egress: Egress
    memory_mb: int
    """What a sandbox's processes may have together."""
    disk_mb: int
    """What its home may hold, and /tmp half of; both are in memory."""
    warning: str = ""
    """What a user must know of isolation that is incomplete, or is none."""


class FleetClosedError(Exception):
    """No sandbox is made any more."""


class Fleet:
    def __init__(self, host: Host) -> None:
        self.host = host
        self._live: dict[str, Sandbox] = {}
        self._by_key: dict[str, asyncio.Task[Sandbox]] = {}
        self._making: set[asyncio.Task[Sandbox]] = set()
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._endings: set[asyncio.Task[object]] = set()
        self._count = 0
        self._closed = False

    def find(self, sandbox_id: str) -> Sandbox | None:
        return self._live.get(sandbox_id)

    def find_running(self, sandbox_id: str) -> Sandbox | None:
        """The same, but for whoever wants something done in it: it must not be paused."""
        sandbox = self._live.get(sandbox_id)
        return None if sandbox is None or sandbox.is_paused else sandbox

    def all(self) -> list[Sandbox]:
        return list(self._live.values())

    def identify(self, token: str) -> SandboxIdentity | None:
        """Whose model token this is; nobody's once the sandbox has ended or may not use it.

        Asked for every request, so connections that were opened before are of no use either.
        """
        for sandbox in self._live.values():
            if secrets.compare_digest(sandbox.model_token.encode(), token.encode()):
                return sandbox.identity if sandbox.policy.model else None
        return None

    async def create(self, order: Order, idempotency_key: str | None) -> Sandbox:
        """A new sandbox, or the live one that an earlier call with the same key made."""
        task = self._by_key.get(idempotency_key) if idempotency_key else None
        if task is None or not self._is_live(task):
            if self._closed:
                raise FleetClosedError("the sandbox server is stopping")
            task = asyncio.create_task(self._create(order))
            self._making.add(task)
            task.add_done_callback(self._making.discard)
            if idempotency_key:
                self._by_key[idempotency_key] = task
        return await asyncio.shield(task)  # a caller who hangs up must not undo it for the others

    def _is_live(self, task: asyncio.Task[Sandbox]) -> bool:
        if not task.done():
            return True
        return task.exception() is None and task.result().id in self._live

    async def _create(self, order: Order) -> Sandbox:
        self._count += 1
        held = await self._launch()
        sandbox = Sandbox(self._count, order, held, self._on_end)
        try:
            await sandbox.wait_ready()
            await self._connect(sandbox)
        except BaseException:
            await sandbox.end()
            raise
        self._live[sandbox.id] = sandbox
        self._schedule(sandbox)
        if sandbox.is_gone:  # since it was ready: too early for `_on_end` to find it
            self._on_end(sandbox)
        return sandbox

    async def _launch(self) -> launch.Held:
        host = self.host
        if host.isolation is Isolation.NONE:
            folder = host.state_dir / "homes" / secrets.token_hex(8)
            return await launch.start_plain(host.toolchain, folder)
        ports = [0, 0, *host.egress.loopback_ports]
        return await launch.start_bubblewrapped(
            host.toolchain, host.egress.folders, ports, host.disk_mb
        )

    async def _connect(self, sandbox: Sandbox) -> None:
        """Serve the ports that the agent opened, and tell the sandbox of them."""
        gateway, egress = self.host.gateway_port, self.host.egress
        if sandbox.listeners:
            handlers = self._handlers(sandbox)
            for listener, handler in zip(sandbox.listeners, handlers, strict=True):
                sandbox.servers.append(await serve_inside(listener, handler))
            gateway = sandbox.ports[0]
            proxies = egress.proxy_env(sandbox.ports[1])
        else:
            proxies = egress.host_proxy_env()
        sandbox.template_env = egress.env | proxies | self._base_env(sandbox)
        # As E2B's proxy overrides what a sandbox sends, this overrides what it was created with.
        sandbox.model_env = {
            "ANTHROPIC_BASE_URL": f"http://{_LOOPBACK}:{gateway}",
            "ANTHROPIC_API_KEY": sandbox.model_token,
        }

    def _handlers(self, sandbox: Sandbox) -> list[Handler]:
        """Who answers on the ports in the sandbox: the gateway, the proxy, local registries."""
        egress = self.host.egress

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await egress.narrowed(sandbox.policy.allows).handle(reader, writer)

        def registry() -> bool:
            return sandbox.policy.allows(LOOPBACK)

        return [
            guarded(lambda: sandbox.policy.model, forward_to(_LOOPBACK, self.host.gateway_port)),
            proxy,
            *(guarded(registry, forward_to(_LOOPBACK, port)) for port in egress.loopback_ports),
        ]

    def _base_env(self, sandbox: Sandbox) -> dict[str, str]:
        home, isolated = sandbox.held.home, self.host.isolation is Isolation.BUBBLEWRAP
        tools = bubblewrap.TOOLCHAIN if isolated else self.host.toolchain
        env = {
            "HOME": home,
            "USER": "user",
            "LOGNAME": "user",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": f"{tools}/bin:{home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": sandbox.id,
        }
        if not isolated and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # else the Claude CLI refuses to work as root
        return env

    def set_timeout(self, sandbox: Sandbox, seconds: int) -> None:
        sandbox.end_at = datetime.now(UTC) + timedelta(seconds=seconds)
        self._schedule(sandbox)

    def _schedule(self, sandbox: Sandbox) -> None:
        if earlier := self._expiries.pop(sandbox.id, None):
            earlier.cancel()
        delay = max((sandbox.end_at - datetime.now(UTC)).total_seconds(), 0)
        loop = asyncio.get_running_loop()
        self._expiries[sandbox.id] = loop.call_later(delay, self._on_expiry, sandbox)

    async def pause(self, sandbox: Sandbox) -> bool:
        """Stop it; it stays until it is resumed or killed. False if it was paused already."""
        if not await sandbox.pause():
            return False
        sandbox.end_at = datetime.now(UTC)
        if expiry := self._expiries.pop(sandbox.id, None):
            expiry.cancel()
        return True

    async def resume(self, sandbox: Sandbox, seconds: int) -> bool:
        """Let it go on for some time; False if it was not paused."""
        if not await sandbox.resume():
            return False
        self.set_timeout(sandbox, seconds)
        return True

    def _on_expiry(self, sandbox: Sandbox) -> None:
        if sandbox.order.pause_on_timeout:
            self._keep(self.pause(sandbox))
        else:
            self._on_end(sandbox)

    def _on_end(self, sandbox: Sandbox) -> None:
        """Its time is up, or its agent is gone."""
        if self._live.get(sandbox.id) is sandbox:
            self._keep(self.kill(sandbox))

    def _keep(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def end(self, sandbox_id: str, reason: str) -> None:
        """End it for what it does to this machine."""
        if sandbox := self._live.get(sandbox_id):
            _log.warning("ending sandbox %s: %s", sandbox_id, reason)
            await self.kill(sandbox)

    async def kill(self, sandbox: Sandbox) -> None:
        """End it; from the first moment on it is no longer found."""
        if self._live.pop(sandbox.id, None) is None:
            return
        if expiry := self._expiries.pop(sandbox.id, None):
            expiry.cancel()
        self._by_key = {key: task for key, task in self._by_key.items() if self._is_live(task)}
        await sandbox.end()

    async def close(self) -> None:
        """End every sandbox, also those that are being made."""
        self._closed = True
        await asyncio.gather(*self._making, return_exceptions=True)
        results = await asyncio.gather(
            *(self.kill(sandbox) for sandbox in self.all()),
            *self._endings,
            return_exceptions=True,
        )
        for problem in results:
            if isinstance(problem, BaseException):
                _log.error("a sandbox could not be ended", exc_info=problem)
        with contextlib.suppress(OSError):  # there are none, or one of them could not be removed
            (self.host.state_dir / "homes").rmdir()


def matches(sandbox: Sandbox, metadata: Mapping[str, str]) -> bool:
    return metadata.items() <= sandbox.order.metadata.items()
