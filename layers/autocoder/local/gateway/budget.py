"""What a task's attempt may still spend: the service's own count, outside of the sandbox.

The CLI keeps to a budget by itself, but an agent may call the model without it.
"""

import asyncio

from autocoder.local.gateway.errors import RefusedError
from autocoder.prices import AS_OF


class Account:
    """An attempt's money. One request at most may go beyond it, by what it costs.

    What a request costs is known when it has ended. Until then the most that it can cost is held
    back, and others wait if it might be all that is left.
    """

    def __init__(self, budget_usd: float) -> None:
        """`budget_usd` is the message's limit."""
        self.budget_usd = budget_usd
        self.spent_usd = 0.0
        self._held: list[float] = []
        self._settled = asyncio.Event()

    async def admit(self, worst_usd: float) -> None:
        """Wait until there is certainly money left; refuse when there is none."""
        while self._held and self.spent_usd + sum(self._held) >= self.budget_usd:
            await self._settled.wait()
        if self.spent_usd >= self.budget_usd:
            # 402: the CLI tries again what is answered with 429.
            raise RefusedError(
                402,
                f"The task's budget (limits.budget_usd) is used up: {self.spent_usd:.4f} of "
                f"{self.budget_usd:.2f} USD, by the prices of {AS_OF}.",
            )
        self._held.append(worst_usd)

    def settle(self, worst_usd: float, usd: float) -> None:
        """Charge an admitted request that has ended."""
        self._held.remove(worst_usd)
        self.spent_usd += usd
        self._settled.set()
        self._settled = asyncio.Event()
