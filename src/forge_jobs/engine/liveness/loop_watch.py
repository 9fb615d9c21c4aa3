"""Notices a handler that blocks the job loop, from the I/O side, and says which one it may be."""

import logging
from collections.abc import Callable, Iterable

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.clock import Clock

_LOG = logging.getLogger("forge_jobs.loop")
_LOOK_S = 1.0
_BLOCKED_S = 3.0
_KINDS_SHOWN = 5


class LoopWatch:
    """Sends an echo round the job loop every second; a late one is worth a warning, once."""

    def __init__(self, job_loop: JobLoop, clock: Clock, kinds: Callable[[], Iterable[str]]) -> None:
        self._job_loop = job_loop
        self._clock = clock
        self._kinds = kinds
        self._sent_at: float | None = None
        self._warned = False

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self._look()
            await self._clock.sleep(_LOOK_S)

    def _look(self) -> None:
        now = self._clock.mono()
        if self._sent_at is None:
            self._sent_at = now
            self._job_loop.post(self._echo)
        elif now - self._sent_at > _BLOCKED_S and not self._warned:
            self._warned = True
            kinds = list(dict.fromkeys(self._kinds()))[:_KINDS_SHOWN]
            _LOG.warning(
                "a handler blocks the event loop: use def instead of async def, or cpu=True",
                extra={"blocked_s": round(now - self._sent_at, 1), "kinds": kinds},
            )

    def _echo(self) -> None:
        self._sent_at = None
        self._warned = False
