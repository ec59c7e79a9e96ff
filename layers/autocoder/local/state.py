"""What is known of the local cloud without it: where it keeps things, and its region."""

import os
from pathlib import Path

from autocoder.errors import Mendable

REGION = "us-east-1"


class LocalCloudError(Mendable):
    """The local cloud could not start, or go on; the text says why."""


def state_home() -> Path:
    """The folder for recordings, and for the cloud that `autocoder local up` keeps running."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "autocoder"
