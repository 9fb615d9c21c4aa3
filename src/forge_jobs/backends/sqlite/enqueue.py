"""Stores new jobs: enqueued ones, successors, and those in a user's own transaction."""

from collections.abc import Sequence
from typing import Final

from msgspec.json import encode

from forge_jobs.backends.shared.rowwise.limit_buckets import BucketAssigner
from forge_jobs.core import ids
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.parent import PARENT, VIA
from forge_jobs.core.status import JobStatus

from .io.operation import Batchable
from .io.transaction import KEYS_SQL as SQL
from .io.transaction import Tx
from .io.writer import Writer
from .rows import (
    Row,
    bound_row,
    is_due,
    is_due_now,
    is_plain,
    is_plain_child,
    link_text,
    needs_body,
    new_row,
)

_TAKE_KEY: Final = SQL["take_key"]
_BODY: Final = SQL["insert_body"]
_INSERT_ONE: Final = SQL["insert_jobs"]
_INSERT_SINGLE: Final = SQL["insert_single"]
_INSERT_SINGLE_CHILD: Final = SQL["insert_single_child"]
_INSERT_BATCH: Final = SQL["insert_batch"]
_INSERT_BOUND: Final = SQL["insert_bound"]
_INSERT_BOUND_BATCH: Final = SQL["insert_bound_batch"]
# Powers of two: a batch of any size is stored by a handful of statements, all of them cached.
_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)
_COLUMNS: Final = 18
_MIN_BATCH: Final = 4
# From this many jobs on it is cheaper to count them at once than to leave it to the next ingest.
_MIN_COUNTED: Final = 8
# Jobs that were stored one by one are ingested by the next other write, or by every n-th of them.
_INGEST_EVERY: Final = 2_048


def _repeated(times: int) -> str:
    head, _, values = _INSERT_ONE.rpartition("VALUES")
    return f"{head}VALUES{', '.join([values] * times)}"


_INSERT: Final = {size: _repeated(size) for size in _SIZES}


