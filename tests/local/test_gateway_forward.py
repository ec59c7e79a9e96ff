"""The gateway as a forwarder: what passes, what does not, what it costs, what is kept."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import anthropic
import httpx
import pytest

from autocoder.local.cloud import tell_gateway
from autocoder.local.gateway import asker, forward, recorder, relay
from autocoder.local.gateway.asker import PLANNER_FILE
from autocoder.local.gateway.forward import Upstream
from autocoder.local.gateway.recorder import Entry, entries
from autocoder.local.gateway.server import AT_ONCE, create_app
from autocoder.local.gateway.worst import worst_usd
from autocoder.local.sandboxes.identity import SandboxIdentity
from autocoder.message import TaskMessage
from autocoder.prices import cost_usd
from autocoder.prompts import Place, first_prompt, plan_prompt
from autocoder.services import Services
from tests.model import KEY, USAGE, Fault, Script, ScriptedModel, scripted_model, serving, text
from tests.steps.builders import queued
from tests.waiting import eventually
from tests.world import World

TOKEN = "local-" + "0123456789abcdef" * 3
SECOND = "local-" + "123456789abcdef0" * 3  # of the same task's second attempt
PRICE = cost_usd("claude-sonnet-5-5", USAGE)


@dataclass
class Lab:
    """A gateway that forwards, and a task that was taken in."""

    model: ScriptedModel
    folder: Path
    url: str
    task: str

    def post(self, path: str = "/v1/messages?beta=true", **more: Any) -> httpx.Response:
        headers = {"x-api-key": TOKEN, "anthropic-version": "2023-06-01"}
        given = {"json": self.body(), "headers": headers, "timeout": 30, **more}
        return httpx.post(self.url + path, **given)

    def body(self, **more: Any) -> dict[str, Any]:
        prompt = first_prompt(Place(self.task, 1, 10), TaskMessage(specification="x"))
        asked = {"model": "claude-sonnet-5-5", "max_tokens": 1000, "stream": True}
        return {**asked, "messages": [{"role": "user", "content": prompt}], **more}

    @property
    def recorded(self) -> list[Entry]:
        return list(entries(self.folder / "recordings" / self.task))


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as made:
        yield made


Begin = Callable[..., Lab]


@pytest.fixture
def begin(
    world: World, services: Services, model: ScriptedModel, tmp_path: Path
) -> Iterator[Begin]:
    """Make a task, and a gateway that knows a sandbox of it."""
    opened: list[Any] = []

    def start(script: Script | None = None, url: str | None = None, **limits: float) -> Lab:
        task = queued(services, "forward", limits=limits).task_id
        model.scripts[task] = script or Script({1: [[text("Hello.")]]})
        tell_gateway(tmp_path, world.endpoint, world.names["Bucket"])
        identity = SandboxIdentity("i1", {"autocoder_attempt": f"{task}-1"}, "/home/user")
        upstream = Upstream(
            base_url=url or model.url, api_key=KEY, recordings=tmp_path / "recordings"
        )
        retried = SandboxIdentity("i2", {"autocoder_attempt": f"{task}-2"}, "/home/user")
        known = {TOKEN: identity, SECOND: retried}
        app = create_app(known.get, AsyncMock(), tmp_path, upstream)
        server = serving(app)
        opened.append(server)
        return Lab(model, tmp_path, server.__enter__(), task)

    yield start
    for server in opened:
        server.__exit__(None, None, None)


def test_a_stream_passes_byte_for_byte_with_the_users_key_and_no_other_secret(begin: Begin) -> None:
    lab = begin()
    secret = {"x-api-key": TOKEN, "cookie": "a=b", "x-forwarded-for": "1.2.3.4", "te": "trailers"}
    answer = lab.post(headers={**secret, "anthropic-beta": "b-1", "connection": "anthropic-beta"})
    assert answer.status_code == 200
    assert answer.content == lab.model.sent[-1]
    assert answer.headers["request-id"] == "r-1"
    assert "keep-alive" not in answer.headers
    (seen,) = lab.model.of(lab.task)
    assert seen.path.endswith("/v1/messages?beta=true")
    assert seen.headers["x-api-key"] == KEY
    assert seen.headers["anthropic-beta"] == "b-1"
    assert not {"cookie", "x-forwarded-for", "te", "authorization"} & set(seen.headers)
    folder = lab.folder / "recordings" / lab.task
    assert (folder / "0001-answer").read_bytes() == answer.content
    assert json.loads((folder / "0001-request.json").read_text()) == lab.body()
    assert json.loads((folder / "message.json").read_text())["task_id"] == lab.task
    (entry,) = lab.recorded
    assert (entry.status, entry.complete, entry.kept) == (200, True, True)
    assert entry.usd == pytest.approx(PRICE)


def test_the_sdk_is_served_for_plans_and_for_what_is_free(begin: Begin) -> None:
    lab = begin(Script({0: [[text("A plan.")]]}))
    token = (lab.folder / PLANNER_FILE).read_text()
    prompt = plan_prompt(lab.task, TaskMessage(specification="x"))
    asked: Any = {"model": "claude-opus-5-5", "messages": [{"role": "user", "content": prompt}]}
    with anthropic.Anthropic(api_key=token, base_url=lab.url, max_retries=0) as client:
        whole = client.messages.create(**asked, max_tokens=100)
        assert whole.content[0].type == "text"
        with client.messages.stream(**asked, max_tokens=100) as stream:
            assert "".join(stream.text_stream) == "A plan."
        assert client.messages.count_tokens(**asked).input_tokens == 14
        assert [found.id for found in client.models.list()] == ["claude-sonnet-5-5"]
        assert client.models.retrieve("claude-sonnet-5-5").id == "claude-sonnet-5-5"
    assert {seen.headers["x-api-key"] for seen in lab.model.seen} == {KEY}
    usd = cost_usd("claude-opus-5-5", USAGE)
    assert [entry.usd for entry in lab.recorded] == [pytest.approx(usd)] * 2  # and nothing else


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/messages/batches", 404),  # nobody would count what it costs
        ("/v1/files", 404),
        ("/v1/organizations/usage", 404),
        ("/v1/models", 405),
    ],
)
def test_what_would_not_be_counted_is_not_served(begin: Begin, path: str, status: int) -> None:
    lab = begin()
    before = len(lab.model.seen)
    answer = lab.post(path)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert len(lab.model.seen) == before


def test_an_error_passes_as_it_is_but_for_a_key_that_it_quotes(begin: Begin) -> None:
    faults = [
        Fault(status=429, headers={"retry-after": "7"}),
        Fault(status=529),
        Fault(status=400, message=f"You sent {KEY}.", headers={"x-echo": KEY}),
    ]
    lab = begin(Script({1: [[text("Hello.")]]}, faults=faults))
    limited, overloaded, quoted = lab.post(), lab.post(), lab.post()
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
    assert limited.json()["error"]["type"] == "rate_limit_error"
    assert limited.json()["request_id"] == "r-1"
    assert overloaded.status_code == 529
    assert quoted.json()["error"]["message"] == "You sent [key]."
    assert KEY not in str(quoted.headers)
    assert "content-length" not in quoted.headers  # or the end is seen before it is recorded
    assert [(entry.status, entry.usd) for entry in lab.recorded] == [(429, 0), (529, 0), (400, 0)]


def test_an_agent_hears_of_a_bad_key_in_a_way_that_it_does_not_repeat(begin: Begin) -> None:
    lab = begin(Script({}, always=Fault(status=401)))
    answer = lab.post()
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")


def test_nobody_there_is_said_in_the_apis_own_form(begin: Begin) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        lab = begin(url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        answer = lab.post()
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "api_error"
    assert "ConnectError" in answer.json()["error"]["message"]
    assert [(entry.status, entry.usd) for entry in lab.recorded] == [(502, 0)]


def test_a_cut_stream_is_cut_here_too_and_what_was_said_is_paid_for(begin: Begin) -> None:
    lab = begin(Script({1: [[text("word " * 3000)]]}, faults=[Fault(cut=True)]))
    with pytest.raises(httpx.RemoteProtocolError):
        lab.post()
    (entry,) = lab.recorded
    assert (entry.status, entry.complete) == (200, False)
    guess = cost_usd("claude-sonnet-5-5", {**USAGE, "output_tokens": 5000})
    assert entry.usd == pytest.approx(guess, rel=0.01)


def test_who_hangs_up_ends_the_request_upstream_and_pays(begin: Begin) -> None:
    lab = begin(Script({1: [[text("Hello.")]]}, faults=[Fault(endless=True)]))
    lab.model.hung_up.clear()
    with httpx.stream(
        "POST", f"{lab.url}/v1/messages", json=lab.body(), headers={"x-api-key": TOKEN}
    ) as answer:
        next(answer.iter_raw())
    assert lab.model.hung_up.wait(20)
    assert eventually(lambda: len(lab.recorded) == 1)
    (entry,) = lab.recorded
    assert not entry.complete
    assert 0 < entry.usd <= PRICE


def test_an_answer_that_cannot_be_read_is_not_passed_on(begin: Begin) -> None:
    lab = begin(Script({1: [[text("Hello.")]]}, faults=[Fault(gzipped=True)]))
    answer = lab.post()
    assert answer.status_code == 502
    assert "encoding" in answer.json()["error"]["message"]


def test_over_the_budget_nothing_is_asked_any_more(begin: Begin) -> None:
    lab = begin(budget_usd=0.03)
    assert [lab.post().status_code for _ in range(4)] == [200, 200, 402, 402]
    answer = lab.post()
    assert answer.json()["error"]["type"] == "billing_error"
    assert "0.0325 of 0.03 USD" in answer.json()["error"]["message"]
    assert len(lab.model.of(lab.task)) == 2
    assert lab.post("/v1/messages/count_tokens").status_code == 200


def test_a_further_attempt_has_the_budget_anew(begin: Begin) -> None:
    lab = begin(budget_usd=0.03)
    assert [lab.post().status_code for _ in range(3)] == [200, 200, 402]
    second = {"x-api-key": SECOND, "anthropic-version": "2023-06-01"}
    assert [lab.post(headers=second).status_code for _ in range(3)] == [200, 200, 402]
    assert lab.post().status_code == 402


def test_many_at_once_overdraw_the_budget_by_one_at_most(begin: Begin) -> None:
    lab = begin(budget_usd=0.05)
    body = lab.body(max_tokens=4000)
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(lab.post(json=body).status_code))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 4 + [402] * 8  # four cost 0.065
    assert sum(entry.usd for entry in lab.recorded) < 0.05 + PRICE


def test_a_model_without_a_price_is_counted_as_the_dearest_and_said_so(begin: Begin) -> None:
    lab = begin()
    assert lab.post(json=lab.body(model="claude-someday-9")).status_code == 200
    (entry,) = lab.recorded
    assert (entry.model, entry.priced_as) == ("claude-someday-9", "claude-fable-5")
    assert entry.usd == pytest.approx(cost_usd("claude-fable-5", USAGE))


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b"\xff"])
def test_what_is_no_request_is_refused_here(begin: Begin, body: bytes) -> None:
    lab = begin()
    answer = lab.post(json=None, content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert lab.model.of(lab.task) == []


def test_sizes_are_bounded(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asker, "REQUEST_BYTES", 50_000)
    monkeypatch.setattr(relay, "ERROR_BYTES", 1000)
    monkeypatch.setattr(recorder, "TASK_BYTES", 5000)
    faults = [Fault(status=500, message="x" * 9000)]
    lab = begin(Script({1: [[text("word " * 2000)]]}, faults=faults))
    assert lab.post(json=None, content=b" " * 50_001).status_code == 413
    assert len(lab.post().content) == 1000
    assert len(lab.post().content) > 10_000  # it passes, and is not kept whole
    assert [(entry.status, entry.kept) for entry in lab.recorded] == [(500, True), (200, False)]
    kept = [*(lab.folder / "recordings").rglob("*.json"), *lab.folder.rglob("*-answer")]
    assert 1000 < sum(path.stat().st_size for path in kept) <= 5000


def test_a_stranger_gets_nothing(begin: Begin) -> None:
    lab = begin()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert lab.post(path, headers={"x-api-key": "local-" + "f" * 48}).status_code == 403
    assert httpx.get(f"{lab.url}/v1/models").status_code == 403
    assert lab.model.of(lab.task) == []


def test_only_the_newest_recordings_are_kept(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "TASKS", 2)
    for name in ("one", "two", "three"):
        recorder.Recorder(tmp_path / "recordings" / name, {})
    assert len(list((tmp_path / "recordings").iterdir())) == 2
    assert (tmp_path / "recordings" / "three" / "message.json").exists()
    (tmp_path / "recordings" / "gone").symlink_to(tmp_path / "nowhere")  # as another removed it
    recorder.Recorder(tmp_path / "recordings" / "four", {})


DOCUMENT = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
FILE = {"type": "image", "source": {"type": "file", "file_id": "f-1"}}
NESTED = {"type": "tool_result", "tool_use_id": "t", "content": [DOCUMENT]}


@pytest.mark.parametrize(
    "more",
    [
        {"mcp_servers": [{"type": "url", "url": "https://example.com"}]},
        {"container": "c-1"},
        {"inference_geo": "us"},
        {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
        {"system": [DOCUMENT]},
    ],
    ids=lambda more: "-".join(more),
)
def test_what_reaches_beyond_the_request_is_not_asked(begin: Begin, more: dict[str, Any]) -> None:
    lab = begin()
    assert lab.post(json=lab.body(**more)).status_code == 400
    assert lab.model.of(lab.task) == []


@pytest.mark.parametrize("block", [DOCUMENT, FILE, NESTED])
def test_a_source_that_lies_elsewhere_is_not_fetched(begin: Begin, block: dict[str, Any]) -> None:
    lab = begin()
    body = lab.body()
    body["messages"].append({"role": "user", "content": [block]})
    assert lab.post(json=body).status_code == 400
    assert lab.model.of(lab.task) == []


def test_the_worst_price_counts_what_may_make_a_request_dear() -> None:
    model, plain = "claude-opus-4-7", {"max_tokens": 1000}
    pdf = {"source": {"type": "base64", "media_type": "application/pdf", "data": "x"}}
    png = {"source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    base = worst_usd(model, plain, 30_000)
    usage: dict[str, Any] = {"cache_creation_input_tokens": 10_000, "output_tokens": 1000}
    usage["cache_creation"] = {"ephemeral_1h_input_tokens": 10_000}
    assert base == pytest.approx(cost_usd(model, usage))
    assert worst_usd(model, {**plain, "speed": "fast"}, 30_000) == pytest.approx(6 * base)
    assert worst_usd(model, {**plain, "messages": [png] * 3}, 30_000) > base
    assert worst_usd(model, {**plain, "messages": [[pdf]]}, 30_000) > 10  # a whole context
    haiku = "claude-haiku-5-5"
    short, long = worst_usd(haiku, plain, 299_997), worst_usd(haiku, plain, 300_030)
    assert long > 4 * short


def test_an_answer_that_never_came_is_paid_for(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "TIMEOUT", httpx.Timeout(0.5))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes requests, and says nothing
        lab = begin(url=f"http://127.0.0.1:{silent.getsockname()[1]}", budget_usd=0.01)
        assert [lab.post().status_code for _ in range(3)] == [502, 402, 402]
    assert [entry.usd > 0.01 for entry in lab.recorded] == [True, False, False]


def test_one_sandbox_has_only_so_many_requests_open(begin: Begin) -> None:
    lab = begin()
    address = lab.url.removeprefix("http://").split(":")
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {TOKEN}\r\n"
    head += "Content-Length: 1000\r\n\r\n{"
    opened = [socket.create_connection((address[0], int(address[1]))) for _ in range(AT_ONCE)]
    for one in opened:
        one.sendall(head.encode())
    assert eventually(lambda: lab.post().status_code == 429)
    for one in opened:
        one.close()
    assert eventually(lambda: lab.post().status_code == 200)


def test_strangers_and_long_names_do_not_fill_the_log(begin: Begin) -> None:
    lab = begin()
    long = {"user-agent": "x" * 50_000}
    assert lab.post(headers={"x-api-key": "no", **long}).status_code == 403
    assert lab.post(headers={"x-api-key": TOKEN, **long}).status_code == 200
    (line,) = (lab.folder / "gateway.jsonl").read_text().splitlines()
    assert len(line) < 500


def test_a_tasks_books_are_opened_once_and_closed_when_others_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "TASKS", 2)
    opened: list[str] = []

    def message(task: str) -> dict[str, Any]:
        opened.append(task)
        return {"specification": task}

    async def scene() -> None:
        upstream = Upstream(base_url="http://127.0.0.1:9", api_key=KEY, recordings=tmp_path)
        made = forward.Forward(upstream, message)
        one, same = await asyncio.gather(made.books_of("a"), made.books_of("a"))
        await made.books_of("b")
        assert one is same is await made.books_of("a")
        await made.books_of("c")
        assert list(made.books) == ["a", "c"]
        await made.client.aclose()

    asyncio.run(scene())
    assert opened == ["a", "b", "c"]
