"""Storage of one process: a lock around each transaction, and notifications after a write."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Notify

from .tables import Tables
from .transaction import Transaction

_LOG = logging.getLogger("forge_jobs.store")


@dataclass(slots=True, eq=False)
class Listener:
    """A subscription: the callback to call, and the queues it is for."""

    queues: frozenset[str]
    notify: Notify


class LocalStorage:
    """``Storage`` for one process. ``make`` builds empty tables. A store whose tables can undo a
    failed write overrides ``roll_back``; one that cannot relies on rules that raise before they
    write."""

    def __init__(self, clock: Clock, make: Callable[[], Tables]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._make = make
        self._listeners: list[Listener] = []
        self.tables = make()

    def clear(self) -> None:
        """Delete everything but the subscriptions and the control version."""
        version = self.tables.control_version
        self.tables = self._make()
        self.tables.meta["control_version"] = version

    def begin(self, now: Instant) -> Transaction:
        """A new write transaction. The simulation replaces it to record transitions."""
        return Transaction(self.tables, now)

    def commit(self) -> None:
        """Called at the end of a write transaction."""

    def roll_back(self, tx: Transaction) -> None:
        """Called when a write transaction has failed. Without an undo, what it wrote stays, so its
        counters are written too: counts and rows agree."""
        tx.before_commit()

    @contextmanager
    def write(self) -> Generator[Transaction, None, None]:
        """A write transaction. Subscriptions are notified after it, outside the lock."""
        with self._lock:
            tx = self.begin(self._clock.now())
            try:
                yield tx
                tx.before_commit()
            except BaseException:
                self.roll_back(tx)
                raise
            self.commit()
            callbacks = [
                listener.notify
                for listener in self._listeners
                if tx.notify_all or not listener.queues.isdisjoint(tx.notify_queues)
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

    def subscribe(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def after_fork(self) -> None:
        """Replace the lock: a thread that does not exist in this process may hold it."""
        self._lock = threading.Lock()
