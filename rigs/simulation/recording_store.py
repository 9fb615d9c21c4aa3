"""Records every transition of the memory backend at the instant it happens.

The backend calls its counters for each insert, transition and delete. The recorder replaces the
counters object, so that the backend itself is unchanged.
"""

from forge_jobs.backends.memory.counters import Counters
from forge_jobs.backends.memory.rows import Row
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.processes import Share
from rigs.simulation.bound import BOUND_QUEUE
from rigs.simulation.effects import Recorder


class RecordingCounters(Counters):
    """Counters that also call a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def count_insert(self, row: Row, now: Instant) -> None:
        super().count_insert(row, now)
        if row.queue == BOUND_QUEUE:
            self._recorder.bound(row.key, row.job)
        self._recorder.transitioned(row, Event.ENQUEUE, None, gone=False)

    def count_transition(self, row: Row, source: JobStatus, event: Event, now: Instant) -> None:
        super().count_transition(row, source, event, now)
        self._recorder.transitioned(row, event, source, gone=False)

    def count_delete(self, row: Row) -> None:
        super().count_delete(row)
        self._recorder.transitioned(row, Event.DELETE, row.status, gone=True)


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
    tables = store._tables  # pyright: ignore[reportPrivateUsage]
    tables.counters = RecordingCounters(recorder)
    tables.shares = RecordingShares(recorder)
