"""Counting: what each writing transaction adds to the books."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .histogram import EMPTY, Histogram, merged
from .instant import Instant
from .status import JobStatus


class Count(Struct, frozen=True):
    """How many jobs of a queue are in a state."""

    queue: str
    status: JobStatus
    jobs: int


class Minute(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to jobs of one queue and kind within one minute (``at`` is its start).

    ``started`` counts claims. Each of them ends as exactly one of done, retried (failed, or lost
    with its worker), dead, cancelled, throttled or ``released`` (handed back unspent: released,
    snoozed, without a handler, or lost before its start). ``cancelled`` also counts jobs that never
    started. ``waited`` (due to start) and ``ran`` hold one sample for each end told by a
    worker that had called the handler, ``took`` (enqueue to end) one for each job done.
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
        """How long handlers ran in all."""
        return self.ran.sum_s


class CappedCount(Struct, frozen=True):
    """A count that stops at its cap: ``more`` says that there are more."""

    jobs: int
    more: bool = False


def merge_minutes(parts: Sequence[Minute], *, at: Instant, queue: str, kind: str) -> Minute:
    """All parts as one, under the name given."""
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
    """One entry per minute, queue and kind, in that order."""
    named: dict[tuple[Instant, str, str], list[Minute]] = {}
    for part in parts:
        named.setdefault((part.at, part.queue, part.kind), []).append(part)
    return [
        same[0] if len(same) == 1 else merge_minutes(same, at=at, queue=queue, kind=kind)
        for (at, queue, kind), same in sorted(named.items(), key=lambda item: item[0])
    ]


def sum_totals(parts: Iterable[Minute]) -> list[Minute]:
    """The same per queue and kind over all time, under minute 0."""
    named: dict[tuple[str, str], list[Minute]] = {}
    for part in parts:
        named.setdefault((part.queue, part.kind), []).append(part)
    return [
        merge_minutes(same, at=0, queue=queue, kind=kind)
        for (queue, kind), same in sorted(named.items())
    ]
