"""The limit contract on SQLite: limits, scopes, and the state of limit buckets."""

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import structs

from forge_jobs.backends.shared.rowwise import limit_buckets as rowwise_buckets
from forge_jobs.backends.shared.rowwise import transitions
from forge_jobs.core import ids
from forge_jobs.core.errors import NotFound
from forge_jobs.core.limits import (
    LANE,
    SCOPE,
    UNBOUNDED,
    Declared,
    Limit,
    refilled,
    scope_gate,
    with_declared,
    with_operator_change,
)
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.kit.clock import Clock
from forge_jobs.store.limits import Admitted, LimitBucket, LimitChange

from . import limit_buckets
from .counters import Execute
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .json_text import as_json
from .limit_buckets import SQL, read_limit

# How many pending jobs are checked again in one transaction when a limit changes.
_MAX_RECHECKED = 1_000
# How many buckets are admitted from when a limit changes; the periodic service does the rest.
_MAX_BUCKETS = 5_000
_names_of = msgspec.json.Decoder(list[str]).decode
_positions_of = msgspec.json.Decoder(list[tuple[str, int]]).decode
# A limit key and a job of it, up to which the pending jobs have been checked.
_Position = tuple[str, int]


class SqliteLimits:
    """Stores limits; see ``forge_jobs.store.limits`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self.tag = 0

    async def publish(self, declared: Sequence[Declared]) -> None:
        now = self._clock.now()
        known = {limit.name: limit for limit in await self._reader.call(_all)}
        if all(known.get(each.name) == with_declared(known.get(each.name), each, now)
               for each in declared):  # fmt: skip
            return
        await self._recheck(await self._writer.call(partial(_publish, declared)))

    async def all(self) -> list[Limit]:
        now = self._clock.now()
        return [refilled(limit, now) for limit in await self._reader.call(_all)]

    async def change(self, name: str, change: LimitChange) -> Limit:
        limit, unfinished = await self._writer.call(partial(_change, name, change))
        await self._recheck(unfinished)
        return limit

    async def reset(self, name: str) -> None:
        await self._recheck(await self._writer.call(partial(_reset, name)))

    async def _recheck(self, unfinished: dict[str, _Position]) -> None:
        """Check the remaining pending jobs under these limits, in further transactions."""
        for name, first in unfinished.items():
            position: _Position | None = first
            while position is not None:
                position = await self._writer.call(partial(_recheck, name, position))

    async def gates(self) -> dict[str, Gate]:
        rows = await self._reader.call(
            lambda connection: connection.execute(SQL["scope_gates"]).fetchall()
        )
        return {name.removeprefix(SCOPE): Gate(until, count) for name, until, count in rows}

    async def open_scope(self, scope: str) -> None:
        await self._writer.call(partial(_open_scope, scope))

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


def _all(connection: sqlite3.Connection) -> list[Limit]:
    return [read_limit(row) for row in connection.execute(SQL["limits"]).fetchall()]


def _known(tx: Tx, name: str) -> Limit | None:
    found = tx.row(SQL["limit"], (name,))
    return None if found is None else read_limit(found)


def _publish(declared: Sequence[Declared], tx: Tx) -> dict[str, _Position]:
    unfinished: dict[str, _Position] = {}
    for declaration in declared:
        known = _known(tx, declaration.name)
        limit = with_declared(known, declaration, tx.now)
        if limit != known:
            unfinished |= _put(tx, limit)
    return unfinished


def _change(name: str, change: LimitChange, tx: Tx) -> tuple[Limit, dict[str, _Position]]:
    limit = with_operator_change(_known(tx, name), name, structs.asdict(change), tx.now)
    return limit, _put(tx, limit)


def _reset(name: str, tx: Tx) -> dict[str, _Position]:
    limit = _known(tx, name)
    if limit is None:
        raise NotFound(f"there is no limit {name!r}")
    return _put(tx, structs.replace(limit, by_operator=False, updated_at=tx.now))


def _put(tx: Tx, limit: Limit) -> dict[str, _Position]:
    """Store a limit and check its pending jobs; returns where to continue, if need be."""
    values = (
        limit.name, limit.concurrency, limit.per, limit.rate_per_s, limit.burst,
        as_json(limit.scopes), limit.tokens, limit.at, limit.by_operator, limit.updated_at,
    )  # fmt: skip
    tx.execute(SQL["put_limit"], values)
    tx.raise_control_version()
    position = _recheck(limit.name, (f"{limit.name}/", 0), tx)
    return {} if position is None else {limit.name: position}


def _recheck(name: str, after: _Position, tx: Tx) -> _Position | None:
    """Check pending jobs of a limit's keys against the new limit: hold them in their buckets, which
    then admit as many as the limit allows. Returns where to continue; None at the end."""
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


def _open_scope(scope: str, tx: Tx) -> None:
    limits = [read_limit(row) for row in tx.execute(SQL["limits"]).fetchall()]
    name = scope_gate(scope)
    declared = any(scope in limit.scopes for limit in limits)
    if not declared and tx.gate(name) == OPEN:
        raise NotFound(f"no task declares the scope {scope!r}")
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
