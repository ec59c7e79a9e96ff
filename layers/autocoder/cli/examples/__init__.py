"""Ready examples: each file here is a whole task message."""

import json
from pathlib import Path
from typing import Any

from autocoder.cli.problems import UsageError

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """What there is."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def example(name: str) -> dict[str, Any]:
    """An example's message."""
    if name not in names():
        raise UsageError(f"there is no example {name!r}; there are {', '.join(names())}.")
    return dict(json.loads((FOLDER / f"{name}.json").read_bytes()))
