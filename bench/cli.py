"""How much of a processor the commands take that only look, on a local cloud: `make bench`."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autocoder.local.cloud import LocalCloud
from autocoder.local.running import Running, owner

AUTOCODER = Path(sys.executable).with_name("autocoder")
TIMES = 7
ASKED_MS = 400
TASKS = 30


def main() -> None:
    """Start a cloud with some tasks, measure, and print one table."""
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        with owner() as write, LocalCloud(lambda line: None) as cloud:
            write(Running.of(cloud, "nobody answers"))
            for number in range(TASKS):  # what is rejected has a record, too, and costs nothing
                cloud.send(f'{{"task_id": "task-{number}", "colour": "blue"}}')
            commands = [["--help"], ["list"], ["list", "--json"], ["status", "task-1"]]
            for _ in range(60):
                if not subprocess.run([AUTOCODER, *commands[-1]], capture_output=True).returncode:
                    break
                time.sleep(0.5)
            rows = [(command, cpu_ms(command)) for command in commands]
    print(f"\ncommands ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}), CPU, medians\n")
    for command, figure in rows:
        over = "" if figure < ASKED_MS else ", which it is not"
        print(f"  {'autocoder ' + ' '.join(command):<26}{figure:>8.0f} ms   under {ASKED_MS}{over}")


def cpu_ms(command: list[str]) -> float:
    """The median of the milliseconds of CPU that a command takes, in user space and kernel."""
    taken = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([AUTOCODER, *command], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        taken.append(used * 1000)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
