"""`python -m autocoder.local.aws --state-dir DIR`: an AWS until stdin ends or a signal comes."""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path


def main() -> None:
    arguments = _arguments()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    # Imported only now: a signal is heeded from the start.
    from autocoder.local.aws.processes import UnsupportedPlatformError
    from autocoder.local.aws.server import EmbeddedAws, PortTakenError

    try:
        aws = EmbeddedAws(
            arguments.state_dir.resolve(),
            arguments.function_env,
            arguments.port,
            arguments.signing_key,
        )
    except (UnsupportedPlatformError, PortTakenError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"endpoint": aws.endpoint}) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_wait_for_eof, args=(stop,), daemon=True).start()
    stop.wait()
    aws.close()
    # Threads of running executions and invocations have nothing left to finish.
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m autocoder.local.aws", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True, help="all that is written")
    parser.add_argument(
        "--function-env", type=Path, help="JSON object: more variables for every function"
    )
    parser.add_argument("--port", type=int, default=0, help="0 is any that is free")
    parser.add_argument(
        "--signing-key", type=Path, help="PEM: what keys that sign on P-256 are, not new ones"
    )
    return parser.parse_args()


def _wait_for_eof(stop: threading.Event) -> None:
    while os.read(0, 4096):
        continue
    stop.set()


if __name__ == "__main__":
    main()
