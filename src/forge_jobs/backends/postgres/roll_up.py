"""From the lines of the ledger to counters, minutes and totals.

A line of done jobs is made by their worker (``written``) and counted here: that is cheaper by far
than counting on the server, which is the bottleneck. Samples are kept as the byte of their bucket.
How long a job took depends on the instant at which the server writes its end, so that the line
keeps when each was enqueued.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from struct import Struct as Packing
from struct import pack
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.core.counters import Minute
from forge_jobs.core.decide import Finish
from forge_jobs.core.histogram import EMPTY, Histogram, histogram
from forge_jobs.core.instant import SECOND, Instant

from .connection.driver import Row

_histogram_of = msgspec.json.Decoder(Histogram).decode
_instant: Final = Packing(">q")
_HANDED_BACK: Final = ("pending", "scheduled", "held")


class Delta(Struct, frozen=True, order=True):
    """A change to the number of jobs in a state."""

    queue: str
    kind: str
    status: str
    jobs: int


def written(done: Sequence[Finish], *, timed: bool) -> list[list[Any]]:
    """Lines about jobs that are done, one per queue and kind, as columns: queue, kind, jobs, sums
    of the times waited and run, the buckets of each, and when each job was enqueued."""
    groups: dict[tuple[str, str], list[Finish]] = {}
    for end in done:
        name = (end.queue, end.kind)
        if name in groups:
            groups[name].append(end)
        else:
            groups[name] = [end]
    lines: list[tuple[Any, ...]] = []
    for (queue, kind), ends in groups.items():
        if timed:
            waited = histogram([end.waited_s for end in ends])
            ran = histogram([end.ran_s for end in ends])
            lines.append((
                queue, kind, len(ends), waited.sum_s, ran.sum_s, _bytes(waited), _bytes(ran),
                pack(f">{len(ends)}q", *[end.enqueued_at for end in ends]),
            ))  # fmt: skip
        else:
            lines.append((queue, kind, len(ends), 0.0, 0.0, None, None, None))
    return [list(column) for column in zip(*lines, strict=True)]


def part_of(line: Row) -> Minute:
    """What one line of the ledger says about its minute."""
    source, target, jobs = line["source"], line["target"], line["jobs"]
    retried, throttled = line["retried"], line["throttled"]
    back = source == "running" and target in _HANDED_BACK
    return Minute(
        at=line["at"],
        queue=line["queue"],
        kind=line["kind"],
        enqueued=jobs if source is None else 0,
        started=jobs if target == "running" else 0,
        done=jobs if target == "done" else 0,
        retried=retried,
        dead=jobs if target == "dead" else 0,
        cancelled=jobs if target == "cancelled" else 0,
        throttled=throttled,
        released=jobs - retried - throttled if back else 0,
        waited=_counted(line["waited_s"], line["waited_b"]),
        ran=_counted(line["ran_s"], line["ran_b"]),
        took=_took(line["ended_at"], line["enqueued_b"]),
    )


def says_something(part: Minute) -> bool:
    """Whether anything is left once the name is taken away: a promotion moves nothing here."""
    return part != Minute(at=part.at, queue=part.queue, kind=part.kind)


def read(row: Row) -> Minute:
    """A row of ``minutes`` or ``totals``: folded already, or a line."""
    if row["source"] != "":
        return part_of(row)
    return Minute(
        at=row["at"],
        queue=row["queue"],
        kind=row["kind"],
        enqueued=row["enqueued"],
        started=row["started"],
        done=row["done"],
        retried=row["retried"],
        dead=row["dead"],
        cancelled=row["cancelled"],
        throttled=row["throttled"],
        released=row["released"],
        waited=_read(row["waited"]),
        ran=_read(row["ran"]),
        took=_read(row["took"]),
    )


def as_row(part: Minute) -> dict[str, Any]:
    """The same as an object for ``add_minutes`` and ``add_totals``; empty histograms are NULL."""
    told = {name: getattr(part, name) for name in Minute.__struct_fields__}
    for name in ("waited", "ran", "took"):
        if told[name] == EMPTY:
            told[name] = None
    return told


def deltas(lines: Iterable[Row]) -> list[Delta]:
    """What the lines change about the numbers of jobs, in the order in which rows are locked."""
    sums: dict[tuple[str, str, str], int] = {}
    for line in lines:
        for status, jobs in ((line["source"], -line["jobs"]), (line["target"], line["jobs"])):
            if status is not None:
                name = (line["queue"], line["kind"], status)
                sums[name] = sums.get(name, 0) + jobs
    return sorted(Delta(*name, jobs) for name, jobs in sums.items() if jobs)


def parts(lines: Sequence[Row]) -> list[Minute]:
    """What the lines say about their minutes."""
    return [part for part in map(part_of, lines) if says_something(part)]


def _bytes(spans: Histogram) -> bytes:
    return b"".join([bytes((bucket,)) * samples for bucket, samples in spans.buckets.items()])


def _counted(sum_s: float, buckets: bytes | None) -> Histogram:
    if not buckets:
        return EMPTY
    return Histogram(sum_s, dict(sorted(Counter(buckets).items())))


def _took(ended_at: Instant | None, enqueued: bytes | None) -> Histogram:
    if ended_at is None or not enqueued:
        return EMPTY
    return histogram((ended_at - at) / SECOND for (at,) in _instant.iter_unpack(enqueued))


def _read(text: str | None) -> Histogram:
    return EMPTY if text is None else _histogram_of(text)
