"""One live sandbox."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from autocoder.local.sandboxes.channel import AgentError, Channel, SandboxGoneError, close_all
from autocoder.local.sandboxes.clock import Clock
from autocoder.local.sandboxes.command import Command, Pipes, open_stdin
from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.local.sandboxes.launch import Held
from autocoder.local.sandboxes.policy import Policy
from autocoder.local.sandboxes.watching import Watch

_READY_SECONDS = 30.0
_ENDED_COMMANDS_SECONDS = 30.0
"""How long E2B remembers the exit code of a command."""


@dataclass(frozen=True)
class Order:
    """What a caller asked for when creating a sandbox."""

    template: str
    timeout: int
    metadata: dict[str, str]
    envs: dict[str, str]
    network: dict[str, Any] | None = None
    allow_internet_access: bool | None = None
    pause_on_timeout: bool = False
    resume_on_request: bool = False

    @property
    def policy(self) -> Policy:
        return Policy.of(self.network, self.allow_internet_access)


@dataclass
class Sandbox:
    """A sandbox from its start to its end; `on_end` is called when it ends by itself."""

    number: int
    order: Order
    held: Held
    on_end: Callable[[Sandbox], None]
    id: str = field(default_factory=lambda: "i" + secrets.token_hex(10))
    access_token: str = field(default_factory=lambda: secrets.token_hex(24))
    model_token: str = field(default_factory=lambda: "local-" + secrets.token_hex(24))
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    template_env: dict[str, str] = field(default_factory=dict)
    model_env: dict[str, str] = field(default_factory=dict)
    commands: dict[int, Command] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = self.order.network
        self.policy = self.order.policy
        self.end_at = self.started_at + timedelta(seconds=self.order.timeout)
        self.ports: list[int] = []
        self.listeners: list[int] = []
        self.scratch: list[int] = []
        self.servers: list[asyncio.Server] = []
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._pausing = asyncio.Lock()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._exits: dict[int, asyncio.Future[int | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._channel = Channel(self.held.sock, self._on_event, self._on_close)

    @property
    def identity(self) -> SandboxIdentity:
        return SandboxIdentity(self.id, dict(self.order.metadata), self.held.home)

    @property
    def root_pid(self) -> int:
        return self.held.process.pid

    @property
    def is_gone(self) -> bool:
        return self._channel.closed

    @property
    def is_paused(self) -> bool:
        return not self._clock.runs

    async def pause(self) -> bool:
        """Stop its processes and its clock, and hang up on its callers; False if it was paused."""
        async with self._pausing:
            if self.is_paused:
                return False
            self._clock.stop()
            for command in self.commands.values():
                command.hang_up()
            await self.ask("signal_all", number=signal.SIGSTOP)
            return True

    async def resume(self) -> bool:
        """Let it go on where it was; False if it was not paused."""
        async with self._pausing:
            if not self.is_paused:
                return False
            await self.ask("signal_all", number=signal.SIGCONT)
            self._clock.start()
            return True

    def set_network(self, network: dict[str, Any]) -> None:
        """Replace the whole of it, as E2B does: what is not given is cleared."""
        self.network = network
        self.policy = Policy.of(network, network.get("allow_internet_access"))

    async def wait_ready(self) -> None:
        """Return when the agent answers; `ports` and `listeners` are then known."""
        await asyncio.wait_for(self._ready, _READY_SECONDS)

    def _on_event(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["event"] == "ready" and not self._ready.done():
            self.ports = [int(port) for port in message["ports"]]
            self.listeners, self.scratch = fds[: len(self.ports)], fds[len(self.ports) :]
            self._ready.set_result(None)
            return
        close_all(fds)
        if message["event"] == "exit":
            exit_code = self._exits.pop(message["key"], None)
            if exit_code and not exit_code.done():  # else whoever started it hung up as it began
                exit_code.set_result(int(message["code"]))

    def _on_close(self) -> None:
        if not self._ready.done():
            self._ready.set_exception(SandboxGoneError("the agent ended as it started"))
        for exit_code in self._exits.values():
            if not exit_code.done():
                exit_code.set_result(None)
        self.on_end(self)

    async def ask(self, op: str, **args: Any) -> Any:
        """Have the agent do something that yields no descriptor."""
        result, fds = await self._channel.request(op, **args)
        close_all(fds)
        return result

    async def open(self, op: str, path: str) -> tuple[dict[str, Any], int]:
        """Have the agent open a file; the caller owns the descriptor."""
        result, fds = await self._channel.request(op, path=path)
        if len(fds) != 1:
            close_all(fds)
            raise AgentError("EIO", "the sandbox's agent sent no descriptor")
        return result, fds[0]

    async def spawn(
        self,
        argv: list[str],
        *,
        envs: Mapping[str, str],
        cwd: str | None,
        tag: str | None,
        stdin: bool,
    ) -> Command:
        """Start a command; its output waits in the pipes until `follow`."""
        key = secrets.randbits(48)
        exit_code = self._exits[key] = self._loop.create_future()
        theirs, pipes = await _make_pipes(stdin)
        try:
            env = {**self.template_env, **self.order.envs, **self.model_env, **envs}
            result, _ = await self._channel.request(
                "spawn", theirs, key=key, argv=argv, env=env, cwd=cwd or self.held.home
            )
        except BaseException:
            self._exits.pop(key, None)
            close_all([pipes.stdout, pipes.stderr])
            if pipes.stdin is not None:
                pipes.stdin.close()
            raise
        finally:
            close_all(theirs)

        if self.is_paused:  # since it was asked for
            await self.ask("signal_all", number=signal.SIGSTOP)

        async def send_signal(number: int) -> None:
            await self.ask("signal", key=key, number=number)

        return Command(result["pid"], argv, dict(envs), cwd, tag, pipes, exit_code, send_signal)

    async def watch(self, path: str, *, recursive: bool, with_entries: bool) -> Watch:
        """Watch a folder with a command that callers don't see among theirs."""
        folder = (await self.ask("stat", path=path))["path"]
        argv = [*self.held.watcher, folder, *(["--recursive"] if recursive else [])]
        command = await self.spawn(argv, envs={}, cwd=None, tag=None, stdin=False)
        watch = Watch(command, folder, with_entries=with_entries)
        self._keep(command.run())
        try:
            await watch.wait_ready()
        except BaseException:
            await watch.stop()
            raise
        return watch

    def follow(self, command: Command, timeout: float | None) -> None:
        """Pass the command's output on until it ends; after `timeout` seconds, end it."""
        self.commands[command.pid] = command
        self._keep(self._follow(command, timeout))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, command: Command, timeout: float | None) -> None:
        limit = self._loop.create_task(self._kill_after(command, timeout)) if timeout else None
        try:
            await command.run()
        finally:
            if limit is not None:
                limit.cancel()
        self._loop.call_later(_ENDED_COMMANDS_SECONDS, self._forget, command)

    async def _kill_after(self, command: Command, seconds: float) -> None:
        await self._clock.sleep(seconds)
        try:
            await command.send_signal(signal.SIGKILL)
        except (AgentError, SandboxGoneError):
            return  # it ended at the same moment

    def _forget(self, command: Command) -> None:
        if self.commands.get(command.pid) is command:
            del self.commands[command.pid]

    async def end(self) -> None:
        """Return when nothing of the sandbox is left."""
        try:
            for server in self.servers:
                server.close()
            self.held.stop()
            self._channel.close()
        finally:
            scratch, self.scratch = self.scratch, []
            close_all(scratch)
        await self.held.wait_gone()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=1)
            for task in stuck:  # on a listener that does not read
                task.cancel()


async def _make_pipes(stdin: bool) -> tuple[Sequence[int], Pipes]:
    """The command's three descriptors, and the server's ends."""
    in_read, in_write = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), None)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    writer = None if in_write is None else await open_stdin(in_write)
    return (in_read, out_write, err_write), Pipes(writer, out_read, err_read)
