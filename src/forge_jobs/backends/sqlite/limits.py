"""The limit contract on SQLite: gates, and the state of limit buckets."""

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec

from forge_jobs.backends.shared.rowwise import limit_buckets as rowwise_buckets
from forge_jobs.backends.shared.rowwise import transitions
from forge_jobs.core import ids
from forge_jobs.core.limits import LANE, UNBOUNDED
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.limits import Admitted, LimitBucket

from . import limit_buckets
from .counters import Execute
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .limit_buckets import SQL, read_limit

# How many pending jobs are checked again in one transaction when a limit changes.
_MAX_RECHECKED = 1_000
# How many buckets are admitted from when a limit changes; the periodic service does the rest.
_MAX_BUCKETS = 5_000
_names_of = msgspec.json.Decoder(list[str]).decode
_positions_of = msgspec.json.Decoder(list[tuple[str, int]]).decode
# A limit key and a job of it, up to which the pending jobs have been checked.
Position = tuple[str, int]


class SqliteLimits:
    """Gates and limit buckets; see ``forge_jobs.store.limits`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.tag = 0

    async def gates(self) -> dict[str, Gate]:
        rows = await self._reader.call(
            lambda connection: connection.execute(SQL["gates"]).fetchall()
        )
        return {name: Gate(until, count) for name, until, count in rows}

    async def open_gate(self, name: str) -> None:
        await self._writer.call(partial(_open_gate, name))

    async def bucket(self, name: str) -> LimitBucket:
        return await self._reader.call(
            lambda connection: _read_bucket(connection.execute, name, self.tag)
        )

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        names = await self._reader.call(partial(_buckets, after or "", max(limit, 1) + 1))
        chosen = names[: max(limit, 1)]
        admitted = 0
        if chosen:
            admitted = await self._writer.call(partial(_admit, chosen))
        return Admitted(admitted, chosen[-1] if len(names) > len(chosen) else None)


def recheck(name: str, after: Position | None, tx: Tx) -> Position | None:
    """Check pending jobs of a limit's keys against the new limit: hold them in their buckets, which
    then admit as many as the limit allows. ``after`` None: from the first one. Returns where to
    continue; None at the end."""
    after = (f"{name}/", 0) if after is None else after
    end = f"{name}0"  # "0" follows "/"
    (found,) = tx.row(SQL["pending_of_limit"], (*after, end, _MAX_RECHECKED))
    positions = _positions_of(found)
    rows = list(tx.load([key for _, key in positions]).values())
    for row in rows:
        transitions.hold(tx, row, row.limit_key or "")
    tx.store(rows)
    if len(positions) == _MAX_RECHECKED:
        # The last key may have further jobs: its bucket admits none before all of them are held.
        last = positions[-1]
        tx.touched_buckets.update(dict.fromkeys(key for key, _ in positions if key != last[0]))
        return last
    (names,) = tx.row(SQL["buckets_of_limit"], (f"{name}/", end, _MAX_BUCKETS))
    tx.touched_buckets.update(dict.fromkeys(_names_of(names)))
    return None


def _open_gate(name: str, tx: Tx) -> None:
    tx.set_gate(name, OPEN)
    tx.raise_control_version()


def _read_bucket(execute: Execute, name: str, tag: int) -> LimitBucket:
    if name.startswith(LANE):
        holder = execute(SQL["lane_slot_holder"], (name,)).fetchone()
        first = holder or execute(SQL["oldest_of_lane"], (name,)).fetchone()
        job_id = None if first is None else ids.job_id(first[0], first[1], tag)
        return LimitBucket(name=name, taken=0 if holder is None else 1, capacity=1, first=job_id)
    if "/" in name:
        capacity = limit_buckets.max_per_key(execute, name)
        (taken,) = execute(SQL["slots_in_use"], (name, UNBOUNDED)).fetchone()
        return LimitBucket(
            name=name, taken=taken, capacity=None if capacity == UNBOUNDED else capacity
        )
    found = execute(SQL["limit"], (name,)).fetchone()
    sort, _, subject = name.partition(":")
    statement = "running_of_queue" if sort == "queue" else "running_of_kind"
    (taken,) = execute(SQL[statement], (subject,)).fetchone()
    return LimitBucket(
        name=name, taken=taken, capacity=None if found is None else read_limit(found).cap
    )


def _buckets(after: str, limit: int, connection: sqlite3.Connection) -> list[str]:
    (names,) = connection.execute(SQL["buckets"], (after, limit)).fetchone()
    return _names_of(names)


def _admit(names: Sequence[str], tx: Tx) -> int:
    return sum(rowwise_buckets.admit(tx, bucket) for bucket in names)
