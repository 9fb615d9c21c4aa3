"""What is left when the world has ended: the rows, the books, and complaints of the loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from forge_jobs.core.dead_letter import DeadJob
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

PAGE = 500


class Parcel(msgspec.Struct, omit_defaults=True):
    """The part of a payload that checkers read. ``number``: the workload's own; ``parent``: the
    job whose success carried this one; ``job``: the dead job this one was told about."""

    number: int | None = None
    parent: str | None = None
    job: DeadJob | None = None


@dataclass(frozen=True, slots=True)
class Final:
    """The store after the end. ``troubles`` are errors nobody caught."""

    rows: dict[int, JobRecord]
    counts: dict[tuple[str, JobStatus], int]
    troubles: tuple[str, ...] = ()


def parcel(row: JobRecord) -> Parcel:
    """What the payload of a stored job says."""
    return msgspec.json.decode(row.payload, type=Parcel)


async def read_final(store: Store, troubles: Sequence[str]) -> Final:
    """Read everything through the store's own contract."""
    rows: dict[int, JobRecord] = {}
    cursor = None
    while True:
        page = await store.jobs.page(Filter(), limit=PAGE, after=cursor)
        rows.update((row.key, row) for row in page.jobs)
        cursor = page.next
        if cursor is None:
            break
    counts = {(count.queue, count.status): count.jobs for count in await store.metrics.counts()}
    return Final(rows, counts, tuple(troubles))
