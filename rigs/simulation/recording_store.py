"""Records every transition of the memory store at the instant it happens.

The recorder replaces the transaction of the store, so that its rules are unchanged.
"""

from collections.abc import Sequence

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.shared.rowwise.rows import Row
from forge_jobs.backends.shared.rowwise.step_ports import JobStep, StoredEvent, StoredWait
from forge_jobs.backends.shared.rowwise.step_tables import RowSteps
from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.events import NewEvent
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


class RecordingSteps(RowSteps):
    """Steps, waits and events; each change is recorded."""

    def __init__(self, tables: Tables, now: Instant, recorder: Recorder) -> None:
        super().__init__(tables, now)
        self._recorder = recorder

    def add(self, steps: Sequence[JobStep]) -> None:
        super().add(steps)
        for added in steps:
            self._recorder.step_stored(added, self._tables.jobs.get(added.job))

    def delete(self, job: int, began_from: Instant | None = None) -> None:
        before = self._tables.steps.get(job, {})
        super().delete(job, began_from)
        left = self._tables.steps.get(job, {})
        names = tuple(sorted(before.keys() - left.keys()))
        self._recorder.steps_deleted(job, names, by_retry=began_from is not None)

    def add_wait(self, wait: StoredWait) -> None:
        super().add_wait(wait)
        self._recorder.wait_stored(wait)

    def delete_wait(self, job: int) -> None:
        if job in self._tables.waits:
            self._recorder.wait_deleted(job)
        super().delete_wait(job)

    def add_event(self, event: NewEvent) -> StoredEvent:
        stored = super().add_event(event)
        self._recorder.event_stored(stored)
        return stored


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
        transaction.steps = RecordingSteps(storage.tables, now, recorder)
        return transaction

    storage.begin = begin
    storage.tables.shares = RecordingShares(recorder)
