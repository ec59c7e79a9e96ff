"""Sends requests to Anthropic with the user's key, which no sandbox ever holds.

What it costs counts against the task's budget, and request and answer are kept. Only what is
metered or free can be asked for (see server.py): with the user's key, an agent could otherwise
spend without anybody counting.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response

from autocoder.local.gateway.asker import Asker
from autocoder.local.gateway.budget import Account
from autocoder.local.gateway.charge import Charge, Free
from autocoder.local.gateway.errors import RefusedError
from autocoder.local.gateway.meter import Meter
from autocoder.local.gateway.recorder import TASKS, Recorder
from autocoder.local.gateway.relay import Relay
from autocoder.local.gateway.worst import check, worst_usd
from autocoder.message import TaskMessage
from autocoder.model import Frozen

TIMEOUT = httpx.Timeout(600.0, connect=15.0, pool=None)
LIMITS = httpx.Limits(max_connections=None)
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
PASSED_ON = (
    "accept",
    "content-type",
    "user-agent",
    "anthropic-",
    "x-stainless-",
    "x-app",
    "x-claude-",
)


class Upstream(Frozen):
    """Where the model is, its key, and where recordings go."""

    base_url: str
    api_key: str
    recordings: Path


class Books:
    """What is kept of a task: a recording, and an account an attempt, for its budget is anew."""

    def __init__(self, budget_usd: float, recorder: Recorder) -> None:
        """No attempt has asked yet."""
        self.budget_usd = budget_usd
        self.recorder = recorder
        self.accounts: dict[int, Account] = {}

    def account(self, asker: Asker) -> Account:
        """The attempt's account; the planner's is the newest there is, or the first."""
        attempt = asker.attempt or max(self.accounts, default=1)
        return self.accounts.setdefault(attempt, Account(self.budget_usd))


class Forward:
    """Passes requests on."""

    def __init__(self, upstream: Upstream, messages: Callable[[str], dict[str, Any]]) -> None:
        """`messages` gives a task's message, as the service stored it."""
        self.upstream = upstream
        self.messages = messages
        self.client = httpx.AsyncClient(timeout=TIMEOUT, limits=LIMITS)
        self.books: dict[str, Books] = {}
        self.opening = asyncio.Lock()

    def free(self, request: Request, asker: Asker, body: bytes) -> Response:
        """Pass on what costs nothing."""
        return self.relay(request, asker, body, Free())

    async def paid(
        self, request: Request, asker: Asker, body: bytes, content: dict[str, Any]
    ) -> Response:
        """Pass on POST /v1/messages, as long as the task has money left."""
        check(content)
        books = await self.books_of(asker.task)
        model = str(content.get("model"))
        worst = worst_usd(model, content, len(body))
        meter = Meter(model, streamed=bool(content.get("stream")), worst_usd=worst)
        charge = Charge(books.account(asker), meter, books.recorder.begin(asker, body))
        return self.relay(request, asker, body, charge)

    def relay(self, request: Request, asker: Asker, body: bytes, charge: Charge | Free) -> Relay:
        """Make the answer; nothing is asked before somebody is there to hear it."""
        return Relay(
            lambda: self.ask(request, body),
            charge,
            secret=self.upstream.api_key,
            for_agent=not asker.is_planner,
        )

    async def books_of(self, task: str) -> Books:
        """Open the task's books when it first asks; close those that lay unused the longest."""
        if task not in self.books:
            async with self.opening:
                if task not in self.books:
                    self.books[task] = await asyncio.to_thread(self.open_books, task)
        books = self.books[task] = self.books.pop(task)  # the last is the one used last
        if len(self.books) > TASKS:
            del self.books[next(iter(self.books))]
        return books

    def open_books(self, task: str) -> Books:
        """Read what it may spend, and begin a recording: both take a while."""
        message = self.messages(task)
        budget = TaskMessage.model_validate(message).limits.budget_usd
        return Books(budget, Recorder(self.upstream.recordings / task, message))

    @asynccontextmanager
    async def ask(self, request: Request, body: bytes) -> AsyncIterator[httpx.Response]:
        """Ask upstream; the key is added here and nowhere else."""
        url = httpx.URL(self.upstream.base_url.rstrip("/") + request.url.path)
        headers = {k: v for k, v in request.headers.items() if k.startswith(PASSED_ON)}
        headers |= {"x-api-key": self.upstream.api_key, "accept-encoding": "identity"}
        url = url.copy_with(query=request.scope["query_string"] or None)
        try:
            async with self.client.stream(
                request.method, url, headers=headers, content=body or None
            ) as answer:
                yield answer
        except NEVER_SENT as error:
            why = type(error).__name__  # its text may quote the request
            raise RefusedError(502, f"The model's API could not be reached ({why}).") from error
        except httpx.HTTPError as error:
            why = type(error).__name__
            text = f"The model's API did not answer to the end ({why})."
            raise RefusedError(502, text, taken=True) from error
