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


def ensure_state_home() -> Path:
    """The same folder, which is there now, for this user alone."""
    found = state_home()
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise unusable(found, error) from None
    return found


def unusable(folder: Path, error: OSError) -> LocalCloudError:
    """Say that nothing can be kept there."""
    reason = f"{folder} can't be used: {error.strerror}"
    return LocalCloudError(f"{reason}. Name another place in XDG_STATE_HOME.")
