"""Reads what an answer of the Messages API cost, as it passes, with flat memory."""

import json
from typing import Any

from autocoder.prices import BYTES_A_TOKEN, cost_usd, tokens

LINE_BYTES = 1 << 20  # of an event that is read: those with a usage are far smaller
BODY_BYTES = 8 << 20  # of an answer that is not streamed


class Meter:
    """Counts one answer. `worst_usd` is charged where nothing can be read of it."""

    def __init__(self, model: str, *, streamed: bool, worst_usd: float) -> None:
        """`model` is the one asked for; the answer may name another."""
        self.model = model
        self.streamed = streamed
        self.worst_usd = worst_usd
        self.usage: dict[str, Any] = {}
        self.complete = False
        self._rest = bytearray()
        self._skipping = False
        self._said = 0  # bytes of the model's own words

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the answer."""
        if not self.streamed:
            if len(self._rest) <= BODY_BYTES:
                self._rest += chunk
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._rest += line
            if not self._skipping and self._rest.startswith(b"data:"):
                self._event(as_object(self._rest[5:]))
            self._rest.clear()
            self._skipping = False
        self._rest += rest
        if len(self._rest) > LINE_BYTES:
            self._said += len(self._rest)
            self._rest.clear()
            self._skipping = True

    def end(self) -> None:
        """The answer's last byte was there."""
        if not self.streamed:
            answer = as_object(self._rest) if len(self._rest) <= BODY_BYTES else {}
            self._take(answer)
            self.complete = bool(self.usage)

    @property
    def usd(self) -> float:
        """What the answer cost, so far. A stream that was cut tells no final count: guess it."""
        if not self.usage:
            return self.worst_usd
        counted = dict(self.usage)
        if not self.complete:
            guess = self._said // BYTES_A_TOKEN
            counted["output_tokens"] = max(guess, tokens(counted, "output_tokens"))
        return cost_usd(self.model, counted)

    def _event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), dict):
                self._take(event["message"])
            case "content_block_delta" if isinstance(event.get("delta"), dict):
                words = [v for k, v in event["delta"].items() if k != "type"]
                self._said += sum(len(word) for word in words if isinstance(word, str))
            case "message_delta":
                self._take(event)  # cumulative: it replaces what was said before
            case "message_stop":
                self.complete = True

    def _take(self, said: dict[str, Any]) -> None:
        if isinstance(said.get("model"), str):
            self.model = said["model"]
        if isinstance(said.get("usage"), dict):
            self.usage |= {k: v for k, v in said["usage"].items() if v is not None}


def as_object(data: bytes | bytearray) -> dict[str, Any]:
    """Read a JSON object; what is none says nothing."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
