"""Caches chart data in memory, so that pages do not read the same minutes again.

A week of minutes may be hundreds of thousands of counter entries. A chart is assembled from
segments of at most ten minutes. Segments of the past are cached. A call that would exceed its time
budget returns the newest points it has, and a background task reads the rest, newest first.
Programs that need a complete series in one call use ``ops.metrics.series``.
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

from .metrics import Point, align_range, sum_point
from .store_time import store_now

DEFAULT_BUDGET_S: Final = 0.03
_MAX_SEGMENT: Final = 10 * MINUTE
# A long transaction adds to a minute of the past when it commits: an hour later none does.
_FINAL_AFTER: Final = 60 * MINUTE
_REREAD_AFTER: Final = 60 * SECOND
_MAX_SEGMENTS: Final = 20_000
# Segments of other charts that stay in the queue of the background task.
_MAX_OTHERS: Final = 1_000

_LOG = logging.getLogger(__name__)


class Chart(Struct, frozen=True):
    """Points without gaps up to now. ``complete`` False: older ones are still being read."""

    points: tuple[Point, ...]
    complete: bool


class _SegmentKey(Struct, frozen=True):
    """Identifies one segment: queue and kind (None: all of them), start and end."""

    queue: str | None
    kind: str | None
    at: Instant
    until: Instant


class _Segment(Struct, frozen=True):
    """The summed counters of a segment, and when they were read."""

    counters: Minute
    read_at: Instant


class ChartCache:
    """The cached segments of one store, per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._segments: OrderedDict[_SegmentKey, _Segment] = OrderedDict()
        self._missing: list[_SegmentKey] = []
        self._read_task: asyncio.Task[None] | None = None
        # How many segments the background task has read; live pages render again when it rises.
        self.background_reads = 0

    async def chart(
        self,
        store: Store,
        *,
        since: datetime,
        until: datetime,
        step_s: int,
        queue: str | None = None,
        kind: str | None = None,
        budget_s: float = DEFAULT_BUDGET_S,
    ) -> Chart:
        """The points of a range, newest first, as far as they can be read within ``budget_s``."""
        first, end, step = align_range(since, until, step_s)
        length = min(step, _MAX_SEGMENT)
        started, now = self._clock.mono(), await store_now(store, self._clock)
        points: list[Point] = []
        for at in reversed(range(first, end, step)):
            keys = [
                _SegmentKey(queue, kind, start, min(start + length, end))
                for start in range(at, min(at + step, end), length)
            ]
            for key in keys:
                if self._cached(key, now) is None and (
                    not points or self._clock.mono() - started < budget_s
                ):
                    await self._read(store, key, now)
            cached = [self._cached(key, now) for key in keys]
            counters = [segment.counters for segment in cached if segment is not None]
            if len(counters) < len(keys):
                self._read_in_background(store, keys[0], range(first, at + step, length), end)
                break
            points.append(sum_point(at, counters, open=at + step > now))
        return Chart(tuple(reversed(points)), len(points) == len(range(first, end, step)))

    async def close(self) -> None:
        """Stop the background task."""
        task, self._read_task = self._read_task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _cached(self, key: _SegmentKey, now: Instant) -> _Segment | None:
        segment = self._segments.get(key)
        if segment is None:
            return None
        final = segment.read_at >= key.until + _FINAL_AFTER
        past = segment.read_at >= key.until
        fresh = now - segment.read_at < (_REREAD_AFTER if past else SECOND // 2)
        return segment if final or fresh else None

    async def _read(self, store: Store, key: _SegmentKey, now: Instant) -> None:
        minutes = await store.metrics.minutes(since=key.at, until=key.until, queue=key.queue)
        of_kind = [one for one in minutes if key.kind in (None, one.kind)]
        counters = merge_minutes(of_kind, at=key.at, queue="", kind="")
        self._segments[key] = _Segment(counters, now)
        self._segments.move_to_end(key)
        while len(self._segments) > _MAX_SEGMENTS:
            self._segments.popitem(last=False)

    def _read_in_background(
        self, store: Store, like: _SegmentKey, starts: range, end: Instant
    ) -> None:
        """Read the segments of the queue and kind of ``like``, besides those that others asked."""
        wanted = [
            _SegmentKey(like.queue, like.kind, start, min(start + starts.step, end))
            for start in starts
        ]
        known = set(wanted)
        self._missing = [key for key in self._missing if key not in known]
        self._missing = self._missing[-_MAX_OTHERS:] + wanted
        if self._read_task is None or self._read_task.done():
            self._read_task = asyncio.create_task(self._read_missing(store), name="chart cache")

    async def _read_missing(self, store: Store) -> None:
        while self._missing:
            key = self._missing.pop()
            started = self._clock.mono()
            try:
                now = await store_now(store, self._clock)
                if self._cached(key, now) is not None:
                    continue
                await self._read(store, key, now)
                self.background_reads += 1
            except ForgeError as error:
                # the page that shows the chart reports an unreachable store
                _LOG.info("older minutes cannot be read now", extra={"code": error.code})
                return
            # pause as long as the read took: workers and requests have priority
            await self._clock.sleep(self._clock.mono() - started)
