"""Counters: jobs by queue and state, and what happened per minute, queue and kind."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .histogram import EMPTY, Histogram, merged
from .instant import Instant
from .status import JobStatus


class Count(Struct, frozen=True):
    """The number of jobs of a queue in a state."""

    queue: str
    status: JobStatus
    jobs: int


class KindCount(Struct, frozen=True):
    """The number of jobs of a queue and kind in a state."""

    queue: str
    kind: str
    status: JobStatus
    jobs: int


class Minute(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to jobs of one queue and kind within one minute (``at`` is its start).

    ``started`` counts claims. Each claim ends as exactly one of: done; retried (failed, or its
    process died after the start); dead; cancelled; throttled; released (attempt given back:
    released, snoozed, without a handler, or its process died before the start). ``cancelled`` also
    counts jobs that never started. ``waited`` (due to start) and ``ran`` have one sample per finish
    of a worker that had called the handler, ``took`` (enqueue to end) one per job done.
    """

    at: Instant
    queue: str
    kind: str
    enqueued: int = 0
    started: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    throttled: int = 0
    released: int = 0
    waited: Histogram = EMPTY
    ran: Histogram = EMPTY
    took: Histogram = EMPTY

    @property
    def ran_s(self) -> float:
        """The total time that handlers ran."""
        return self.ran.sum_s


class CappedCount(Struct, frozen=True):
    """A count that stops at a cap; ``more``: there are more jobs."""

    jobs: int
    more: bool = False


def merge_minutes(parts: Sequence[Minute], *, at: Instant, queue: str, kind: str) -> Minute:
    """The sum of several minutes, under the given minute, queue and kind."""
    return Minute(
        at=at,
        queue=queue,
        kind=kind,
        enqueued=sum(part.enqueued for part in parts),
        started=sum(part.started for part in parts),
        done=sum(part.done for part in parts),
        retried=sum(part.retried for part in parts),
        dead=sum(part.dead for part in parts),
        cancelled=sum(part.cancelled for part in parts),
        throttled=sum(part.throttled for part in parts),
        released=sum(part.released for part in parts),
        waited=merged(part.waited for part in parts),
        ran=merged(part.ran for part in parts),
        took=merged(part.took for part in parts),
    )


def group_minutes(parts: Iterable[Minute]) -> list[Minute]:
    """One entry per minute, queue and kind, sorted by them."""
    named: dict[tuple[Instant, str, str], list[Minute]] = {}
    for part in parts:
        named.setdefault((part.at, part.queue, part.kind), []).append(part)
    return [
        same[0] if len(same) == 1 else merge_minutes(same, at=at, queue=queue, kind=kind)
        for (at, queue, kind), same in sorted(named.items(), key=lambda item: item[0])
    ]


def sum_totals(parts: Iterable[Minute]) -> list[Minute]:
    """The sum over all time per queue and kind, under minute 0."""
    named: dict[tuple[str, str], list[Minute]] = {}
    for part in parts:
        named.setdefault((part.queue, part.kind), []).append(part)
    return [
        merge_minutes(same, at=0, queue=queue, kind=kind)
        for (queue, kind), same in sorted(named.items())
    ]


def by_period(parts: Iterable[Minute], length: Instant) -> list[Minute]:
    """The sums of each period of this length, queue and kind, sorted by them."""
    return group_minutes(replace(part, at=part.at - part.at % length) for part in parts)
