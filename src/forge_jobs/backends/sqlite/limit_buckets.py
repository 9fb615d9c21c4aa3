"""Where jobs of full keys and busy lanes wait, and who goes on when there is room.

A job in a lane takes the lane's seat before anything else and keeps it until it waits for a retry
or ends; a job with a limit key counts as one of the key's from pending on. Counts come from the
rows themselves; this file has one writer, so what was counted still holds when it is acted on.
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

# No more of one lot in one transaction; the rest goes on with the next end or with the net.
MAX_ADMITTED: Final = 1_000


class StoredLimit(Limit, frozen=True, kw_only=False, array_like=True):
    """A limit as a row gives it: its values in the order of the columns."""


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
    """How many jobs of a key may run at once."""
    found = execute(SQL["limit"], (limit_of(limit_key),)).fetchone()
    if found is None:
        return UNBOUNDED
    limit = read_limit(found)
    bounded = limit.per is not None and limit.concurrency is not None
    return limit.concurrency if bounded and limit.concurrency is not None else UNBOUNDED


def settle_limits(tx: Tx) -> None:
    """Let jobs go on in every lot that this transaction has touched."""
    while tx.unsettled:
        lots, tx.unsettled = tx.unsettled, {}
        for lot in lots:
            admit(tx, lot)


def admit(tx: Tx, lot: str) -> int:
    """Let jobs of a lot go on as far as there is room; how many left it."""
    if lot.startswith(LANE):
        return _admit_lane(tx, lot)
    room = MAX_ADMITTED
    most = max_per_key(tx.execute, lot)
    if most < UNBOUNDED:
        (taken,) = tx.row(SQL["taken"], (lot, most))
        room = min(most - taken, room)
    if room <= 0:
        return 0
    (held,) = tx.row(transitions.SQL["held"], (lot, room))
    if held == "[]":
        return 0
    rows = list(transitions.load_text(tx, held).values())
    for row in rows:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    transitions.store(tx, rows)
    return len(rows)


def _admit_lane(tx: Tx, lot: str) -> int:
    head = tx.row(SQL["lane_head"], (lot,))
    if head is None or tx.row(SQL["seated"], (lot,)) is not None:
        return 0
    key, strict = head
    if tx.row(SQL["older_in_lane"], (lot, key, bool(strict)))[0]:
        return 0
    row = transitions.load(tx, [key])[key]
    if row.limit_key is not None and _is_full(tx, row.limit_key):
        row.lot = row.limit_key
    else:
        transitions.transition(tx, row, Event.UNHOLD, JobStatus.PENDING)
    transitions.store(tx, [row])
    return 1


def _is_full(tx: Tx, limit_key: str) -> bool:
    most = max_per_key(tx.execute, limit_key)
    return most < UNBOUNDED and tx.row(SQL["taken"], (limit_key, most))[0] >= most


class Newcomers:
    """Where the bound jobs of one call begin, each seeing those before it."""

    __slots__ = ("_lanes", "_room", "_tx")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        # Of each lane: whether a job that is due has to wait, and what else is live in it.
        self._lanes: dict[str, _Lane] = {}
        self._room: dict[str, int] = {}

    def lot_for(self, job: NewJob, *, is_due: bool) -> str | None:
        """Where a new job has to wait; None when it may go on, or is due later."""
        lane = None if job.lane is None else bound_lane(job.queue, job.lane, job.order)
        if lane is not None and self._is_behind(lane, job.order, is_due=is_due):
            return lane
        if job.limit_key is None or not is_due:
            return None
        room = self._room_of(job.limit_key)
        self._room[job.limit_key] = room - 1
        return None if room > 0 else job.limit_key

    def _is_behind(self, name: str, order: LaneOrder, *, is_due: bool) -> bool:
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
            most = max_per_key(self._tx.execute, limit_key)
            taken = 0
            if most < UNBOUNDED:
                (taken,) = self._tx.row(SQL["taken"], (limit_key, most))
            room = most - taken
        return room


class _Lane:
    """What a new job meets in its lane."""

    __slots__ = ("busy", "live", "strict")

    def __init__(self, tx: Tx, name: str) -> None:
        self.busy = bool(tx.row(SQL["lane_busy"], (name,))[0])
        self.live, self.strict = self.busy, False
        if not self.busy:
            strict, live = tx.row(SQL["lane_later"], (name,))
            self.strict, self.live = bool(strict), bool(live)
