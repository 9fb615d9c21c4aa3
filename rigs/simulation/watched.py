"""The memory backend with a witness: every move of a row is recorded at the instant it happens.

The books of the backend hear of each arrival, move and removal; the witness sits on their chair, so
that the backend itself runs unchanged.
"""

from forge_jobs.backends.memory.counters import Counters
from forge_jobs.backends.memory.rows import Row
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.processes import Share
from rigs.simulation.bound import BOUND_QUEUE
from rigs.simulation.effects import Recorder


class WatchedCounters(Counters):
    """Books that also tell a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def count_insert(self, row: Row, now: Instant) -> None:
        super().count_insert(row, now)
        if row.queue == BOUND_QUEUE:
            self._recorder.bound(row.key, row.job)
        self._recorder.moved(row, Event.ENQUEUE, None, gone=False)

    def count_transition(self, row: Row, source: JobStatus, event: Event, now: Instant) -> None:
        super().count_transition(row, source, event, now)
        self._recorder.moved(row, event, source, gone=False)

    def count_delete(self, row: Row) -> None:
        super().count_delete(row)
        self._recorder.moved(row, Event.DELETE, row.status, gone=True)


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
    """Put the witness into a store that is still empty."""
    tables = store._tables  # pyright: ignore[reportPrivateUsage]
    tables.counters = WatchedCounters(recorder)
    tables.shares = WatchedShares(recorder)
