"""One write transaction: store time, statements, counters, and the queues to notify afterwards.

It is the ``JobTransaction`` of the row-wise rules, which work outside the short paths of an
exchange (``claim``, ``short_finish``) and of ``promotion``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.error_groups import FailedAttempt
from forge_jobs.backends.shared.rowwise import limit_buckets
from forge_jobs.backends.shared.rowwise.ports import KeyHolder
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.backends.sqlite import error_groups
from forge_jobs.backends.sqlite.counters import SQL, Counters, Execute
from forge_jobs.backends.sqlite.json_text import as_json, read_keys
from forge_jobs.backends.sqlite.limit_buckets import SQL as LIMITS_SQL
from forge_jobs.backends.sqlite.limit_buckets import max_per_key
from forge_jobs.backends.sqlite.rows import Row, needs_body
from forge_jobs.backends.sqlite.steps import SQL as STEPS_SQL
from forge_jobs.backends.sqlite.steps import SqliteSteps
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ERRORS_KEPT, Enqueued, LogLine, NewJob
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import OPEN, Gate

ROWS_SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "transitions.sql")
KEYS_SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "enqueue.sql")
MAX_LOG_LINES: Final = 1_000

_KEY_MARKS: Final = SQL["key_marks"]
_NOT_INGESTED: Final = SQL["not_ingested"]
_MAKE_CLAIMABLE: Final = SQL["make_claimable"]
_SET_INGESTED: Final = SQL["set_ingested"]
_RAISE_CONTROL_VERSION: Final = SQL["raise_control_version"]
_LOAD_ROWS: Final = ROWS_SQL["load_rows"]
_STORE_ROWS: Final = ROWS_SQL["store_rows"]
_STORE_BOUND_COLUMNS: Final = ROWS_SQL["store_bound_columns"]
_KEY_HOLDER: Final = KEYS_SQL["key_holder"]
_TAKE_KEY: Final = KEYS_SQL["take_key"]
_FREE_KEY: Final = KEYS_SQL["free_key"]
_RETAIN_KEY: Final = KEYS_SQL["retain_key"]
_SLOTS_IN_USE: Final = LIMITS_SQL["slots_in_use"]
_claims_of = msgspec.json.Decoder(list[tuple[int, int]]).decode
_rows_of = msgspec.json.Decoder(list[Row]).decode
_groups_of = msgspec.json.Decoder(list[tuple[str, str, str, int, int]]).decode


class NotDurable(Exception):
    """Raised by an operation that must be on disk before its call returns, to be run once more in a
    durable transaction."""


class Tx:
    """The argument of every write operation.

    A single enqueue writes neither the counters nor the claim index, which saves two pages per
    enqueue. Jobs with a key above ``forge_meta.ingested`` are in that state. An operation that
    changes or deletes jobs calls ``ingest`` first, which writes both for all of them.
    """

    __slots__ = (
        "_control_changed", "_ingested_key", "_is_durable", "_top_key", "after_commit", "counters",
        "entry_id", "execute", "failures", "ingested", "notify_queues", "now", "tag",
        "touched_buckets",
    )  # fmt: skip

    def __init__(
        self, execute: Execute, now: Instant, tag: int, *, is_durable: bool = True
    ) -> None:
        self.execute = execute
        self.now = now
        self.tag = tag
        self._is_durable = is_durable
        self.counters = Counters(now)
        self.notify_queues: set[str] = set()
        self.after_commit: list[Callable[[], object]] = []
        # Limit buckets whose held jobs may be admitted because of this transaction; in order.
        self.touched_buckets: dict[str, None] = {}
        self.failures: list[tuple[int, FailedAttempt]] = []
        self.ingested = False
        self.entry_id = 0
        self._ingested_key = -1
        self._top_key = -1
        self._control_changed = False

    @property
    def control_changed(self) -> bool:
        return self._control_changed

    @property
    def steps(self) -> SqliteSteps:
        """Steps, waits and events. Whoever stores a step in a transaction that is not durable is
        run again in one that is."""
        return SqliteSteps(self.execute, self.now, self._require_durable)

    def _require_durable(self) -> None:
        if not self._is_durable:
            raise NotDurable

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
        """After an operator's action: every process reads settings and cancel requests again."""
        if not self._control_changed:
            self._control_changed = True
            self.execute(_RAISE_CONTROL_VERSION)

    def admit_held(self) -> None:
        """Admit jobs from the buckets in which a slot may have become free."""
        if self.touched_buckets:
            limit_buckets.admit_touched(self)

    def before_commit(self) -> None:
        """Run the last statements of the transaction."""
        self.admit_held()
        if self.ingested and self._top_key > self._ingested_key:
            self.execute(_SET_INGESTED, (self._top_key,))
        self.write_counters()
        if self.failures:
            error_groups.count(self.execute, self.failures, self.now)

    def write_counters(self) -> None:
        """Write the counters collected so far."""
        counters, self.counters = self.counters, Counters(self.now)
        self.entry_id = counters.write(self.execute)

    # ---------------------------------------------------------------- rows

    def load(self, keys: Iterable[int]) -> dict[int, Row]:
        """The rows with these keys, by key; missing ones are left out."""
        return self.load_text(as_json(list(keys)))

    def load_text(self, keys: str) -> dict[int, Row]:
        """The same for keys that are JSON already."""
        self.ingest()
        (found,) = self.row(_LOAD_ROWS, (keys,))
        return {row.key: row for row in _rows_of(found)}

    def store(self, rows: Sequence[Row]) -> None:
        """Write rows back after their transitions."""
        if not rows:
            return
        bound: list[Row] = []
        for row in rows:
            row.derive_columns()
            if row.is_bound:
                row.derive_bound_columns()
                bound.append(row)
        self.execute(_STORE_ROWS, (as_json(rows),))
        if bound:
            self.execute(_STORE_BOUND_COLUMNS, (as_json(bound),))

    def store_declared(self, rows: Sequence[Row]) -> None:
        """Write the columns that only a declaration changes."""
        if rows:
            self.execute(ROWS_SQL["store_declared"], (as_json(rows),))

    def store_routed(self, rows: Sequence[Row]) -> None:
        """Write the queue, which only ``JobStore.route`` changes."""
        self.execute(ROWS_SQL["store_routed"], (as_json(rows),))

    def delete(self, rows: Sequence[Row]) -> None:
        keys = as_json([row.key for row in rows])
        for name in ("delete_jobs", "delete_bodies", "delete_logs", "delete_tracebacks"):
            self.execute(ROWS_SQL[name], (keys,))
        for name in ("delete_steps", "delete_waits"):
            self.execute(STEPS_SQL[name], (keys,))

    def insert(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        # Not at the top of the module: ``enqueue`` imports this one.
        from forge_jobs.backends.sqlite import enqueue

        return enqueue.insert(self, jobs)

    def current_claims(self, owner: int, keys: Iterable[int]) -> set[tuple[int, int]]:
        (found,) = self.row(STEPS_SQL["current_claims"], (as_json(list(keys)), owner))
        return set(_claims_of(found))

    def set_payload(self, row: Row, payload: bytes) -> None:
        if needs_body(payload):
            self.execute(STEPS_SQL["set_payload"], (row.key, None))
            self.execute(STEPS_SQL["set_body"], (row.key, payload))
        else:
            self.execute(STEPS_SQL["set_payload"], (row.key, payload))
            self.execute(STEPS_SQL["delete_body"], (row.key,))

    def payload(self, row: Row) -> bytes:
        (payload,) = self.row(ROWS_SQL["payload"], (row.key,))
        return payload

    def append_log(self, row: Row, lines: Sequence[LogLine]) -> None:
        for line in lines[-MAX_LOG_LINES:]:
            values = (row.key, line.at, line.level, line.message)
            self.execute(ROWS_SQL["add_log_line"], values)
        self.execute(ROWS_SQL["trim_log"], (row.key, MAX_LOG_LINES))

    def add_traceback(self, row: Row, traceback: str) -> None:
        values = (row.key, row.epoch, self.now, row.attempts, traceback)
        self.execute(ROWS_SQL["add_traceback"], values)
        self.execute(ROWS_SQL["trim_tracebacks"], (row.key, ERRORS_KEPT))

    def count(self, row: Row, source: JobStatus, event: Event) -> None:
        self.counters.row_transitioned(
            row.queue, row.kind, source, row.status, event, started=row.started_at is not None
        )

    # ---------------------------------------------------------------- cancel requests and gates

    def add_cancel(self, row: Row) -> None:
        self.execute(ROWS_SQL["add_cancel"], (row.owner, row.key))

    def delete_cancel(self, row: Row) -> None:
        self.execute(ROWS_SQL["delete_cancel"], (row.owner, row.key))

    def gate(self, name: str) -> Gate:
        """The throttle gate of a queue or scope."""
        found = self.row(ROWS_SQL["gate"], (name,))
        return OPEN if found is None else Gate(*found)

    def set_gate(self, name: str, gate: Gate) -> None:
        """Store a gate; the table holds only gates that are not open."""
        if gate == OPEN:
            self.execute(ROWS_SQL["delete_gate"], (name,))
        else:
            self.execute(ROWS_SQL["set_gate"], (name, gate.until, gate.count))

    def backoff(self, queue: str) -> Backoff | None:
        found = self.row(ROWS_SQL["backoff"], (queue,))
        if found is None or not found[0]:
            return None
        return Backoff(base_s=found[1], max_s=found[2])

    # ---------------------------------------------------------------- dedupe keys

    def key_holder(self, kind: str, dedupe_key: str) -> KeyHolder | None:
        found = self.row(_KEY_HOLDER, (kind, dedupe_key, self.now))
        return None if found is None else KeyHolder(found[0], JobStatus(found[1]), found[2])

    def take_key(self, row: Row) -> None:
        self.execute(_TAKE_KEY, (row.kind, row.dedupe_key, row.key))

    def free_key(self, row: Row) -> None:
        self.execute(_FREE_KEY, (row.kind, row.dedupe_key, row.key))

    def retain_key(self, row: Row, until: Instant) -> None:
        self.execute(_RETAIN_KEY, (row.kind, row.dedupe_key, row.key, until))

    # ---------------------------------------------------------------- limit buckets

    def max_per_key(self, limit_key: str) -> int:
        return max_per_key(self.execute, limit_key)

    def slots_in_use(self, limit_key: str, max_slots: int) -> int:
        return self.row(_SLOTS_IN_USE, (limit_key, max_slots))[0]

    def held_in_bucket(self, bucket: str, limit: int) -> list[int]:
        return read_keys(self.row(ROWS_SQL["held_in_bucket"], (bucket, limit))[0])

    def lane_head(self, lane: str) -> tuple[int, bool] | None:
        found = self.row(LIMITS_SQL["lane_head"], (lane,))
        return None if found is None else (found[0], bool(found[1]))

    def lane_slot_taken(self, lane: str) -> bool:
        return self.row(LIMITS_SQL["lane_slot_holder"], (lane,)) is not None

    def older_in_lane(self, lane: str, key: int, *, strict: bool) -> bool:
        return bool(self.row(LIMITS_SQL["older_in_lane"], (lane, key, strict))[0])

    def lane_busy(self, lane: str) -> bool:
        return bool(self.row(LIMITS_SQL["lane_busy"], (lane,))[0])

    def lane_scheduled(self, lane: str) -> tuple[bool, bool]:
        strict, live = self.row(LIMITS_SQL["lane_scheduled"], (lane,))
        return bool(strict), bool(live)
