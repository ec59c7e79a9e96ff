"""What a request may ask for, and the most that it can cost: both before it is asked.

An agent has a token of its own and may send anything. What would make Anthropic's side fetch, run
or bill something that the request itself does not show is refused: it would be a way out of a
closed sandbox, and nobody could say beforehand what it costs.
"""

from collections.abc import Iterator
from typing import Any

from autocoder.local.gateway.errors import RefusedError
from autocoder.prices import BYTES_A_TOKEN, MILLION, PRICES, priced_as, tokens

REFUSED_FIELDS = ("mcp_servers", "container", "inference_geo")
CLIENT_TOOLS = ("custom", "bash_", "text_editor_", "memory_", "computer_")
INLINE = ("base64", "text", "content")  # sources whose content is in the request
DOCUMENT_TOKENS = MILLION  # a small PDF may have many pages: no context is larger
IMAGE_TOKENS = 5_000


def check(content: dict[str, Any]) -> None:
    """Refuse what reaches beyond the request."""
    for name in REFUSED_FIELDS:
        if content.get(name):
            raise RefusedError(400, f"{name}: is not served here; leave it out.")
    for tool in as_list(content.get("tools")):
        kind = str(tool.get("type") or "custom") if isinstance(tool, dict) else "custom"
        if not kind.startswith(CLIENT_TOOLS):
            raise RefusedError(400, f"tools: {kind[:60]} works outside of the sandbox; drop it.")
    for source in sources(content):
        kind = str(source.get("type"))
        if kind not in INLINE:
            raise RefusedError(400, f"source: of type {kind[:60]}; put the content itself there.")


def worst_usd(model: str, content: dict[str, Any], size: int) -> float:
    """Price a request of `size` bytes as dearly as its answer can make it."""
    price = PRICES[priced_as(model)]
    kinds = [str(source.get("media_type")) for source in sources(content)]
    documents = sum(not kind.startswith("image/") for kind in kinds)
    asked = size // BYTES_A_TOKEN + IMAGE_TOKENS * (len(kinds) - documents)
    asked = max(asked, DOCUMENT_TOKENS) if documents else asked
    times = price.fast if content.get("speed") == "fast" else 1.0
    times *= price.long if asked > price.long_over else 1.0
    most = tokens(content, "max_tokens")
    return (asked * price.cache_write_1h + most * price.output) * times / MILLION


def sources(content: Any) -> Iterator[dict[str, Any]]:
    """Every `source` in a request, however deep; hostile nesting costs no stack."""
    left = [content.get("messages"), content.get("system")]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            if isinstance(value.get("source"), dict):
                yield value["source"]
            left += value.values()


def as_list(value: Any) -> list[Any]:
    """Take what somebody else sent as a list, or as an empty one."""
    return value if isinstance(value, list) else []
