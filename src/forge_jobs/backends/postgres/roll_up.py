"""Converts counter entries to counters, minutes and totals.

The worker makes the entries of its done jobs (``done_entries``), and they are summed up here: far
cheaper than on the server, which is the bottleneck. An entry holds a sample of a histogram as one
byte, the number of its bucket. How long a job took is known only when the server writes its finish,
so an entry holds the instant at which each job was enqueued.
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
_RELEASED_TO: Final = ("pending", "scheduled", "held", "suspended")


class Delta(Struct, frozen=True, order=True):
    """A change to the number of jobs in a state."""

    queue: str
    kind: str
    status: str
    jobs: int


def done_entries(done: Sequence[Finish], *, timed: bool) -> list[list[Any]]:
    """Entries for done jobs, one per queue and kind, as columns: queue, kind, jobs, sums of the
    times waited and run, the buckets of each, and when each job was enqueued."""
    groups: dict[tuple[str, str], list[Finish]] = {}
    for finish in done:
        name = (finish.queue, finish.kind)
        if name in groups:
            groups[name].append(finish)
        else:
            groups[name] = [finish]
    entries: list[tuple[Any, ...]] = []
    for (queue, kind), group in groups.items():
        if timed:
            waited = histogram([finish.waited_s for finish in group])
            ran = histogram([finish.ran_s for finish in group])
            entries.append((
                queue, kind, len(group), waited.sum_s, ran.sum_s, _bytes(waited), _bytes(ran),
                pack(f">{len(group)}q", *[finish.enqueued_at for finish in group]),
            ))  # fmt: skip
        else:
            entries.append((queue, kind, len(group), 0.0, 0.0, None, None, None))
    return [list(column) for column in zip(*entries, strict=True)]


def part_of(entry: Row) -> Minute:
    """What one entry adds to its minute."""
    source, target, jobs = entry["source"], entry["target"], entry["jobs"]
    retried, throttled = entry["retried"], entry["throttled"]
    released = source == "running" and target in _RELEASED_TO
    return Minute(
        at=entry["at"],
        queue=entry["queue"],
        kind=entry["kind"],
        enqueued=jobs if source is None else 0,
        started=jobs if target == "running" else 0,
        done=jobs if target == "done" else 0,
        retried=retried,
        dead=jobs if target == "dead" else 0,
        cancelled=jobs if target == "cancelled" else 0,
        throttled=throttled,
        released=jobs - retried - throttled if released else 0,
        waited=_from_buckets(entry["waited_s"], entry["waited_b"]),
        ran=_from_buckets(entry["ran_s"], entry["ran_b"]),
        took=_took(entry["ended_at"], entry["enqueued_b"]),
    )


def is_not_empty(part: Minute) -> bool:
    """Whether any number is not zero. A promotion, for example, adds nothing to a minute."""
    return part != Minute(at=part.at, queue=part.queue, kind=part.kind)


def read_minute(row: Row) -> Minute:
    """A row of the statements ``minutes`` or ``totals``: rolled up, or an entry that is not yet."""
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
        waited=_from_json(row["waited"]),
        ran=_from_json(row["ran"]),
        took=_from_json(row["took"]),
    )


def as_row(part: Minute) -> dict[str, Any]:
    """An argument of ``add_minutes`` and ``add_totals``; empty histograms are NULL."""
    fields = {name: getattr(part, name) for name in Minute.__struct_fields__}
    for name in ("waited", "ran", "took"):
        if fields[name] == EMPTY:
            fields[name] = None
    return fields


def deltas(entries: Iterable[Row]) -> list[Delta]:
    """The changes of the counters by these entries, in the order in which rows are locked."""
    sums: dict[tuple[str, str, str], int] = {}
    for entry in entries:
        for status, jobs in ((entry["source"], -entry["jobs"]), (entry["target"], entry["jobs"])):
            if status is not None:
                name = (entry["queue"], entry["kind"], status)
                sums[name] = sums.get(name, 0) + jobs
    return sorted(Delta(*name, jobs) for name, jobs in sums.items() if jobs)


def parts(entries: Sequence[Row]) -> list[Minute]:
    """What the entries add to their minutes."""
    return [part for part in map(part_of, entries) if is_not_empty(part)]


def _bytes(spans: Histogram) -> bytes:
    return b"".join([bytes((bucket,)) * samples for bucket, samples in spans.buckets.items()])


def _from_buckets(sum_s: float, buckets: bytes | None) -> Histogram:
    if not buckets:
        return EMPTY
    return Histogram(sum_s, dict(sorted(Counter(buckets).items())))


def _took(ended_at: Instant | None, enqueued: bytes | None) -> Histogram:
    if ended_at is None or not enqueued:
        return EMPTY
    return histogram((ended_at - at) / SECOND for (at,) in _instant.iter_unpack(enqueued))


def _from_json(text: str | None) -> Histogram:
    return EMPTY if text is None else _histogram_of(text)
