"""Whether the workers keep up, by queue and by kind: backlog, what comes in and what ends, how busy
the slots are, and when the backlog is empty. Everything comes from the counters."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from forge_jobs.core.backlog import Trend, earlier_backlogs, empty_in_s, trend, utilisation
from forge_jobs.core.counters import Minute
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import MINUTE, SECOND
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import TERMINAL, JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .metrics import Point
from .queries import queues
from .store_time import store_now
from .views import QueueView, View

MAX_KINDS: Final = 25
MAX_MINUTES: Final = 60
_WAITS: Final = (JobStatus.PENDING, JobStatus.HELD)
LIVE: Final = tuple(status for status in JobStatus if status not in TERMINAL)
_NO_CAP: Final = 1_000_000_000


class CapacityView(View, frozen=True, kw_only=True):
    """How a queue, or one kind of a queue, keeps up with its jobs.

    ``backlog`` are jobs that could start: pending and held ones. ``utilisation`` is the share of
    the slots' time in which handlers ran; for a kind, its part of it. ``empty_in_s`` None: the
    backlog does not shrink.
    """

    queue: str
    kind: str | None
    trend: Trend
    backlog: int
    running: int
    slots: int
    enqueued_per_min: float
    ended_per_min: float
    utilisation: float | None
    empty_in_s: float | None
    lag_s: float | None


class Capacity(View, frozen=True, kw_only=True):
    """All queues by name, and the kinds that ran longest first, at most 25, over ``span_s``."""

    span_s: float
    queues: tuple[CapacityView, ...]
    kinds: tuple[CapacityView, ...]


async def capacity(store: Store, *, minutes: int = 10, clock: Clock = SYSTEM_CLOCK) -> Capacity:
    """How every queue and kind kept up over the last minutes, including the current one."""
    if not 1 <= minutes <= MAX_MINUTES:
        raise BadOption(f"minutes={minutes} must lie between 1 and {MAX_MINUTES}")
    now = await store_now(store, clock)
    since = now // MINUTE * MINUTE - (minutes - 1) * MINUTE
    span_s = max(1.0, (now - since) / SECOND)
    views, recent = await asyncio.gather(
        queues(store, clock=clock), store.metrics.minutes(since=since, until=now + MINUTE)
    )
    by_queue: dict[str, list[Minute]] = {}
    by_kind: dict[tuple[str, str], list[Minute]] = {}
    for one in recent:
        by_queue.setdefault(one.queue, []).append(one)
        by_kind.setdefault((one.queue, one.kind), []).append(one)
    busiest = sorted(by_kind, key=lambda name: (-_ran_s(by_kind[name]), name))[:MAX_KINDS]
    backlogs = await asyncio.gather(*(_count(store, name, *_WAITS) for name in busiest))
    running = await asyncio.gather(*(_count(store, name, JobStatus.RUNNING) for name in busiest))
    slots = {view.name: view.slots_live for view in views}
    return Capacity(
        span_s=round(span_s, 1),
        queues=tuple(_queue_view(view, by_queue.get(view.name, ()), span_s) for view in views),
        kinds=tuple(
            _view(
                name,
                by_kind[name],
                span_s,
                backlog=backlog,
                running=runs,
                slots=slots.get(name[0], 0),
            )
            for name, backlog, runs in zip(busiest, backlogs, running, strict=True)
        ),
    )


async def live_jobs(store: Store, *, queue: str | None = None, kind: str | None = None) -> int:
    """How many jobs of a queue and kind have not ended."""
    wanted = Filter(queue=queue, kind=kind, statuses=LIVE)
    return (await store.metrics.count(wanted, cap=_NO_CAP)).jobs


def unfinished_at(points: Sequence[Point], live: int) -> list[int]:
    """The number of unfinished jobs at the end of each point, from how many there are now. The
    points reach until now."""
    return earlier_backlogs(live, [one.enqueued - _ended(one) for one in points])


def utilisation_at(points: Sequence[Point], slots: int, step_s: int) -> list[float | None]:
    """The share of the slots' time in which handlers ran, by point; of today's slots."""
    return [utilisation((one.ran.mean_s or 0.0) * one.ran.count, slots, step_s) for one in points]


async def _count(store: Store, name: tuple[str, str], *statuses: JobStatus) -> int:
    wanted = Filter(queue=name[0], kind=name[1], statuses=statuses)
    return (await store.metrics.count(wanted, cap=_NO_CAP)).jobs


def _queue_view(queue: QueueView, minutes: Sequence[Minute], span_s: float) -> CapacityView:
    return _view(
        (queue.name, None),
        minutes,
        span_s,
        backlog=sum(queue.counts[status] for status in _WAITS),
        slots=queue.slots_live,
        running=queue.counts[JobStatus.RUNNING],
        lag_s=queue.lag_s,
    )


def _view(
    name: tuple[str, str | None],
    minutes: Sequence[Minute],
    span_s: float,
    *,
    backlog: int,
    slots: int,
    running: int,
    lag_s: float | None = None,
) -> CapacityView:
    enqueued, ended = sum(one.enqueued for one in minutes), sum(map(_ended, minutes))
    empty_s, busy = (
        empty_in_s(backlog, enqueued, ended, span_s),
        utilisation(_ran_s(minutes), slots, span_s),
    )
    return CapacityView(
        queue=name[0],
        kind=name[1],
        trend=trend(backlog, enqueued, ended, running=running),
        backlog=backlog,
        running=running,
        slots=slots,
        enqueued_per_min=round(enqueued * 60 / span_s, 1),
        ended_per_min=round(ended * 60 / span_s, 1),
        utilisation=None if busy is None else round(busy, 3),
        empty_in_s=None if empty_s is None else round(empty_s, 1),
        lag_s=lag_s,
    )


def _ended(one: Minute | Point) -> int:
    return one.done + one.dead + one.cancelled


def _ran_s(minutes: Iterable[Minute]) -> float:
    return sum(one.ran_s for one in minutes)
