"""What the local cloud does in moto's place."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autocoder.local.aws.runtime_api import Outcome


@dataclass(frozen=True)
class Hooks:
    """What the local cloud does in moto's place."""

    endpoint: str
    invoke: Callable[[Any, bytes], Outcome]
    invoke_later: Callable[[Any, bytes], None]
    event_source_added: Callable[[Any], None]
    event_matched: Callable[[Any, dict[str, Any]], None]
    schedule_added: Callable[[Any, Callable[[], bool]], None]
    signing_key: Path | None  # what keys are that sign on P-256
