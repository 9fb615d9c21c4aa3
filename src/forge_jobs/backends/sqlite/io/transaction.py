"""One write transaction: store time, statements, counters, and the queues to notify afterwards."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from forge_jobs.backends.sqlite.counters import SQL, Counters, Execute
from forge_jobs.core.instant import Instant

_KEY_MARKS: Final = SQL["key_marks"]
_NOT_INGESTED: Final = SQL["not_ingested"]
_MAKE_CLAIMABLE: Final = SQL["make_claimable"]
_SET_INGESTED: Final = SQL["set_ingested"]
_RAISE_CONTROL_VERSION: Final = SQL["raise_control_version"]
_groups_of = msgspec.json.Decoder(list[tuple[str, str, str, int, int]]).decode


class Tx:
    """The argument of every write operation.

    A single enqueue writes neither the counters nor the claim index, which saves two pages per
    enqueue. Jobs with a key above ``forge_meta.ingested`` are in that state. An operation that
    changes or deletes jobs calls ``ingest`` first, which writes both for all of them.
    """

    __slots__ = (
        "_control_changed", "_ingested_key", "_top_key", "after_commit", "counters", "entry_id",
        "execute", "ingested", "notify_queues", "now", "tag", "touched_buckets",
    )  # fmt: skip

    def __init__(self, execute: Execute, now: Instant, tag: int) -> None:
        self.execute = execute
        self.now = now
        self.tag = tag
        self.counters = Counters(now)
        self.notify_queues: set[str] = set()
        self.after_commit: list[Callable[[], object]] = []
        # Limit buckets whose held jobs may be admitted because of this transaction; in order.
        self.touched_buckets: dict[str, None] = {}
        self.ingested = False
        self.entry_id = 0
        self._ingested_key = -1
        self._top_key = -1
        self._control_changed = False

    @property
    def control_changed(self) -> bool:
        return self._control_changed

    def row(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        """The first row of a result, or None."""
        return self.execute(statement, values).fetchone()

    def top_key(self) -> int:
        """The highest key that was ever assigned."""
        if self._top_key < 0:
            self._ingested_key, self._top_key = self.row(_KEY_MARKS)
        return self._top_key

    def set_top_key(self, key: int) -> None:
        """Keys up to this one are assigned now."""
        self._top_key = key

    def set_key_marks(self, ingested_key: int, top_key: int) -> None:
        """Saves the query of ``top_key`` when another statement has read the same values."""
        if self._top_key < 0:
            self._ingested_key, self._top_key = ingested_key, top_key

    def ingest(self) -> None:
        """Add jobs that were only inserted so far to the counters and to the claim index."""
        if self.ingested:
            return
        self.ingested = True
        if self.top_key() > self._ingested_key:
            (groups,) = self.row(_NOT_INGESTED, (self._ingested_key,))
            for queue, kind, status, minute, jobs in _groups_of(groups):
                self.counters.inserted(queue, kind, status, jobs, minute)
            self.execute(_MAKE_CLAIMABLE, (self._ingested_key,))

    def raise_control_version(self) -> None:
        """A setting changed: every process reads the settings again."""
        if not self._control_changed:
            self._control_changed = True
            self.execute(_RAISE_CONTROL_VERSION)

    def admit_held(self) -> None:
        """Admit jobs from the buckets in which a slot may have become free."""
        if self.touched_buckets:
            from forge_jobs.backends.sqlite.limit_buckets import admit_touched

            admit_touched(self)

    def before_commit(self) -> None:
        """Run the last statements of the transaction."""
        self.admit_held()
        if self.ingested and self._top_key > self._ingested_key:
            self.execute(_SET_INGESTED, (self._top_key,))
        self.write_counters()

    def write_counters(self) -> None:
        """Write the counters collected so far."""
        counters, self.counters = self.counters, Counters(self.now)
        self.entry_id = counters.write(self.execute)
