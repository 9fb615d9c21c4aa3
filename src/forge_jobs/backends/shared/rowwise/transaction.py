"""One write transaction of a row-wise store: ``ports.JobTransaction`` over its tables."""

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec import structs

from forge_jobs.backends.shared import error_groups
from forge_jobs.backends.shared.error_groups import FailedAttempt
from forge_jobs.backends.shared.tracebacks import StoredTraceback
from forge_jobs.core import ids
from forge_jobs.core.counters import Minute, merge_minutes
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import ERRORS_KEPT, Enqueued, LogLine, NewJob
from forge_jobs.core.limits import UNBOUNDED, limit_of
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Attempts, Event, JobStatus
from forge_jobs.core.throttle import OPEN, Gate

from . import limit_buckets, tag_days, transitions
from .counters import TransactionCounters
from .group_table import RowGroupTable, worker_of
from .ports import KeyHolder
from .rows import Row
from .step_tables import RowSteps
from .tables import DedupeEntry, Tables

MAX_LOG_LINES: Final = 1_000


class Transaction:
    """A write transaction. ``notify_all``: notify every subscription after the commit."""

    def __init__(self, tables: Tables, now: Instant) -> None:
        self.tables = tables
        self.now = now
        self.tag = tables.tag
        self.counters = TransactionCounters(now)
        self.notify_queues: set[str] = set()
        self.notify_all = False
        self.touched_buckets: dict[str, None] = {}
        self.failures: list[tuple[int, FailedAttempt]] = []
        self.steps = RowSteps(tables, now)

    def before_commit(self) -> None:
        """The last writes: admitted jobs, counters and error groups."""
        limit_buckets.admit_touched(self)
        tables = self.tables
        tables.next_key("changes")
        for queue, _, status, jobs in self.counters.counts():
            left = tables.counts.get((queue, status), 0) + jobs
            if left:
                tables.counts[queue, status] = left
            else:
                tables.counts.pop((queue, status), None)
        for minute in self.counters.minutes():
            _add_minute(tables, minute)
        tag_days.add(tables, self.counters.tag_parts())
        if self.failures:
            attempts = [attempt for _, attempt in self.failures]
            table = RowGroupTable(tables)
            error_groups.count(table, attempts, self.now, partial(worker_of, tables))

    def raise_control_version(self) -> None:
        """After an operator's action: every process reads its settings again."""
        self.tables.next_key("control_version")
        self.notify_all = True

    # ---------------------------------------------------------------- rows

    def load(self, keys: Iterable[int]) -> dict[int, Row]:
        found = {key: self.tables.jobs.get(key) for key in keys}
        return {key: copy.copy(row) for key, row in found.items() if row is not None}

    def store(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.tables.put(row)

    def delete(self, rows: Sequence[Row]) -> None:
        self.tables.remove(rows)

    def insert(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store new jobs, in order. A job whose dedupe key is taken is not stored: the answer is
        the job that holds the key."""
        assigner = limit_buckets.BucketAssigner(self)
        return [self._insert(job, assigner, self.now) for job in jobs]

    def insert_reserved(self, job: NewJob, key: int, enqueued_at: Instant) -> Enqueued:
        """Store a job under a key that was taken before, at ``enqueued_at``."""
        return self._insert(job, limit_buckets.BucketAssigner(self), enqueued_at, key)

    def _insert(
        self,
        job: NewJob,
        assigner: limit_buckets.BucketAssigner[Row],
        now: Instant,
        key: int | None = None,
    ) -> Enqueued:
        if job.dedupe_key is not None:
            holder = self.key_holder(job.kind, job.dedupe_key)
            if holder is not None:
                known = ids.job_id(holder.key, holder.enqueued_at, self.tag)
                return Enqueued(holder.key, known, True, holder.status)
        run_at = after(now, job.delay_s) if job.run_at is None else job.run_at
        expires_at = job.expires_at
        if expires_at is None and job.expires_s is not None:
            expires_at = after(now, job.expires_s)
        if key is None:
            key = self.tables.next_key("job")
        status = JobStatus.SCHEDULED if run_at > self.now else JobStatus.PENDING
        row = Row(key, ids.job_id(key, now, self.tag), job, now, run_at, expires_at, status)
        row.track = job.kind if job.track else None
        bucket = None if job.hold else assigner.bucket_for(job, is_due=run_at <= self.now)
        if status is JobStatus.PENDING and (job.hold or bucket is not None):
            row.status = JobStatus.HELD
            row.bucket = bucket or job.limit_key or row.lane_bucket() or ""
        transitions.check(None, Event.ENQUEUE, row.status, Attempts.KEPT)
        self.tables.put(row)
        if job.dedupe_key is not None:
            self.take_key(row)
        self.counters.inserted(job.queue, job.kind, row.status)
        self.notify_queues.add(job.queue)
        self.inserted(row)
        return Enqueued(key, row.id, False, row.status)

    def inserted(self, row: Row) -> None:
        """Called with every new job; for a subclass that observes the store."""

    def current_claims(self, owner: int, keys: Iterable[int]) -> set[tuple[int, int]]:
        rows = [self.tables.jobs.get(key) for key in keys]
        return {
            (row.key, row.epoch)
            for row in rows
            if row is not None and row.status is JobStatus.RUNNING and row.owner == owner
        }

    def payload(self, row: Row) -> bytes:
        return row.job.payload

    def set_payload(self, row: Row, payload: bytes) -> None:
        row.job = structs.replace(row.job, payload=payload)

    def append_log(self, row: Row, lines: Sequence[LogLine]) -> None:
        known = self.tables.logs.get(row.key, ())
        self.tables.logs[row.key] = (*known, *lines)[-MAX_LOG_LINES:]

    def add_traceback(self, row: Row, traceback: str) -> None:
        known = self.tables.tracebacks.get(row.key, ())
        stored = StoredTraceback(self.now, row.attempts, traceback)
        self.tables.tracebacks[row.key] = (*known, stored)[-ERRORS_KEPT:]

    def count(self, row: Row, source: JobStatus, event: Event) -> None:
        self.counters.row_transitioned(
            row.queue, row.kind, source, row.status, event, started=row.started_at is not None
        )
        if source is JobStatus.RUNNING and self.tables.has_cap(row.queue, row.kind):
            self.notify_queues.add(row.queue)

    # ---------------------------------------------------------------- cancel requests and gates

    def add_cancel(self, row: Row) -> None:
        """The request is in the details of the row; ``exchange`` reads it there."""

    def delete_cancel(self, row: Row) -> None:
        """See ``add_cancel``."""

    def gate(self, name: str) -> Gate:
        return self.tables.gate(name)

    def set_gate(self, name: str, gate: Gate) -> None:
        if gate == OPEN:
            self.tables.gates.pop(name, None)
        else:
            self.tables.gates[name] = gate

    def backoff(self, queue: str) -> Backoff | None:
        config = self.tables.queues.get(queue)
        if config is None or not config.backoff_enabled:
            return None
        return Backoff(base_s=config.backoff_base_s, max_s=config.backoff_max_s)

    # ---------------------------------------------------------------- dedupe keys

    def key_holder(self, kind: str, dedupe_key: str) -> KeyHolder | None:
        entry = self.tables.dedupe_entries.get((kind, dedupe_key))
        if entry is None or (entry.until is not None and entry.until <= self.now):
            return None
        row = self.tables.jobs[entry.job]
        return KeyHolder(row.key, row.status, row.enqueued_at)

    def take_key(self, row: Row) -> None:
        assert row.dedupe_key is not None
        self.tables.dedupe_entries[row.kind, row.dedupe_key] = DedupeEntry(row.key)

    def free_key(self, row: Row) -> None:
        name = self._held_key(row)
        if name is not None:
            del self.tables.dedupe_entries[name]

    def retain_key(self, row: Row, until: Instant) -> None:
        name = self._held_key(row)
        if name is not None:
            self.tables.dedupe_entries[name] = DedupeEntry(row.key, until)

    def _held_key(self, row: Row) -> tuple[str, str] | None:
        name = (row.kind, row.dedupe_key or "")
        entry = self.tables.dedupe_entries.get(name)
        return name if entry is not None and entry.job == row.key else None

    # ---------------------------------------------------------------- limit buckets

    def max_per_key(self, limit_key: str) -> int:
        return max_per_key(self.tables, limit_key)

    def slots_in_use(self, limit_key: str, max_slots: int) -> int:
        return min(self.tables.index.slots_in_use(limit_key), max_slots)

    def held_in_bucket(self, bucket: str, limit: int) -> list[int]:
        return list(islice(self.tables.index.held(bucket), limit))

    def lane_head(self, lane: str) -> tuple[int, bool] | None:
        key = self.tables.index.lane_head(lane)
        return None if key is None else (key, self.tables.jobs[key].strict)

    def lane_slot_taken(self, lane: str) -> bool:
        return self.tables.index.lane_slot_holder(lane) is not None

    def older_in_lane(self, lane: str, key: int, *, strict: bool) -> bool:
        for other in self.tables.index.lane(lane):
            if other >= key:
                return False
            if strict or self.tables.jobs[other].strict:
                return True
        return False

    def lane_busy(self, lane: str) -> bool:
        index = self.tables.index
        return index.lane_slot_holder(lane) is not None or index.lane_head(lane) is not None

    def lane_scheduled(self, lane: str) -> tuple[bool, bool]:
        keys = list(self.tables.index.lane(lane))
        return any(self.tables.jobs[key].strict for key in keys), bool(keys)


def max_per_key(tables: Tables, limit_key: str) -> int:
    """How many jobs of a limit key may run at once."""
    limit = tables.limits.get(limit_of(limit_key))
    if limit is None or limit.per is None or limit.concurrency is None:
        return UNBOUNDED
    return limit.concurrency


def _add_minute(tables: Tables, minute: Minute) -> None:
    name = (minute.at, minute.queue, minute.kind)
    known = tables.minutes.get(name)
    if known is not None:
        minute = merge_minutes([known, minute], at=minute.at, queue=minute.queue, kind=minute.kind)
    tables.minutes[name] = minute
