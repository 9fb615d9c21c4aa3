"""Dedupe keys: who holds a (kind, key), and until when."""

from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import NewJob, UniqueWhile
from forge_jobs.core.status import is_terminal

from .rows import Row
from .tables import Hold, Tables


def holder(tables: Tables, job: NewJob, now: Instant) -> Row | None:
    """The job that holds the key of ``job``, live or still remembered."""
    hold = _hold(tables, job)
    if hold is None or (hold.until is not None and hold.until <= now):
        return None
    return tables.jobs[hold.job]


def take(tables: Tables, row: Row) -> None:
    """The key belongs to this job for as long as it lives."""
    if row.job.dedupe_key is not None:
        tables.holds[row.job.kind, row.job.dedupe_key] = Hold(row.key)


def blocked(tables: Tables, row: Row, now: Instant) -> bool:
    """Whether another live job holds this job's key."""
    other = holder(tables, row.job, now)
    return other is not None and other is not row and not is_terminal(other.status)


def started(tables: Tables, row: Row) -> None:
    """A job that is unique only while it waits gives its key up at its start."""
    if row.job.unique_while is UniqueWhile.WAITING:
        release(tables, row)


def ended(tables: Tables, row: Row, now: Instant) -> None:
    """The key is free from now on, or after ``dedupe_for_s``."""
    hold = _own(tables, row)
    if hold is None:
        return
    if row.job.dedupe_for_s:
        hold.until = after(now, row.job.dedupe_for_s)
    else:
        release(tables, row)


def release(tables: Tables, row: Row) -> None:
    """The key is free, if this job held it."""
    if row.job.dedupe_key is not None and _own(tables, row) is not None:
        del tables.holds[row.job.kind, row.job.dedupe_key]


def remembered(tables: Tables, row: Row, now: Instant) -> bool:
    """Whether this job still holds its key."""
    return holder(tables, row.job, now) is row


def forget_lapsed(tables: Tables, now: Instant) -> None:
    """Drop keys whose time after the end is over."""
    lapsed = [
        name for name, hold in tables.holds.items() if hold.until is not None and hold.until <= now
    ]
    for name in lapsed:
        del tables.holds[name]


def _hold(tables: Tables, job: NewJob) -> Hold | None:
    return None if job.dedupe_key is None else tables.holds.get((job.kind, job.dedupe_key))


def _own(tables: Tables, row: Row) -> Hold | None:
    hold = _hold(tables, row.job)
    return hold if hold is not None and hold.job == row.key else None
