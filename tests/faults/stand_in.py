"""A stand-in for the CLI, for ends that the real one comes to only by accident.

It prints events of the real CLI's shape and then ends, or does not. A contract test compares the
shapes with a real run (test_agent_ends.py). The only seam is the program's name in the job.
"""

import json
from typing import Any

from autocoder.services import Services
from autocoder.task import State

PATH = ".autocoder/stand-in"
PROGRAM = f"../{PATH}"

INIT = {"type": "system", "subtype": "init", "session_id": "s-1"}
RESULT = {
    "stop_reason": "end_turn",  # as the real one, it does not begin with its type
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 1,
    "result": "Done.",
    "total_cost_usd": 0.4,
    "modelUsage": {"claude-sonnet-5-5": {"outputTokens": 50_000}},  # for 0.50 USD
    "session_id": "s-1",
}


def install(services: Services, state: State, *events: dict[str, Any], then: str) -> None:
    """Put it into the task's sandbox; `then` is what the shell does after the events."""
    assert state.sandbox
    lines = "\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    script = f"#!/bin/bash\ncat > /dev/null\ncat <<'EVENTS'\n{lines}\nEVENTS\n{then}\n"
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    box.write(PATH, script)
    box.sandbox.commands.run(f"chmod +x {PATH}")
