"""`python -m autocoder.local.sandboxes --state-dir DIR`: serve sandboxes until stdin closes."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import threading
from pathlib import Path

from autocoder.local.gateway.forward import Upstream
from autocoder.local.sandboxes import bubblewrap, watchdog
from autocoder.local.sandboxes.egress import Egress
from autocoder.local.sandboxes.fleet import Fleet, Host
from autocoder.local.sandboxes.isolation import (
    VARIABLE,
    WARNING,
    Isolation,
    IsolationError,
    choose,
)
from autocoder.local.sandboxes.server import Server, create_app, loopback_listener, url_of
from autocoder.local.toolchain import ToolchainError, ensure_toolchain
from autocoder.registries import find_registries

_GATEWAY = "autocoder.local.gateway.server"


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve local sandboxes to the e2b SDK.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--gateway-module", default=_GATEWAY, help=argparse.SUPPRESS)
    parser.add_argument("--memory-mb", type=int, default=4096, help="of a sandbox, in MiB")
    parser.add_argument("--disk-mb", type=int, default=4096, help="of a sandbox, in MiB")
    parser.add_argument("--forward", action="store_true", help="stdin begins with an Upstream")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # many sandboxes, many connections
    # By stdin, so that the key is in no environment: every process that is started here has one.
    upstream = Upstream.model_validate_json(sys.stdin.readline()) if options.forward else None
    try:
        asyncio.run(_serve(options, upstream))
    except (IsolationError, ToolchainError) as problem:
        sys.exit(str(problem))


async def _serve(options: argparse.Namespace, upstream: Upstream | None) -> None:
    state_dir = options.state_dir.resolve()
    state_dir.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(state_dir)  # uploads may spill there, and nowhere else
    stop = _stop_event()
    api, gateway = loopback_listener(), loopback_listener()
    fleet = Fleet(await _look_around(options, state_dir, gateway.getsockname()[1]))
    make_gateway = importlib.import_module(options.gateway_module).create_app
    gateway_app = make_gateway(fleet.identify, fleet.end, state_dir, upstream)
    servers = [Server(create_app(fleet), api), Server(gateway_app, gateway)]
    watching = _watch_memory(fleet, stop)
    running = [asyncio.create_task(server.run_until_told()) for server in servers]
    ready = {
        "api_url": url_of(api),
        "sandbox_url": url_of(api),
        "gateway_url": url_of(gateway),
        "isolation": fleet.host.isolation,
        "warning": fleet.host.warning,
        "package_hosts": ",".join(fleet.host.egress.hosts),
    }
    print(json.dumps(ready), flush=True)  # noqa: T201 - this line is the interface
    await stop.wait()
    watching.cancel()
    await fleet.close()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*running)


def _watch_memory(fleet: Fleet, stop: asyncio.Event) -> asyncio.Task[None]:
    """Without its watchdog, the server stops: it would hold nobody to a limit."""
    if sys.platform != "linux":  # a warning has said that nothing is limited
        return asyncio.create_task(asyncio.sleep(0))

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logging.error("the watchdog failed", exc_info=task.exception())
            stop.set()

    task = asyncio.create_task(watchdog.watch(fleet, fleet.host.memory_mb * watchdog.MIB))
    task.add_done_callback(ended)
    return task


async def _look_around(options: argparse.Namespace, state_dir: Path, gateway_port: int) -> Host:
    """What this machine offers; a warning where that is no isolation, or not all of it."""
    toolchain = await asyncio.to_thread(ensure_toolchain, _say)
    isolation, reason = choose(os.environ.get(VARIABLE, "auto"), toolchain)
    if isolation is Isolation.NONE:
        warning = WARNING.format(reason=reason)
    else:
        warning = "".join(f"WARNING: {text}\n" for text in bubblewrap.shortcomings())
    if warning:
        _say(warning)
    egress = Egress.to(await find_registries(toolchain))
    return Host(
        isolation=isolation,
        toolchain=toolchain,
        state_dir=state_dir,
        gateway_port=gateway_port,
        egress=egress,
        memory_mb=options.memory_mb,
        disk_mb=options.disk_mb,
        warning=warning,
    )


def _stop_event() -> asyncio.Event:
    """Set by SIGTERM, by SIGINT, and by the end of standard input."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def watch_stdin() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch_stdin, daemon=True).start()
    return stop


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
