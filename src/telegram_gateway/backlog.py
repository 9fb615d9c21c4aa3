"""How many updates of a bot wait, so that a flood of them stops at the door and not at the disk."""

from typing import Final

from forge_jobs import Forge, JobStatus

from .config import Bot

_LOOK_EVERY_S: Final = 2.0
_OVER: Final = frozenset({JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED})


class Backlog:
    """Counts what waits every two seconds, and in between what came in here."""

    def __init__(self, forge: Forge, bot: Bot) -> None:
        self._forge = forge
        self._queue = bot.updates_queue
        self._most = bot.max_waiting
        self._waiting = 0
        self._look_at = 0.0

    async def is_full(self) -> bool:
        """Whether the next update has to stay with Telegram."""
        now = self._forge.clock.mono()
        if now >= self._look_at:
            # First, so that of many callers at once only one looks.
            self._look_at = now + _LOOK_EVERY_S
            store = await self._forge.aready()
            counts = await store.metrics.counts()
            self._waiting = sum(
                count.jobs
                for count in counts
                if count.queue == self._queue and count.status not in _OVER
            )
        return self._waiting >= self._most

    def grew(self) -> None:
        """One more came in."""
        self._waiting += 1
