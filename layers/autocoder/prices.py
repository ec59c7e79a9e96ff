"""What models and sandboxes cost, in US dollars. One table each; the date says how old they are.

Models: per million tokens, Anthropic's list prices, as the pinned Claude Code charges them too: a
test compares the two. Sandboxes: E2B's, per second.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from autocoder.model import Frozen

AS_OF = "2026-11-16"
WEB_SEARCH_USD = 0.01  # a search that the model made on Anthropic's side
VCPU_SECOND_USD = 0.000014
GIB_SECOND_USD = 0.0000045
MILLION = 1_000_000
BYTES_A_TOKEN = 3  # for guesses at what was answered, and rather too few


class Price(Frozen):
    """One model's prices; `fast` and `long` say how many times as much a request costs then."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    fast: float = 1.0  # in fast mode
    long: float = 1.0  # with a prompt of more than `long_over` tokens
    long_over: int = MILLION


class Tokens(Frozen):
    """What requests to one model took, by what each kind costs."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    web_searches: int = 0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> "Tokens":
        """Read a `usage` of the Messages API. What is no number in it counts nothing."""
        kinds, tools = usage.get("cache_creation"), usage.get("server_tool_use")
        hour = tokens(kinds, "ephemeral_1h_input_tokens") if isinstance(kinds, Mapping) else 0
        searches = tokens(tools, "web_search_requests") if isinstance(tools, Mapping) else 0
        return cls(
            input=tokens(usage, "input_tokens"),
            output=tokens(usage, "output_tokens"),
            cache_read=tokens(usage, "cache_read_input_tokens"),
            cache_write_5m=max(tokens(usage, "cache_creation_input_tokens") - hour, 0),
            cache_write_1h=hour,
            web_searches=searches,
        )

    @property
    def prompt(self) -> int:
        """All that a request gave to the model."""
        return self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h

    def __add__(self, other: "Tokens") -> "Tokens":
        """Both together."""
        return self._each(other, lambda a, b: a + b)

    def without(self, other: "Tokens") -> "Tokens":
        """What is left of each kind, never less than nothing."""
        return self._each(other, lambda a, b: max(a - b, 0))

    def at_least(self, other: "Tokens") -> "Tokens":
        """The larger count of each kind."""
        return self._each(other, max)

    def _each(self, other: "Tokens", do: Callable[[int, int], int]) -> "Tokens":
        mine, others = self.model_dump(), other.model_dump()
        return Tokens(**{kind: do(count, others[kind]) for kind, count in mine.items()})

    def usd(self, model: str) -> float:
        """What they cost at the model's price, without what single requests may cost more."""
        price = PRICES[priced_as(model)]
        millionths = (
            self.input * price.input
            + self.output * price.output
            + self.cache_read * price.cache_read
            + self.cache_write_5m * price.cache_write_5m
            + self.cache_write_1h * price.cache_write_1h
        )
        return millionths / MILLION + self.web_searches * WEB_SEARCH_USD


def row(
    input: float, write_5m: float, write_1h: float, read: float, output: float, **more: Any
) -> Price:
    """A row of the table, with the columns in Anthropic's order."""
    return Price(
        input=input,
        output=output,
        cache_read=read,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        **more,
    )


PRICES = {
    "claude-fable-5-2": row(8, 10, 16, 0.2, 40, fast=2),
    "claude-mythos-5-2": row(8, 10, 16, 0.2, 40, fast=2),
    "claude-fable-5-1": row(10, 12.5, 20, 0.25, 50),
    "claude-mythos-5-1": row(10, 12.5, 20, 0.25, 50),
    "claude-fable-5": row(10, 12.5, 20, 1, 50),
    "claude-mythos-5": row(10, 12.5, 20, 1, 50),
    "claude-opus-5-5": row(4, 5, 8, 0.2, 20, fast=2),
    "claude-opus-5": row(5, 6.25, 10, 0.5, 25, fast=2),
    "claude-opus-4-8": row(5, 6.25, 10, 0.5, 25, fast=2),
    "claude-opus-4-7": row(5, 6.25, 10, 0.5, 25, fast=6),
    "claude-opus-4-6": row(5, 6.25, 10, 0.5, 25, fast=6),
    "claude-opus-4-5": row(5, 6.25, 10, 0.5, 25),
    "claude-sonnet-5-5": row(2, 2.5, 4, 0.1, 10),
    "claude-sonnet-5": row(2, 2.5, 4, 0.2, 10),
    "claude-sonnet-4-6": row(3, 3.75, 6, 0.3, 15),
    "claude-sonnet-4-5": row(3, 3.75, 6, 0.3, 15),
    "claude-haiku-5-5": row(0.1, 0.125, 0.2, 0.01, 0.5, long=5, long_over=100_000),
    "claude-haiku-4-5": row(1, 1.25, 2, 0.1, 5),
}
DEAREST = max(PRICES, key=lambda name: (PRICES[name].output, PRICES[name].cache_read))


def priced_as(model: str) -> str:
    """The model of the table whose price counts: the dearest, where the table has no such model.

    A date at the end makes no other model of it.
    """
    name = re.sub(r"-\d{8}$", "", model)
    return name if name in PRICES else DEAREST


def cost_usd(model: str, usage: Mapping[str, Any]) -> float:
    """Price one request by its `usage`."""
    price, took = PRICES[priced_as(model)], Tokens.of(usage)
    times = price.fast if usage.get("speed") == "fast" else 1.0
    times *= price.long if took.prompt > price.long_over else 1.0
    searches = took.web_searches * WEB_SEARCH_USD
    return (took.usd(model) - searches) * times + searches


def sandbox_usd(seconds: float, cpus: int, memory_mb: int) -> float:
    """Price a sandbox of this size."""
    return seconds * (cpus * VCPU_SECOND_USD + memory_mb / 1024 * GIB_SECOND_USD)


def tokens(usage: Mapping[str, Any], name: str) -> int:
    """A count that somebody else made."""
    count = usage.get(name)
    return count if isinstance(count, int) and 0 < count < 10**9 else 0
