"""Charts that many look at, again and again: what is over is read once and remembered.

A week of minutes is much to read: hundreds of thousands of entries where many kinds of jobs run. A
chart is put together from pieces of at most ten minutes. Pieces that are over are kept; a look that
finds too many missing shows what it has, newest first, and the rest is read in the background, a
little at a time. Programs that want a whole series at once use ``ops.metrics.series``.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from datetime import datetime
from typing import Final

from msgspec import Struct

from forge_jobs.core.counters import Minute, merge_minutes
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import MINUTE, SECOND, Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Store

from .metrics import Point, point, steps_of
from .store_time import store_now

PATIENCE_S: Final = 0.03
_LONGEST: Final = 10 * MINUTE
# Transactions that take long tell late of what they did.
_SETTLED: Final = 60 * MINUTE
_AGAIN: Final = 60 * SECOND
_KEPT: Final = 20_000

_LOG = logging.getLogger(__name__)


class Chart(Struct, frozen=True):
    """Points without gaps up to the present. ``whole`` False: older ones are still being read."""

    points: tuple[Point, ...]
    whole: bool


class _ChartKey(Struct, frozen=True):
    """One piece of one chart."""

    queue: str | None
    at: Instant
    until: Instant


class _Segment(Struct, frozen=True):
    """What happened in it, and when that was read."""

    told: Minute
    read_at: Instant


class ChartCache:
    """What one process remembers of the books of one store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pieces: OrderedDict[_ChartKey, _Segment] = OrderedDict()
        self._wanted: list[_ChartKey] = []
        self._reading: asyncio.Task[None] | None = None
        # Pieces that were read while nobody waited for them.
        self.caught_up = 0

    async def chart(
        self,
        store: Store,
        *,
        since: datetime,
        until: datetime,
        step_s: int,
        queue: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Chart:
        """What happened in a range, as far as it is known within ``patience_s``."""
        first, end, step = steps_of(since, until, step_s)
        size = min(step, _LONGEST)
        begun, now = self._clock.mono(), await store_now(store, self._clock)
        points: list[Point] = []
        for at in reversed(range(first, end, step)):
            places = [
                _ChartKey(queue, start, min(start + size, end))
                for start in range(at, min(at + step, end), size)
            ]
            for place in places:
                if self._known(place, now) is None and (
                    not points or self._clock.mono() - begun < patience_s
                ):
                    await self._read(store, place, now)
            known = [self._known(place, now) for place in places]
            parts = [piece.told for piece in known if piece is not None]
            if len(parts) < len(places):
                self._read_on(store, queue, range(first, at + step, size), end)
                break
            points.append(point(at, parts))
        return Chart(tuple(reversed(points)), len(points) == len(range(first, end, step)))

    async def close(self) -> None:
        """Read no further."""
        task, self._reading = self._reading, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _known(self, place: _ChartKey, now: Instant) -> _Segment | None:
        piece = self._pieces.get(place)
        if piece is None:
            return None
        settled = piece.read_at >= place.until + _SETTLED
        over = piece.read_at >= place.until
        fresh = now - piece.read_at < (_AGAIN if over else SECOND // 2)
        return piece if settled or fresh else None

    async def _read(self, store: Store, place: _ChartKey, now: Instant) -> None:
        told = await store.metrics.minutes(since=place.at, until=place.until, queue=place.queue)
        whole = merge_minutes(told, at=place.at, queue="", kind="")
        self._pieces[place] = _Segment(whole, now)
        self._pieces.move_to_end(place)
        while len(self._pieces) > _KEPT:
            self._pieces.popitem(last=False)

    def _read_on(self, store: Store, queue: str | None, starts: range, end: Instant) -> None:
        """Read the rest while nobody waits for it, newest first."""
        self._wanted = [_ChartKey(queue, start, min(start + starts.step, end)) for start in starts]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._reader(store), name="chronicle")

    async def _reader(self, store: Store) -> None:
        while self._wanted:
            place = self._wanted.pop()
            begun = self._clock.mono()
            try:
                now = await store_now(store, self._clock)
                if self._known(place, now) is not None:
                    continue
                await self._read(store, place, now)
                self.caught_up += 1
            except ForgeError as error:
                # the page that shows the chart tells people of a store that is away
                _LOG.info("older minutes cannot be read now", extra={"code": error.code})
                return
            # as long as it took: whoever works or looks comes first
            await self._clock.sleep(self._clock.mono() - begun)
