"""Records every transition of the memory store at the instant it happens.

The recorder replaces the transaction of the store, so that its rules are unchanged.
"""

from collections.abc import Sequence

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.shared.rowwise.rows import Row
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.processes import Share
from rigs.simulation.bound import BOUND_QUEUE
from rigs.simulation.effects import Recorder


class RecordingTransaction(Transaction):
    """A transaction that also calls a recorder."""

    recorder: Recorder

    def inserted(self, row: Row) -> None:
        if row.queue == BOUND_QUEUE:
            self.recorder.bound(row.key, row.job)
        self.recorder.transitioned(row, Event.ENQUEUE, None, gone=False)

    def count(self, row: Row, source: JobStatus, event: Event) -> None:
        super().count(row, source, event)
        self.recorder.transitioned(row, event, source, gone=False)

    def delete(self, rows: Sequence[Row]) -> None:
        super().delete(rows)
        for row in rows:
            self.recorder.transitioned(row, Event.DELETE, row.status, gone=True)


class RecordingShares(dict[tuple[int, str], Share]):
    """The slot shares of all processes; each change is recorded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __setitem__(self, key: tuple[int, str], share: Share) -> None:
        super().__setitem__(key, share)
        self._recorder.share_changed(*key, share.slots, share.held)

    def __delitem__(self, key: tuple[int, str]) -> None:
        super().__delitem__(key)
        self._recorder.share_changed(*key, 0, 0)


def record_changes(store: MemoryStore, recorder: Recorder) -> None:
    """Install the recorder in an empty store."""
    storage = store._storage  # pyright: ignore[reportPrivateUsage]

    def begin(now: Instant) -> Transaction:
        transaction = RecordingTransaction(storage.tables, now)
        transaction.recorder = recorder
        return transaction

    storage.begin = begin
    storage.tables.shares = RecordingShares(recorder)
