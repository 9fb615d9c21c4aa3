"""The tables of a row-wise store.

A store supplies three things: a mapping per table, the ordered entries of the indexes, and a lock
around each transaction. Values are never changed in place: what is assigned is what is stored.
"""

import copy
from collections.abc import MutableMapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from forge_jobs.backends.shared.tracebacks import StoredTraceback
from forge_jobs.core import ids
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.counters import Minute
from forge_jobs.core.error_groups import ErrorGroup
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.limits import Limit, queue_limit, scope_gate, task_limit
from forge_jobs.core.steps import StepRecord
from forge_jobs.core.tag_counts import TagDay
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.core.token_bucket import TokenBucket
from forge_jobs.core.vitals import Vitals
from forge_jobs.store.processes import Share
from forge_jobs.store.queues import PublishedKind, QueueConfig
from forge_jobs.store.schedules import Fire, Schedule
from forge_jobs.store.settings import Setting

from .event_index import EventIndex
from .index import JobIndex, OrderedEntries
from .rows import Process, Row
from .step_ports import StoredEvent, StoredWait

K = TypeVar("K")
V = TypeVar("V")


class TableFactory(Protocol):
    """Makes the mapping of one table; called once per table, and again after ``clear``."""

    def __call__(self, name: str, key: type[K], value: type[V]) -> MutableMapping[K, V]: ...


class DedupeEntry(Struct, frozen=True):
    """The job that holds a dedupe key; ``until`` is set once that job has ended."""

    job: int
    until: Instant | None = None


class Leadership(Struct, frozen=True):
    """The process that holds a leadership, and until when."""

    process: int
    until: Instant


class Tables:
    """The state of a store. Used only inside a transaction, which holds the store's lock.

    ``meta`` holds the numbers that only rise: the last keys, the control version, and ``changes``,
    which counts write transactions.
    """

    def __init__(self, table: TableFactory, entries: OrderedEntries, tag: int) -> None:
        self.tag = tag
        self.index = JobIndex(entries)
        self.meta = table("meta", str, int)
        self.jobs = table("jobs", int, Row)
        self.dedupe_entries = table("dedupe_entries", tuple[str, str], DedupeEntry)
        self.logs = table("logs", int, tuple[LogLine, ...])
        self.tracebacks = table("tracebacks", int, tuple[StoredTraceback, ...])
        self.error_groups = table("error_groups", str, ErrorGroup)
        self.steps = table("steps", int, dict[str, StepRecord])
        self.waits = table("waits", int, StoredWait)
        self.events = table("events", int, StoredEvent)
        self.event_keys = table("event_keys", tuple[str, str], int)
        self.event_index = EventIndex(entries)
        self.actions = table("actions", int, AuditEntry)
        self.processes = table("processes", int, Process)
        self.leaderships = table("leaderships", str, Leadership)
        self.shares = table("shares", tuple[int, str], Share)
        self.queues = table("queues", str, QueueConfig)
        self.gates = table("gates", str, Gate)
        self.limits = table("limits", str, Limit)
        self.kinds = table("kinds", str, PublishedKind)
        self.schedules = table("schedules", str, Schedule)
        self.fires = table("fires", str, tuple[Fire, ...])
        self.token_buckets = table("token_buckets", str, TokenBucket)
        self.settings = table("settings", tuple[str, str], Setting)
        self.counts = table("counts", tuple[str, str], int)
        self.minutes = table("minutes", tuple[int, str, str], Minute)
        self.purged = table("purged", tuple[str, str], Minute)
        self.tag_days = table("tag_days", tuple[int, str], TagDay)
        self.vitals = table("vitals", tuple[int, str], Vitals)

    def next_key(self, name: str) -> int:
        """The next number of a sequence in ``meta``."""
        key = self.meta.get(name, 0) + 1
        self.meta[name] = key
        return key

    @property
    def control_version(self) -> int:
        return self.meta.get("control_version", 0)

    def alive(self, process: int, now: Instant) -> bool:
        known = self.processes.get(process)
        return known is not None and known.alive(now)

    def gate(self, name: str) -> Gate:
        return self.gates.get(name, OPEN)

    def scope_until(self, limit: Limit, now: Instant) -> Instant | None:
        """When the last closed scope of a task opens; None while all are open."""
        gates = [self.gate(scope_gate(scope)) for scope in limit.scopes]
        return max((gate.until or 0 for gate in gates if gate.closed(now)), default=None)

    def has_cap(self, queue: str, kind: str) -> bool:
        """Whether the end of such a job may make room for a pending one."""
        limits = (self.limits.get(queue_limit(queue)), self.limits.get(task_limit(kind)))
        return any(limit is not None and limit.cap is not None for limit in limits)

    def find(self, public_id: str) -> Row | None:
        """The row of a public id, or of its end; None for an unknown, invented or foreign id."""
        if ids.is_short(public_id):
            newest = next(self.index.newest(), 0)
            rows = (self.jobs.get(key) for key in ids.short_keys(public_id, self.tag, newest))
            return next((row for row in rows if row is not None), None)
        found = ids.row_key(public_id, self.tag)
        if found is None:
            return None
        key, millisecond = found
        row = self.jobs.get(key)
        return row if row is not None and row.enqueued_at // 1000 == millisecond else None

    def put(self, row: Row) -> None:
        """Store a row and move its index entries."""
        before = self.jobs.get(row.key)
        if before is not None:
            self.index.remove(before)
        stored = copy.copy(row)
        self.jobs[row.key] = stored
        self.index.add(stored)

    def remove_wait(self, job: int) -> None:
        """Delete the wait of a job, if it has one."""
        wait = self.waits.pop(job, None)
        if wait is not None:
            self.event_index.remove_wait(wait)

    def remove(self, rows: Sequence[Row]) -> None:
        """Delete rows with their logs, tracebacks, steps and waits."""
        for row in rows:
            self.index.remove(self.jobs[row.key])
            self.logs.pop(row.key, None)
            self.tracebacks.pop(row.key, None)
            self.steps.pop(row.key, None)
            self.remove_wait(row.key)
            del self.jobs[row.key]
