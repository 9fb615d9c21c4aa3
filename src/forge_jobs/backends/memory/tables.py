"""The tables of the memory backend, one lock for transactions, and notifications after a write."""

import logging
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from forge_jobs.core import ids
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LogLine
from forge_jobs.core.limits import Limit, queue_limit, scope_gate, task_limit
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.core.token_bucket import TokenBucket
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.processes import Share
from forge_jobs.store.queues import PublishedKind, QueueConfig
from forge_jobs.store.schedules import Fire, Schedule
from forge_jobs.store.settings import Setting
from forge_jobs.store.store import Notify

from .counters import Counters
from .job_index import JobIndex
from .rows import Process, Row

_LOG = logging.getLogger("forge_jobs.memory")

MAX_LOG_LINES = 1_000


@dataclass(slots=True)
class DedupeEntry:
    """The job that holds a dedupe key; ``until`` is set once that job has ended."""

    job: int
    until: Instant | None = None


@dataclass(slots=True)
class Leadership:
    """The process that holds a leadership, and until when."""

    process: int
    until: Instant


@dataclass(slots=True, eq=False)
class Listener:
    """A subscription: the callback to call, and the queues it is for."""

    queues: frozenset[str]
    notify: Notify


class Tables:
    """The state of the store. Used only inside ``write`` or ``read``, which hold the lock.

    Both read the clock once and yield that instant, so that a transaction has one store time.
    """

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.tag = entropy.bits(16)
        self.listeners: list[Listener] = []
        self.control_version = 0
        self.clear()

    def clear(self) -> None:
        """Delete everything but the subscriptions and the control version."""
        self.jobs: dict[int, Row] = {}
        self.keys: list[int] = []
        self.last_key = 0
        self.index = JobIndex(self.jobs)
        self.counters = Counters()
        self.dedupe_entries: dict[tuple[str, str], DedupeEntry] = {}
        self.logs: dict[int, deque[LogLine]] = {}
        self.actions: list[AuditEntry] = []
        self.last_action = 0
        self.processes: dict[int, Process] = {}
        self.last_process = 0
        self.leaderships: dict[str, Leadership] = {}
        self.shares: dict[tuple[int, str], Share] = {}
        self.queues: dict[str, QueueConfig] = {}
        self.gates: dict[str, Gate] = {}
        self.limits: dict[str, Limit] = {}
        self.kinds: dict[str, PublishedKind] = {}
        self.schedules: dict[str, Schedule] = {}
        self.fires: dict[str, deque[Fire]] = {}
        self.token_buckets: dict[str, TokenBucket] = {}
        self.settings: dict[tuple[str, str], Setting] = {}
        self._due_queues: dict[str, None] = {}
        self._notify_all = False
        self.changes = 0

    @contextmanager
    def write(self) -> Generator[Instant, None, None]:
        """A write transaction. Subscriptions are notified after it, outside the lock."""
        with self._lock:
            self.changes += 1
            yield self._clock.now()
            due, self._due_queues = self._due_queues, {}
            notify_all, self._notify_all = self._notify_all, False
            callbacks = [
                listener.notify
                for listener in self.listeners
                if notify_all or not listener.queues.isdisjoint(due)
            ]
        for notify in callbacks:
            try:
                notify()
            except Exception:
                _LOG.exception("a notification failed; the write itself is committed")

    @contextmanager
    def read(self) -> Generator[Instant, None, None]:
        """A read transaction."""
        with self._lock:
            yield self._clock.now()

    def notify_queue(self, queue: str) -> None:
        """Notify the subscriptions of this queue after the transaction."""
        self._due_queues[queue] = None

    def raise_control_version(self) -> None:
        """After an operator action: raise the control version and notify every subscription."""
        self.control_version += 1
        self._notify_all = True

    def alive(self, process: int, now: Instant) -> bool:
        known = self.processes.get(process)
        return known is not None and known.alive(now)

    def gate(self, queue: str) -> Gate:
        return self.gates.get(queue, OPEN)

    def scope_until(self, limit: Limit, now: Instant) -> Instant | None:
        """When the last closed scope of a task opens; None while all are open."""
        gates = [self.gate(scope_gate(scope)) for scope in limit.scopes]
        return max((gate.until or 0 for gate in gates if gate.closed(now)), default=None)

    def has_cap(self, queue: str, kind: str) -> bool:
        """Whether the end of such a job may make room for a pending one."""
        limits = (self.limits.get(queue_limit(queue)), self.limits.get(task_limit(kind)))
        return any(limit is not None and limit.cap is not None for limit in limits)

    def find(self, public_id: str) -> Row | None:
        """The row of a public id; None for an unknown, invented or foreign id."""
        found = ids.row_key(public_id, self.tag)
        if found is None:
            return None
        key, millisecond = found
        row = self.jobs.get(key)
        return row if row is not None and row.enqueued_at // 1000 == millisecond else None

    def append_log(self, row: Row, lines: Sequence[LogLine]) -> None:
        """Append log lines of a handler; only the newest ``MAX_LOG_LINES`` are kept."""
        if lines:
            self.logs.setdefault(row.key, deque(maxlen=MAX_LOG_LINES)).extend(lines)

    def after_fork(self) -> None:
        """Replace the lock: a thread that does not exist in this process may hold it."""
        self._lock = threading.Lock()
