"""The janitor: purges old jobs and rows and recovers stale jobs, at start and then at intervals.

Dead updates are never purged unless their retention is set.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs import Forge, cleanup_once, reap_stale_jobs

from .config import Settings
from .handlers.auth import WRONG_WITHIN_S
from .metrics import GatewayMetrics
from .storage import GatewayStore

_LOG: Final = logging.getLogger("telegram_gateway.janitor")
_MAX_PASS_S: Final = 30.0
_SECOND: Final = 1_000_000
_QUARANTINE_S: Final = 7 * 86_400


class Janitor:
    """A backstop: workers recover jobs by lease within seconds; this runs without them, too."""

    def __init__(
        self, forge: Forge, settings: Settings, storage: GatewayStore, counters: GatewayMetrics
    ) -> None:
        self._forge = forge
        self._settings = settings
        self._storage = storage
        self._counters = counters

    async def run_once(self) -> None:
        """Run one pass. A failing step does not stop the others; the pass ends after 30 s."""
        try:
            async with asyncio.timeout(_MAX_PASS_S):
                await self._step("purged", self._purge_jobs)
                await self._step("recovered", self._recover_jobs)
                await self._step("forgotten", self._purge_storage)
        except TimeoutError:
            _LOG.warning("the pass took longer than %g s; the next one continues", _MAX_PASS_S)

    async def run(self) -> None:
        """Run a pass after every interval, until cancelled."""
        while True:
            await self._forge.clock.sleep(self._settings.janitor_interval_s)
            await self.run_once()

    async def _step(self, name: str, step: Callable[[], Awaitable[int]]) -> None:
        try:
            count = await step()
        except TimeoutError:
            raise
        except Exception as error:
            _LOG.warning("step %s failed: %s", name, type(error).__name__)
            return
        if count:
            _LOG.info("%s: %d", name, count)
            self._counters.count("gateway_janitor_total", count, step=name)

    async def _purge_jobs(self) -> int:
        return (await cleanup_once(await self._forge.aready(), clock=self._forge.clock)).jobs

    async def _recover_jobs(self) -> int:
        reaped = await reap_stale_jobs(await self._forge.aready())
        return reaped.pending + reaped.dead + reaped.cancelled

    async def _purge_storage(self) -> int:
        now = self._forge.clock.now()
        return await self._storage.purge(
            now=now,
            wrong_before=now - WRONG_WITHIN_S * _SECOND,
            quarantine_before=now - _QUARANTINE_S * _SECOND,
        )
