"""Warns when a handler blocks the job loop, and names the kinds that run. Runs on the I/O port."""

import logging
from collections.abc import Callable, Iterable

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.log import log_facts

_LOG = logging.getLogger("forge_jobs.loop")
_CHECK_S = 1.0
_BLOCKED_S = 3.0
_KINDS_SHOWN = 5


class LoopWatch:
    """Posts a callback to the job loop every second; a late one is logged, once."""

    def __init__(self, job_loop: JobLoop, clock: Clock, kinds: Callable[[], Iterable[str]]) -> None:
        self._job_loop = job_loop
        self._clock = clock
        self._kinds = kinds
        self._sent_at: float | None = None
        self._warned = False

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            self._check()
            await self._clock.sleep(_CHECK_S)

    def _check(self) -> None:
        now = self._clock.mono()
        if self._sent_at is None:
            self._sent_at = now
            self._job_loop.post(self._echo)
        elif now - self._sent_at > _BLOCKED_S and not self._warned:
            self._warned = True
            kinds = list(dict.fromkeys(self._kinds()))[:_KINDS_SHOWN]
            log_facts(
                _LOG, logging.WARNING,
                "a handler blocks the event loop: use def instead of async def, or cpu=True",
                blocked_s=round(now - self._sent_at, 1), kinds=kinds,
            )  # fmt: skip

    def _echo(self) -> None:
        self._sent_at = None
        self._warned = False
