"""Storing new jobs, also the ones that a move carries and those in a user's own transaction."""

from collections.abc import Sequence
from typing import Final

from forge_jobs.backends.sqltext import SqlText
from forge_jobs.core import ids
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.status import JobStatus

from .rows import new_row
from .transaction import Tx

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "enqueue.sql")

_HOLDER: Final = SQL["holder"]
_TAKE_KEY: Final = SQL["take_key"]
_BODY: Final = SQL["insert_body"]
_INSERT_ONE: Final = SQL["insert_jobs"]
# Powers of two: a batch of any size is stored by a handful of statements, all of them cached.
_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)
# From here on it is cheaper to keep the books at once than to leave it to the next fold.
_COUNTED_FROM: Final = 8


def _repeated(times: int) -> str:
    head, _, values = _INSERT_ONE.rpartition("VALUES")
    return f"{head}VALUES{', '.join([values] * times)}"


_INSERT: Final = {size: _repeated(size) for size in _SIZES}


def insert(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs; the answers line up with the requests."""
    if len(jobs) >= _COUNTED_FROM:
        tx.fold()
    return insert_uncounted(tx, jobs)


def insert_uncounted(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """The same without touching the books, unless the transaction has begun to keep them."""
    now, tag, counted = tx.now, tx.tag, tx.folded
    first = key = tx.top() + 1
    answers: list[Enqueued] = []
    values: list[tuple[object, ...]] = []
    fresh: dict[tuple[str, str], Enqueued] = {}
    for job in jobs:
        if job.dedupe_key is not None:
            taken = fresh.get((job.kind, job.dedupe_key)) or _holder(tx, job, job.dedupe_key)
            if taken is not None:
                answers.append(taken)
                continue
            tx.execute(_TAKE_KEY, (job.kind, job.dedupe_key, key))
        status, row = new_row(job, key, now)
        values.append(row)
        if row[-1] is None:
            tx.execute(_BODY, (key, job.payload))
        if counted:
            tx.books.entered(job.queue, job.kind, status)
        tx.woken.add(job.queue)
        public = ids.job_id(key, now, tag)
        answers.append(Enqueued(key, public, False, status))
        if job.dedupe_key is not None:
            fresh[job.kind, job.dedupe_key] = Enqueued(key, public, True, status)
        key += 1
    if key > first:
        _write(tx, values)
        tx.given(key - 1)
    return answers


def _holder(tx: Tx, job: NewJob, dedupe_key: str) -> Enqueued | None:
    found = tx.execute(_HOLDER, (job.kind, dedupe_key, tx.now)).fetchone()
    if found is None:
        return None
    key, status, enqueued_at = found
    return Enqueued(key, ids.job_id(key, enqueued_at, tx.tag), True, JobStatus(status))


def _write(tx: Tx, values: list[tuple[object, ...]]) -> None:
    if len(values) == 1:
        tx.execute(_INSERT_ONE, values[0])
        return
    start, left = 0, len(values)
    for size in _SIZES:
        while left >= size:
            rows = values[start : start + size]
            tx.execute(_INSERT[size], [value for row in rows for value in row])
            start, left = start + size, left - size
