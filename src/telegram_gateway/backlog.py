"""Counts a bot's unfinished updates, so that the webhook can refuse more (back-pressure)."""

from typing import Final

from forge_jobs import Forge, JobStatus

from .config import Bot

_COUNT_EVERY_S: Final = 2.0
_TERMINAL: Final = frozenset({JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED})


class Backlog:
    """Reads the count from the store every two seconds; between reads it adds what this process
    stored."""

    def __init__(self, forge: Forge, bot: Bot) -> None:
        self._forge = forge
        self._queue = bot.updates_queue
        self._max_waiting = bot.max_waiting
        self._waiting = 0
        self._count_at = 0.0

    async def is_full(self) -> bool:
        """Whether the limit is reached: then the webhook answers 503 and Telegram redelivers."""
        now = self._forge.clock.mono()
        if now >= self._count_at:
            # Set before the query, so that only one of many concurrent callers runs it.
            self._count_at = now + _COUNT_EVERY_S
            store = await self._forge.aready()
            counts = await store.metrics.counts()
            self._waiting = sum(
                count.jobs
                for count in counts
                if count.queue == self._queue and count.status not in _TERMINAL
            )
        return self._waiting >= self._max_waiting

    def increment(self) -> None:
        """Count one update that this process stored."""
        self._waiting += 1
