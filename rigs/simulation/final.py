"""The final state of a simulation: the rows, the counters, and errors of the event loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from forge_jobs.core.dead_letter import DeadJob
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

PAGE = 500


class PayloadView(msgspec.Struct, omit_defaults=True):
    """The fields of a payload that checkers read. ``number``: the job's number in the workload;
    ``parent``: the job whose successor this is; ``job``: the dead job of a dead letter."""

    number: int | None = None
    parent: str | None = None
    job: DeadJob | None = None


@dataclass(frozen=True, slots=True)
class FinalState:
    """The store at the end. ``errors`` are uncaught errors."""

    rows: dict[int, JobRecord]
    counts: dict[tuple[str, JobStatus], int]
    errors: tuple[str, ...] = ()


def payload_view(row: JobRecord) -> PayloadView:
    """Decode the payload of a stored job."""
    return msgspec.json.decode(row.payload, type=PayloadView)


async def read_final(store: Store, errors: Sequence[str]) -> FinalState:
    """Read everything through the store's contract."""
    rows: dict[int, JobRecord] = {}
    cursor = None
    while True:
        page = await store.jobs.page(Filter(), limit=PAGE, after=cursor)
        rows.update((row.key, row) for row in page.jobs)
        cursor = page.next
        if cursor is None:
            break
    counts = {(count.queue, count.status): count.jobs for count in await store.metrics.counts()}
    return FinalState(rows, counts, tuple(errors))
