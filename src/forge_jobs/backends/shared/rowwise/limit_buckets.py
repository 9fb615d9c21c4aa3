"""Limit buckets: jobs of full limit keys and busy lanes are held, and admitted when a slot is free.

A job in a lane takes the lane's slot first and keeps it until it waits for a retry or ends. A job
with a limit key takes a slot of the key when it becomes pending. The slots in use are counted from
the rows: a row-wise store has one writer at a time, so a count stays true until the commit.
"""

from typing import Final, Generic

from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.limits import LANE, UNBOUNDED, lane_bucket
from forge_jobs.core.status import Event, JobStatus

from . import transitions
from .ports import JobTransaction, R

# Per bucket and transaction; the rest is admitted by the next finish or by the periodic service.
MAX_ADMITTED: Final = 1_000


def admit_touched(tx: JobTransaction[R]) -> None:
    """Admit jobs from every bucket that this transaction has touched."""
    while tx.touched_buckets:
        buckets, tx.touched_buckets = tx.touched_buckets, {}
        for bucket in buckets:
            admit(tx, bucket)


def admit(tx: JobTransaction[R], bucket: str) -> int:
    """Admit held jobs of a bucket while there are free slots; returns how many left it."""
    if bucket.startswith(LANE):
        return _admit_lane(tx, bucket)
    room = MAX_ADMITTED
    slots = tx.max_per_key(bucket)
    if slots < UNBOUNDED:
        room = min(slots - tx.slots_in_use(bucket, slots), room)
    return 0 if room <= 0 else unhold(tx, bucket, room)


def unhold(tx: JobTransaction[R], bucket: str, limit: int) -> int:
    """Make the first held jobs of a bucket pending, whether or not there are slots; how many."""
    held = tx.held_in_bucket(bucket, limit)
    if not held:
        return 0
    rows = list(tx.load(held).values())
    for row in rows:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    tx.store(rows)
    return len(rows)


def _admit_lane(tx: JobTransaction[R], lane: str) -> int:
    head = tx.lane_head(lane)
    if head is None or tx.lane_slot_taken(lane):
        return 0
    key, strict = head
    if tx.older_in_lane(lane, key, strict=strict):
        return 0
    row = tx.load([key])[key]
    if row.limit_key is not None and _is_full(tx, row.limit_key):
        row.bucket = row.limit_key
    else:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    tx.store([row])
    return 1


def _is_full(tx: JobTransaction[R], limit_key: str) -> bool:
    slots = tx.max_per_key(limit_key)
    return slots < UNBOUNDED and tx.slots_in_use(limit_key, slots) >= slots


def bound_lane(queue: str, lane: str, order: LaneOrder) -> str | None:
    """The bucket of a lane; None if its order is none."""
    return None if order is LaneOrder.NONE else lane_bucket(queue, lane)


class BucketAssigner(Generic[R]):
    """Assigns new jobs to buckets, counting those that were assigned before in the same call."""

    __slots__ = ("_lanes", "_room", "_tx")

    def __init__(self, tx: JobTransaction[R]) -> None:
        self._tx = tx
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
            lane = self._lanes[name] = _read_lane(self._tx, name)
        strict = order is LaneOrder.STRICT
        waits = lane.busy or lane.strict or (strict and lane.live)
        lane.live = True
        lane.strict = lane.strict or strict
        lane.busy = lane.busy or is_due
        return waits and is_due

    def _room_of(self, limit_key: str) -> int:
        room = self._room.get(limit_key)
        if room is None:
            slots = self._tx.max_per_key(limit_key)
            in_use = 0 if slots >= UNBOUNDED else self._tx.slots_in_use(limit_key, slots)
            room = slots - in_use
        return room


class _Lane:
    """A lane before a new job: whether a due job must wait, whether one of its jobs is strict, and
    whether it has live jobs."""

    __slots__ = ("busy", "live", "strict")

    def __init__(self, *, busy: bool, strict: bool, live: bool) -> None:
        self.busy = busy
        self.strict = strict
        self.live = live


def _read_lane(tx: JobTransaction[R], name: str) -> _Lane:
    if tx.lane_busy(name):
        return _Lane(busy=True, strict=False, live=True)
    strict, live = tx.lane_scheduled(name)
    return _Lane(busy=False, strict=strict, live=live)
