"""Prices: the table, and what is counted by it."""

import json
import subprocess
import threading
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.gateway.meter import BODY_BYTES, LINE_BYTES, Meter
from autocoder.local.toolchain import ensure_toolchain
from autocoder.prices import AS_OF, DEAREST, PRICES, cost_usd, priced_as
from tests.model import USAGE, sse


def test_every_kind_of_token_has_its_price() -> None:
    usage = {
        "input_tokens": 1_000_000,
        "output_tokens": 1_000_000,
        "cache_read_input_tokens": 1_000_000,
        "cache_creation_input_tokens": 3_000_000,
        "cache_creation": {"ephemeral_1h_input_tokens": 2_000_000},
        "server_tool_use": {"web_search_requests": 10},
    }
    assert cost_usd("claude-sonnet-4-5", usage) == pytest.approx(3 + 15 + 0.3 + 3.75 + 12 + 0.1)


def test_what_is_no_count_counts_nothing() -> None:
    for wrong in ("many", -5, 10**12, None, [1], 2.5):
        assert cost_usd("claude-opus-5", {"output_tokens": wrong, "cache_creation": wrong}) == 0


def test_a_dated_id_is_the_same_model_and_an_unknown_one_the_dearest() -> None:
    assert priced_as("claude-haiku-4-5-20251001") == "claude-haiku-4-5"
    assert priced_as("claude-haiku-9") == DEAREST
    assert priced_as("") == DEAREST
    assert all(PRICES[DEAREST].output >= price.output for price in PRICES.values())
    assert date.fromisoformat(AS_OF)


def test_a_prompt_beyond_the_limit_and_fast_mode_cost_more() -> None:
    assert cost_usd("claude-haiku-5-5", {"input_tokens": 100_000}) == pytest.approx(0.01)
    assert cost_usd("claude-haiku-5-5", {"input_tokens": 100_001}) == pytest.approx(0.0500005)
    fast = {"output_tokens": 1000, "speed": "fast"}
    assert cost_usd("claude-opus-4-6", fast) == pytest.approx(0.15)


SWITCHES = ("--setting-sources", "", "--strict-mcp-config")


class OneAnswer(BaseHTTPRequestHandler):
    """Says "ok" at the price of `USAGE`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Be quiet."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"id": "m", "type": "message", "role": "assistant", "model": asked["model"]}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE}
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        delta, opening = {"type": "text_delta", "text": "ok"}, {"type": "text", "text": ""}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": opening},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 400}},
            {"type": "message_stop"},
        ]
        data = b"".join(map(sse, events))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OneAnswer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("model", PRICES)
def test_claude_code_charges_the_same(url: str, tmp_path: Path, model: str) -> None:
    claude = ensure_toolchain(lambda line: None) / "bin" / "claude"
    done = subprocess.run(
        [str(claude), "--print", "--output-format", "json", "--model", model, *SWITCHES],
        input="Say ok.",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        timeout=60,
    )
    assert json.loads(done.stdout)["total_cost_usd"] == pytest.approx(cost_usd(model, USAGE))


def metered(*chunks: bytes, streamed: bool = True) -> Meter:
    meter = Meter("claude-sonnet-5-5", streamed=streamed, worst_usd=9.0)
    for chunk in chunks:
        meter.feed(chunk)
    meter.end()
    return meter


START = sse({"type": "message_start", "message": {"model": "claude-opus-5", "usage": USAGE}})
DELTA = sse({"type": "message_delta", "usage": {"output_tokens": 7}})
STOP = sse({"type": "message_stop"})


def test_a_stream_is_read_however_it_is_cut_into_chunks() -> None:
    whole = START + DELTA + STOP
    price = cost_usd("claude-opus-5", {**USAGE, "output_tokens": 7})
    for size in (1, 7, 64, len(whole)):
        meter = metered(*(whole[at : at + size] for at in range(0, len(whole), size)))
        assert meter.complete
        assert meter.usd == pytest.approx(price)


def test_an_answer_that_says_no_usage_costs_the_most_that_it_can() -> None:
    assert metered(b"data: nonsense\n\n").usd == 9.0
    assert metered(b"<html>", streamed=False).usd == 9.0
    assert metered(b"x" * (BODY_BYTES + 1), b"{}", streamed=False).usd == 9.0


def test_an_endless_line_takes_no_memory_and_hides_nothing_behind_it() -> None:
    meter = Meter("claude-sonnet-5-5", streamed=True, worst_usd=9.0)
    meter.feed(b"data: ")
    for _ in range(40):
        meter.feed(b"x" * (1 << 20))
        assert len(meter._rest) <= LINE_BYTES
    meter.feed(b"\n\n" + START + DELTA + STOP)
    assert meter.complete
