"""Limit buckets: jobs of full limit keys and busy lanes are held, and admitted when a slot is free.

A job in a lane takes the lane's slot first and keeps it until it waits for a retry or ends. A job
with a limit key takes a slot of the key when it becomes pending. The slots in use are counted from
the rows: a SQLite file has one writer at a time, so a count stays true until the commit.
"""

from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limits import LANE, UNBOUNDED, Limit, limit_of
from forge_jobs.core.status import Event, JobStatus

from . import transitions
from .counters import Execute
from .io.transaction import Tx
from .rows import bound_lane

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "limits.sql")

# Per bucket and transaction; the rest is admitted by the next finish or by the periodic service.
MAX_ADMITTED: Final = 1_000


class StoredLimit(Limit, frozen=True, kw_only=False, array_like=True):
    """A limit with its values in the order of the columns, as the snapshot of an exchange reads."""


_scopes_of = msgspec.json.Decoder(tuple[str, ...]).decode


def read_limit(row: tuple[Any, ...]) -> Limit:
    """A limit from its row."""
    name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at = row
    return Limit(
        name=name,
        concurrency=concurrency,
        per=per,
        rate_per_s=rate_per_s,
        burst=burst,
        scopes=_scopes_of(scopes),
        tokens=tokens,
        at=at,
        by_operator=bool(by_operator),
        updated_at=updated_at,
    )


def max_per_key(execute: Execute, limit_key: str) -> int:
    """The number of slots of a limit key."""
    found = execute(SQL["limit"], (limit_of(limit_key),)).fetchone()
    if found is None:
        return UNBOUNDED
    limit = read_limit(found)
    bounded = limit.per is not None and limit.concurrency is not None
    return limit.concurrency if bounded and limit.concurrency is not None else UNBOUNDED


def admit_touched(tx: Tx) -> None:
    """Admit jobs from every bucket that this transaction has touched."""
    while tx.touched_buckets:
        buckets, tx.touched_buckets = tx.touched_buckets, {}
        for bucket in buckets:
            admit(tx, bucket)


def admit(tx: Tx, bucket: str) -> int:
    """Admit held jobs of a bucket while there are free slots; returns how many left it."""
    if bucket.startswith(LANE):
        return _admit_lane(tx, bucket)
    room = MAX_ADMITTED
    slots = max_per_key(tx.execute, bucket)
    if slots < UNBOUNDED:
        (in_use,) = tx.row(SQL["slots_in_use"], (bucket, slots))
        room = min(slots - in_use, room)
    if room <= 0:
        return 0
    (held,) = tx.row(transitions.SQL["held_in_bucket"], (bucket, room))
    if held == "[]":
        return 0
    rows = list(transitions.load_text(tx, held).values())
    for row in rows:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    transitions.store(tx, rows)
    return len(rows)


def _admit_lane(tx: Tx, bucket: str) -> int:
    head = tx.row(SQL["lane_head"], (bucket,))
    if head is None or tx.row(SQL["lane_slot_holder"], (bucket,)) is not None:
        return 0
    key, strict = head
    if tx.row(SQL["older_in_lane"], (bucket, key, bool(strict)))[0]:
        return 0
    row = transitions.load(tx, [key])[key]
    if row.limit_key is not None and _is_full(tx, row.limit_key):
        row.bucket = row.limit_key
    else:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    transitions.store(tx, [row])
    return 1


def _is_full(tx: Tx, limit_key: str) -> bool:
    slots = max_per_key(tx.execute, limit_key)
    return slots < UNBOUNDED and tx.row(SQL["slots_in_use"], (limit_key, slots))[0] >= slots


class BucketAssigner:
    """Assigns new jobs with a lane or a limit key to buckets, each after those before it."""

    __slots__ = ("_lanes", "_room", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        # Per lane: whether a due job must wait, and whether it has other live jobs.
        self._lanes: dict[str, _Lane] = {}
        self._room: dict[str, int] = {}

    def bucket_for(self, job: NewJob, *, is_due: bool) -> str | None:
        """The bucket in which a new job must wait; None if it may run, or is due later."""
        lane = None if job.lane is None else bound_lane(job.queue, job.lane, job.order)
        if lane is not None and self._must_wait(lane, job.order, is_due=is_due):
            return lane
        if job.limit_key is None or not is_due:
            return None
        room = self._room_of(job.limit_key)
        self._room[job.limit_key] = room - 1
        return None if room > 0 else job.limit_key

    def _must_wait(self, name: str, order: LaneOrder, *, is_due: bool) -> bool:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(self._tx, name)
        strict = order is LaneOrder.STRICT
        waits = lane.busy or lane.strict or (strict and lane.live)
        lane.live = True
        lane.strict = lane.strict or strict
        lane.busy = lane.busy or is_due
        return waits and is_due

    def _room_of(self, limit_key: str) -> int:
        room = self._room.get(limit_key)
        if room is None:
            slots = max_per_key(self._tx.execute, limit_key)
            in_use = 0
            if slots < UNBOUNDED:
                (in_use,) = self._tx.row(SQL["slots_in_use"], (limit_key, slots))
            room = slots - in_use
        return room


class _Lane:
    """The state of a lane before a new job."""

    __slots__ = ("busy", "live", "strict")

    def __init__(self, tx: Tx, name: str) -> None:
        self.busy = bool(tx.row(SQL["lane_busy"], (name,))[0])
        self.live, self.strict = self.busy, False
        if not self.busy:
            strict, live = tx.row(SQL["lane_scheduled"], (name,))
            self.strict, self.live = bool(strict), bool(live)
