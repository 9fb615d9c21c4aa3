"""Everything the memory backend knows, behind one lock, and the bell that follows a change."""

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
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.processes import Share
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.schedules import Fire, Schedule, TokenBucket
from forge_jobs.store.settings import Setting
from forge_jobs.store.store import Notify

from .counters import Counters
from .job_index import JobIndex
from .rows import Process, Row

_LOG = logging.getLogger("forge_jobs.memory")

LOG_LINES_KEPT = 1_000


@dataclass(slots=True)
class Hold:
    """Who holds a dedupe key; ``until`` is set once that job has ended."""

    job: int
    until: Instant | None = None


@dataclass(slots=True)
class Lead:
    """Who leads, and until when."""

    process: int
    until: Instant


@dataclass(slots=True, eq=False)
class Listener:
    """Who wants to hear the bell for which queues."""

    queues: frozenset[str]
    notify: Notify


class Tables:
    """The state itself. Used only within ``change`` or ``look``, which hold the lock.

    Both read the clock once and give that instant: one call, one present.
    """

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.tag = entropy.bits(16)
        self.listeners: list[Listener] = []
        self.control_version = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything but who listens."""
        self.jobs: dict[int, Row] = {}
        self.keys: list[int] = []
        self.last_key = 0
        self.lines = JobIndex(self.jobs)
        self.books = Counters()
        self.holds: dict[tuple[str, str], Hold] = {}
        self.logs: dict[int, deque[LogLine]] = {}
        self.actions: list[AuditEntry] = []
        self.actions_noted = 0
        self.processes: dict[int, Process] = {}
        self.last_process = 0
        self.leads: dict[str, Lead] = {}
        self.shares: dict[tuple[int, str], Share] = {}
        self.queues: dict[str, QueueConfig] = {}
        self.gates: dict[str, Gate] = {}
        self.limits: dict[str, Limit] = {}
        self.kinds: dict[str, str] = {}
        self.schedules: dict[str, Schedule] = {}
        self.fires: dict[str, deque[Fire]] = {}
        self.buckets: dict[str, TokenBucket] = {}
        self.settings: dict[tuple[str, str], Setting] = {}
        self._due_queues: dict[str, None] = {}
        self._operated = False
        self.changes = 0

    @contextmanager
    def change(self) -> Generator[Instant, None, None]:
        """A transaction that may write; listeners are rung after it, outside the lock."""
        with self._lock:
            self.changes += 1
            yield self._clock.now()
            due, self._due_queues = self._due_queues, {}
            operated, self._operated = self._operated, False
            rings = [
                listener.notify
                for listener in self.listeners
                if operated or not listener.queues.isdisjoint(due)
            ]
        for notify in rings:
            try:
                notify()
            except Exception:
                _LOG.exception("a wake-up failed; the change itself stands")

    @contextmanager
    def look(self) -> Generator[Instant, None, None]:
        """A transaction that only reads."""
        with self._lock:
            yield self._clock.now()

    def wake(self, queue: str) -> None:
        """Ring whoever serves this queue when the transaction is over."""
        self._due_queues[queue] = None

    def operated(self) -> None:
        """An operator changed something: every process looks again."""
        self.control_version += 1
        self._operated = True

    def alive(self, process: int, now: Instant) -> bool:
        known = self.processes.get(process)
        return known is not None and known.alive(now)

    def gate(self, queue: str) -> Gate:
        return self.gates.get(queue, OPEN)

    def scope_until(self, limit: Limit, now: Instant) -> Instant | None:
        """When the last closed scope of a task opens; None while all are open."""
        gates = [self.gate(scope_gate(scope)) for scope in limit.scopes]
        return max((gate.until or 0 for gate in gates if gate.closed(now)), default=None)

    def capped(self, queue: str, kind: str) -> bool:
        """Whether the end of such a job may make room for one that is in line."""
        limits = (self.limits.get(queue_limit(queue)), self.limits.get(task_limit(kind)))
        return any(limit is not None and limit.cap is not None for limit in limits)

    def find(self, public_id: str) -> Row | None:
        """The row behind a public id; None for one that is unknown, made up or not ours."""
        place = ids.row_key(public_id, self.tag)
        if place is None:
            return None
        row = self.jobs.get(place[0])
        return row if row is not None and row.enqueued_at // 1000 == place[1] else None

    def say(self, row: Row, lines: Sequence[LogLine]) -> None:
        """Keep what a handler wrote, the newest lines only."""
        if lines:
            self.logs.setdefault(row.key, deque(maxlen=LOG_LINES_KEPT)).extend(lines)

    def after_fork(self) -> None:
        """The lock may be held by a thread that does not exist in this process."""
        self._lock = threading.Lock()
