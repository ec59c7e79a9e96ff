"""A sandbox's own time."""

from __future__ import annotations

import asyncio


class Clock:
    """Stands still while the sandbox is paused, as that of a virtual machine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._runs = asyncio.Event()
        self._runs.set()
        self._stopped_at = 0.0
        self._stood_still = 0.0

    @property
    def runs(self) -> bool:
        return self._runs.is_set()

    def stop(self) -> None:
        self._stopped_at = self._loop.time()
        self._runs.clear()

    def start(self) -> None:
        self._stood_still += self._loop.time() - self._stopped_at
        self._runs.set()

    async def sleep(self, seconds: float) -> None:
        end = self._now() + seconds
        while (left := end - self._now()) > 0:
            await asyncio.sleep(left)
            await self._runs.wait()

    def _now(self) -> float:
        return (self._loop.time() if self.runs else self._stopped_at) - self._stood_still
