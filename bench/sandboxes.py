"""How fast local sandboxes are, measured with the unmodified e2b SDK: `make bench`."""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from e2b import Sandbox
from e2b.connection_config import ApiParams

from autocoder.local.cloud import SANDBOXES, child, ready, state_folder

CREATES, RUNS, TRANSFERS = 20, 100, 10
MEGABYTES = 20


def main() -> None:
    """Start a server, measure, and print one table."""
    with state_folder() as folder, child(SANDBOXES, folder) as server:
        said = ready(server, SANDBOXES, folder)
        options = ApiParams(
            api_key="e2b_" + "0" * 40,
            api_url=said["api_url"],
            sandbox_url=said["sandbox_url"],
        )
        rows = measure(options)
    load = os.getloadavg()[0]
    print(f"\nsandboxes ({said['isolation']}, {os.cpu_count()} cores, load {load:.1f}), medians\n")
    for what, figure, asked in rows:
        print(f"  {what:<16}{figure:>12}   {asked}")


def measure(options: ApiParams) -> list[tuple[str, str, str]]:
    """What was measured, the figure, and what is asked of it."""
    data = os.urandom(MEGABYTES * 1_000_000)
    Sandbox.create(**options).kill()  # the first one pays for imports and caches
    create = p50(CREATES, lambda: Sandbox.create(**options), then=lambda made: made.kill())
    box = Sandbox.create(**options)
    run = p50(RUNS, lambda: box.commands.run("true"))
    write = p50(TRANSFERS, lambda: box.files.write("data", data))
    read = p50(TRANSFERS, lambda: box.files.read("data", format="bytes"))
    if bytes(box.files.read("data", format="bytes")) != data:
        raise SystemExit("the file that was read is not the one that was written")
    box.kill()
    return [
        ("create", f"{create * 1000:.0f} ms", "under 150 ms"),
        ('run("true")', f"{run * 1000:.1f} ms", "under 20 ms"),
        (f"write {MEGABYTES} MB", f"{MEGABYTES / write:.0f} MB/s", "over 100 MB/s"),
        (f"read {MEGABYTES} MB", f"{MEGABYTES / read:.0f} MB/s", "over 100 MB/s"),
    ]


def p50(times: int, call: Callable[[], Any], then: Callable[[Any], Any] | None = None) -> float:
    """The median of a call's seconds; what comes after it is not measured."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        made = call()
        seconds.append(time.perf_counter() - began)
        if then:
            then(made)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
