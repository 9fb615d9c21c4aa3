"""The memory store with a recorder: every transition of a row is recorded when it happens."""

from collections.abc import Sequence

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.shared.rowwise.rows import Row
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.processes import Share
from rigs.simulation.bound import BOUND_QUEUE
from rigs.simulation.effects import Recorder


class WatchedTransaction(Transaction):
    """A transaction that also reports to a recorder."""

    recorder: Recorder

    def inserted(self, row: Row) -> None:
        if row.queue == BOUND_QUEUE:
            self.recorder.bound(row.key, row.job)
        self.recorder.moved(row, Event.ENQUEUE, None, gone=False)

    def count(self, row: Row, source: JobStatus, event: Event) -> None:
        super().count(row, source, event)
        self.recorder.moved(row, event, source, gone=False)

    def delete(self, rows: Sequence[Row]) -> None:
        super().delete(rows)
        for row in rows:
            self.recorder.moved(row, Event.DELETE, row.status, gone=True)


class WatchedShares(dict[tuple[int, str], Share]):
    """The shares of all processes; each change is told."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __setitem__(self, place: tuple[int, str], share: Share) -> None:
        super().__setitem__(place, share)
        self._recorder.shared(*place, share.slots, share.held)

    def __delitem__(self, place: tuple[int, str]) -> None:
        super().__delitem__(place)
        self._recorder.shared(*place, 0, 0)


def watch(store: MemoryStore, recorder: Recorder) -> None:
    """Let a store that is still empty report to a recorder."""
    storage = store._storage  # pyright: ignore[reportPrivateUsage]

    def begin(now: Instant) -> Transaction:
        transaction = WatchedTransaction(storage.tables, now)
        transaction.recorder = recorder
        return transaction

    storage.begin = begin
    storage.tables.shares = WatchedShares(recorder)