def insert(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs; one reply per job, in the same order."""
    if len(jobs) >= _MIN_COUNTED:
        tx.ingest()
    return insert_uncounted(tx, jobs)


class Enqueue(Batchable):
    """An enqueue as an operation of the writer; waiting ones are stored as one batch."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs

    def __call__(self, tx: Tx) -> list[Enqueued]:
        return insert(tx, self.jobs)

    def run_batch(self, tx: Tx, calls: "Sequence[Enqueue]") -> list[list[Enqueued]]:
        stored = insert(tx, [job for call in calls for job in call.jobs])
        split: list[list[Enqueued]] = []
        start = 0
        for call in calls:
            split.append(stored[start : start + len(call.jobs)])
            start += len(call.jobs)
        return split


def insert_uncounted(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """The same without an ingest; counts the jobs only if the transaction has ingested before."""
    now, tag = tx.now, tx.tag
    first = key = tx.top_key() + 1
    stored: list[Enqueued] = []
    runs: list[_Run] = []
    run: _Run | None = None
    entered: dict[tuple[str, str, JobStatus], int] = {}
    new_keys: dict[tuple[str, str], Enqueued] = {}
    assigner: BucketAssigner[Row] | None = None
    for job in jobs:
        if job.dedupe_key is not None:
            taken = new_keys.get((job.kind, job.dedupe_key)) or _key_holder(tx, job, job.dedupe_key)
            if taken is not None:
                stored.append(taken)
                continue
            tx.execute(_TAKE_KEY, (job.kind, job.dedupe_key, key))
        if job.limit_key is None and job.lane is None and not job.track:
            status, head, payload = new_row(job, now)
        else:
            if assigner is None:
                assigner = BucketAssigner(tx)
            bucket = assigner.bucket_for(job, is_due=is_due(job, now)) if not job.hold else None
            status, head, payload = bound_row(job, now, bucket)
        if run is None or head != run.head:
            run = _Run(key, head)
            runs.append(run)
        run.payloads.append(payload)
        if payload is None:
            tx.execute(_BODY, (key, job.payload))
        group = (job.queue, job.kind, status)
        entered[group] = entered.get(group, 0) + 1
        stored.append(Enqueued(key, ids.job_id(key, now, tag), False, status))
        if job.dedupe_key is not None:
            new_keys[job.kind, job.dedupe_key] = Enqueued(key, stored[-1].id, True, status)
        key += 1
    if key > first:
        _write(tx, runs)
        tx.set_top_key(key - 1)
        for (queue, kind, status), count in entered.items():
            tx.notify_queues.add(queue)
            if tx.ingested:
                tx.counters.inserted(queue, kind, status, count)
    return stored


class _Run:
    """New jobs with consecutive keys that differ in their payload only."""

    __slots__ = ("first", "head", "payloads")

    def __init__(self, first: int, head: tuple[object, ...]) -> None:
        self.first = first
        self.head = head
        self.payloads: list[bytes | None] = []

    def as_json(self) -> str | None:
        """The payloads as one JSON list; None if JSON cannot represent them byte for byte."""
        try:
            texts = [payload.decode() for payload in self.payloads if payload is not None]
        except UnicodeDecodeError:
            return None
        text = encode(texts).decode()
        return text if len(texts) == len(self.payloads) and "\\u0000" not in text else None


def insert_single(writer: Writer, job: NewJob, now: Instant, tag: int) -> Enqueued | None:
    """The short path for one plain job, or one with only a link to its parent, on the caller's
    thread; None, without effect, if it cannot be taken."""
    statement = _single_statement(job, now)
    if statement is None:
        return None
    key = writer.insert_here(*statement, notify_queue=job.queue)
    if key is None:
        return None
    if key % _INGEST_EVERY == 0:
        writer.call_here(Tx.ingest)
    return Enqueued(key, ids.job_id(key, now, tag), False, JobStatus.PENDING)


def insert_on_loop(writer: Writer, job: NewJob, now: Instant, tag: int) -> Enqueued | None:
    """The same on an event loop; it waits for no other writer."""
    statement = _single_statement(job, now)
    if statement is None:
        return None
    key = writer.insert_on_loop(*statement, notify_queue=job.queue)
    if key is None:
        return None
    if key % _INGEST_EVERY == 0:
        writer.run_later(Tx.ingest)
    return Enqueued(key, ids.job_id(key, now, tag), False, JobStatus.PENDING)


def _single_statement(job: NewJob, now: Instant) -> tuple[str, tuple[object, ...]] | None:
    """The statement that stores one plain job, and its values; None for any other job."""
    payload, rare = job.payload, job.options
    if not is_due_now(job) or needs_body(payload):
        return None
    values = (job.queue, job.kind, job.priority, now, job.max_attempts, now, payload)
    if rare is None:
        return (_INSERT_SINGLE, values) if is_plain(job) else None
    if not is_plain_child(job):
        return None
    return _INSERT_SINGLE_CHILD, (*values, link_text(rare[PARENT], rare[VIA]))


def _key_holder(tx: Tx, job: NewJob, dedupe_key: str) -> Enqueued | None:
    holder = tx.key_holder(job.kind, dedupe_key)
    if holder is None:
        return None
    known = ids.job_id(holder.key, holder.enqueued_at, tx.tag)
    return Enqueued(holder.key, known, True, holder.status)


def _write(tx: Tx, runs: list[_Run]) -> None:
    values: list[object] = []
    for run in runs:
        text = run.as_json() if len(run.payloads) >= _MIN_BATCH else None
        bound = len(run.head) > _COLUMNS
        if text is not None:
            insert = _INSERT_BOUND_BATCH if bound else _INSERT_BATCH
            tx.execute(insert, (run.first, *run.head, text))
            continue
        if bound:
            for offset, payload in enumerate(run.payloads):
                tx.execute(_INSERT_BOUND, (run.first + offset, *run.head, payload))
            continue
        for offset, payload in enumerate(run.payloads):
            values.append(run.first + offset)
            values += run.head
            values.append(payload)
    start, remaining = 0, len(values) // _COLUMNS
    for size in _SIZES:
        width = size * _COLUMNS
        while remaining >= size:
            tx.execute(_INSERT[size], values[start : start + width])
            start, remaining = start + width, remaining - size
