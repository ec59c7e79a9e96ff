"""One request's price: admitted before it is asked, settled and recorded when it has ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from autocoder.local.gateway.budget import Account
from autocoder.local.gateway.errors import RefusedError
from autocoder.local.gateway.meter import Meter
from autocoder.local.gateway.recorder import Exchange
from autocoder.prices import priced_as

HUNG_UP = 499  # nginx's number for an asker that did not wait for the answer


class Free:
    """What costs nothing, and is not kept."""

    status = HUNG_UP

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Let it through."""
        yield

    def take(self, chunk: bytes) -> None:
        """Look away."""

    def end(self) -> None:
        """Look away."""


class Charge:
    """What the task pays for."""

    def __init__(self, account: Account, meter: Meter, exchange: Exchange) -> None:
        """The books are the task's, the meter and the exchange this request's own."""
        self.account = account
        self.meter = meter
        self.exchange = exchange
        self.status = HUNG_UP

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Wait for its turn; however it ends, it is settled and recorded."""
        try:
            await self.account.admit(self.meter.worst_usd)
        except RefusedError as refused:
            self.status = refused.status
            self.record(0.0)
            raise
        taken = False
        try:
            yield
        except RefusedError as refused:
            self.status = self.status if self.status == 200 else refused.status
            taken = refused.taken
            raise
        finally:
            # An error of upstream's costs nothing. Where its answer was not waited for, or got
            # lost, it may be billed all the same: then the task pays the most that it can cost.
            usd = self.meter.usd if taken or self.status in (200, HUNG_UP) else 0.0
            self.account.settle(self.meter.worst_usd, usd)
            self.record(usd)

    def record(self, usd: float) -> None:
        """Write down how it ended."""
        self.exchange.end(
            model=self.meter.model,
            priced_as=priced_as(self.meter.model),
            status=self.status,
            complete=self.status == 200 and self.meter.complete,
            usd=usd,
        )

    def take(self, chunk: bytes) -> None:
        """Read and keep a part of the answer."""
        if self.status == 200:
            self.meter.feed(chunk)
        self.exchange.answer(chunk)

    def end(self) -> None:
        """The answer is whole."""
        self.meter.end()
