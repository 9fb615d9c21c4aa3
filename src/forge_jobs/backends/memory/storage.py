"""The storage of the memory store: dictionaries, one lock, and notifications after a write."""

import logging
import threading
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.store import Notify

from .entries import SortedEntries

_LOG = logging.getLogger("forge_jobs.memory")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class Listener:
    """A subscription: the callback to call, and the queues it is for."""

    queues: frozenset[str]
    notify: Notify


class MemoryStorage:
    """``rowwise.storage.Storage`` in memory. A failed write is not rolled back: the rules raise
    before they write."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._tag = entropy.bits(16)
        self.listeners: list[Listener] = []
        self.tables = Tables(_table, SortedEntries(), self._tag)

    def clear(self) -> None:
        """Delete everything but the subscriptions and the control version."""
        version = self.tables.control_version
        self.tables = Tables(_table, SortedEntries(), self._tag)
        self.tables.meta["control_version"] = version

    def begin(self, now: Instant) -> Transaction:
        """A new write transaction; for a subclass that observes the store."""
        return Transaction(self.tables, now)

    @contextmanager
    def write(self) -> Generator[Transaction, None, None]:
        """A write transaction. Subscriptions are notified after it, outside the lock."""
        with self._lock:
            tx = self.begin(self._clock.now())
            yield tx
            tx.before_commit()
            callbacks = [
                listener.notify
                for listener in self.listeners
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

    def after_fork(self) -> None:
        """Replace the lock: a thread that does not exist in this process may hold it."""
        self._lock = threading.Lock()


def _table(name: str, key: type[K], value: type[V]) -> MutableMapping[K, V]:
    return {}
