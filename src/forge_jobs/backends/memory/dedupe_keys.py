"""Dedupe keys: which job holds a (kind, key), and until when."""

from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import NewJob, UniqueWhile
from forge_jobs.core.status import is_terminal

from .rows import Row
from .tables import DedupeEntry, Tables


def holder(tables: Tables, job: NewJob, now: Instant) -> Row | None:
    """The job that holds the key of ``job``: a live one, or one within its ``dedupe_for_s``."""
    entry = _entry(tables, job)
    if entry is None or (entry.until is not None and entry.until <= now):
        return None
    return tables.jobs[entry.job]


def acquire(tables: Tables, row: Row) -> None:
    """Give the key to this job for as long as it is live."""
    if row.job.dedupe_key is not None:
        tables.dedupe_entries[row.job.kind, row.job.dedupe_key] = DedupeEntry(row.key)


def blocked(tables: Tables, row: Row, now: Instant) -> bool:
    """Whether another live job holds this job's key."""
    other = holder(tables, row.job, now)
    return other is not None and other is not row and not is_terminal(other.status)


def release_on_start(tables: Tables, row: Row) -> None:
    """Release the key of a job that is unique only while it waits."""
    if row.job.unique_while is UniqueWhile.WAITING:
        release(tables, row)


def release_on_end(tables: Tables, row: Row, now: Instant) -> None:
    """Release the key of an ended job, now or after ``dedupe_for_s``."""
    entry = _own_entry(tables, row)
    if entry is None:
        return
    if row.job.dedupe_for_s:
        entry.until = after(now, row.job.dedupe_for_s)
    else:
        release(tables, row)


def release(tables: Tables, row: Row) -> None:
    """Release the key if this job holds it."""
    if row.job.dedupe_key is not None and _own_entry(tables, row) is not None:
        del tables.dedupe_entries[row.job.kind, row.job.dedupe_key]


def is_held(tables: Tables, row: Row, now: Instant) -> bool:
    """Whether this job still holds its key."""
    return holder(tables, row.job, now) is row


def purge_lapsed(tables: Tables, now: Instant) -> None:
    """Delete entries whose ``until`` has passed."""
    lapsed = [
        name
        for name, entry in tables.dedupe_entries.items()
        if entry.until is not None and entry.until <= now
    ]
    for name in lapsed:
        del tables.dedupe_entries[name]


def _entry(tables: Tables, job: NewJob) -> DedupeEntry | None:
    return None if job.dedupe_key is None else tables.dedupe_entries.get((job.kind, job.dedupe_key))


def _own_entry(tables: Tables, row: Row) -> DedupeEntry | None:
    entry = _entry(tables, row.job)
    return entry if entry is not None and entry.job == row.key else None
