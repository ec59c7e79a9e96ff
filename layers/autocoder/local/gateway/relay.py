"""An answer of upstream's, passed on byte for byte as it comes, with flat memory."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from autocoder.local.gateway.charge import Charge, Free
from autocoder.local.gateway.errors import RefusedError

ERROR_BYTES = 1 << 20  # of an answer that is an error: more is not passed on
HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip
# Without a length the asker sees the end only when it is sent: after the request was paid for.
LEFT_OUT = HOP_BY_HOP | {"content-length"}

Ask = Callable[[], AbstractAsyncContextManager[httpx.Response]]


class Relay(Response):
    """Asks when it is sent, and stops asking when its reader hangs up."""

    def __init__(self, ask: Ask, charge: Charge | Free, *, secret: str, for_agent: bool) -> None:
        """`secret` must not come back in an error; an agent hears of a bad key in another way."""
        self.ask = ask
        self.charge = charge
        self.secret = secret
        self.for_agent = for_agent
        self.background = None
        self.begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or end with whoever hangs up first."""
        work = asyncio.create_task(self.answer(scope, receive, send))
        gone = asyncio.create_task(hung_up(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled():
            work.result()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask, and say what went wrong in the API's own words.

        An answer that breaks off is left without its end: the server then breaks the connection,
        and the asker sees what happened here.
        """
        try:
            async with self.charge.admitted(), self.ask() as upstream:
                await self.pass_on(upstream, send)
            await send({"type": "http.response.body"})  # it is paid for: the next may come
        except RefusedError as refused:
            if not self.begun:
                await refused.response()(scope, receive, send)

    async def pass_on(self, upstream: httpx.Response, send: Send) -> None:
        """Pass an answer on; one that is an error is looked through first."""
        if upstream.headers.get("content-encoding", "identity") != "identity":
            text = "The model's API answered in an encoding nobody asked for."
            raise RefusedError(502, text, taken=upstream.status_code == 200)
        self.charge.status = upstream.status_code
        if upstream.status_code != 200:
            await self.pass_error_on(upstream, send)
            return
        await self.begin(upstream, send)
        async for chunk in upstream.aiter_raw():
            self.charge.take(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.charge.end()

    async def pass_error_on(self, upstream: httpx.Response, send: Send) -> None:
        """Pass an error on as it is, without the key, whoever may have quoted it."""
        if upstream.status_code == 401 and self.for_agent:
            # The CLI tries a 401 again for minutes; a 403 it takes for an answer.
            raise RefusedError(403, "The model's API does not know the API key (401).")
        body = bytearray()
        async for chunk in upstream.aiter_raw():
            body += chunk[: ERROR_BYTES - len(body)]
            if len(body) == ERROR_BYTES:
                break
        told = bytes(body).replace(self.secret.encode(), b"[key]")
        self.charge.take(told)
        await self.begin(upstream, send)
        await send({"type": "http.response.body", "body": told, "more_body": True})

    async def begin(self, upstream: httpx.Response, send: Send) -> None:
        """Send the head of the answer."""
        named = upstream.headers.get("connection", "").lower().replace(",", " ").split()
        left_out = LEFT_OUT.union(named)
        headers = [
            (name, value)
            for name, value in upstream.headers.raw
            if name.decode().lower() not in left_out and self.secret.encode() not in value
        ]
        self.begun = True
        status = upstream.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})


async def hung_up(receive: Receive) -> None:
    """Return when the asker is gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
