"""What models cost, in US dollars per million tokens. One table; its date says how old it is.

Anthropic's list prices, as the pinned Claude Code charges them too: a test compares the two.
"""

import re
from collections.abc import Mapping
from typing import Any

from autocoder.model import Frozen

AS_OF = "2026-11-16"
WEB_SEARCH_USD = 0.01  # a search that the model made on Anthropic's side
MILLION = 1_000_000


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
    """Price a `usage` of the Messages API. What is no number in it counts nothing."""
    price = PRICES[priced_as(model)]
    written = tokens(usage, "cache_creation_input_tokens")
    kinds = usage.get("cache_creation")
    hour = tokens(kinds, "ephemeral_1h_input_tokens") if isinstance(kinds, Mapping) else 0
    read, fresh = tokens(usage, "cache_read_input_tokens"), tokens(usage, "input_tokens")
    millionths = (
        fresh * price.input
        + read * price.cache_read
        + max(written - hour, 0) * price.cache_write_5m
        + hour * price.cache_write_1h
        + tokens(usage, "output_tokens") * price.output
    )
    times = price.fast if usage.get("speed") == "fast" else 1.0
    times *= price.long if fresh + read + written > price.long_over else 1.0
    tools = usage.get("server_tool_use")
    searches = tokens(tools, "web_search_requests") if isinstance(tools, Mapping) else 0
    return millionths * times / MILLION + searches * WEB_SEARCH_USD


def tokens(usage: Mapping[str, Any], name: str) -> int:
    """A count that somebody else made."""
    count = usage.get(name)
    return count if isinstance(count, int) and 0 < count < 10**9 else 0
