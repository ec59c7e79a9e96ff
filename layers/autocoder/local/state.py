"""Where the local cloud keeps what outlives it, for this user alone."""

import os
from pathlib import Path


def state_home() -> Path:
    """The folder for recordings, and for the cloud that `autocoder local up` keeps running."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "autocoder"
