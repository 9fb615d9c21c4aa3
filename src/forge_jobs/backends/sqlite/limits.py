"""The contract for limits on SQLite: their numbers, scopes, and how full lots are."""

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import structs

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

from . import finish, limit_buckets, transitions
from .counters import Execute
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .limit_buckets import SQL, read_limit
from .transitions import as_json

# How many jobs in line are measured anew in one transaction when a limit changes.
_MAX_MEASURED = 1_000
# How many lots are looked at when one changes; the net does the rest.
_MAX_LOTS = 5_000
_names_of = msgspec.json.Decoder(list[str]).decode
_places_of = msgspec.json.Decoder(list[tuple[str, int]]).decode
# A key and a job of it, up to which the jobs in line have been measured.
_Occupancy = tuple[str, int]


class SqliteLimits:
    """What bounds jobs; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self.tag = 0

    async def publish(self, declared: Sequence[Declared]) -> None:
        now = self._clock.now()
        known = {limit.name: limit for limit in await self._reader.call(_all)}
        if all(known.get(told.name) == with_declared(known.get(told.name), told, now)
               for told in declared):  # fmt: skip
            return
        await self._measure(await self._writer.call(partial(_publish, declared)))

    async def all(self) -> list[Limit]:
        now = self._clock.now()
        return [refilled(limit, now) for limit in await self._reader.call(_all)]

    async def change(self, name: str, change: LimitChange) -> Limit:
        limit, unfinished = await self._writer.call(partial(_change, name, change))
        await self._measure(unfinished)
        return limit

    async def reset(self, name: str) -> None:
        await self._measure(await self._writer.call(partial(_reset, name)))

    async def _measure(self, unfinished: dict[str, _Occupancy]) -> None:
        """Go on until every job in line under these limits has been measured."""
        for name, first in unfinished.items():
            place: _Occupancy | None = first
            while place is not None:
                place = await self._writer.call(partial(_measure, name, place))

    async def gates(self) -> dict[str, Gate]:
        rows = await self._reader.call(lambda link: link.execute(SQL["scope_gates"]).fetchall())
        return {name.removeprefix(SCOPE): Gate(until, count) for name, until, count in rows}

    async def open_scope(self, scope: str) -> None:
        await self._writer.call(partial(_open_scope, scope))

    async def bucket(self, name: str) -> LimitBucket:
        return await self._reader.call(lambda link: _read_bucket(link.execute, name, self.tag))

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        names = await self._reader.call(partial(_buckets, after or "", max(limit, 1) + 1))
        chosen = names[: max(limit, 1)]
        moved = 0
        if chosen:
            moved = await self._writer.call(partial(_admit, chosen))
        return Admitted(moved, chosen[-1] if len(names) > len(chosen) else None)


def _all(connection: sqlite3.Connection) -> list[Limit]:
    return [read_limit(row) for row in connection.execute(SQL["limits"]).fetchall()]


def _known(tx: Tx, name: str) -> Limit | None:
    found = tx.row(SQL["limit"], (name,))
    return None if found is None else read_limit(found)


def _publish(declared: Sequence[Declared], tx: Tx) -> dict[str, _Occupancy]:
    unfinished: dict[str, _Occupancy] = {}
    for told in declared:
        known = _known(tx, told.name)
        limit = with_declared(known, told, tx.now)
        if limit != known:
            unfinished |= _put(tx, limit)
    return unfinished


def _change(name: str, change: LimitChange, tx: Tx) -> tuple[Limit, dict[str, _Occupancy]]:
    limit = with_operator_change(_known(tx, name), name, structs.asdict(change), tx.now)
    return limit, _put(tx, limit)


def _reset(name: str, tx: Tx) -> dict[str, _Occupancy]:
    limit = _known(tx, name)
    if limit is None:
        raise NotFound(f"there is no limit {name!r}")
    return _put(tx, structs.replace(limit, by_operator=False, updated_at=tx.now))


def _put(tx: Tx, limit: Limit) -> dict[str, _Occupancy]:
    """Store it; where the measuring of jobs in line has to go on, if it does."""
    values = (
        limit.name, limit.concurrency, limit.per, limit.rate_per_s, limit.burst,
        as_json(limit.scopes), limit.tokens, limit.at, limit.by_operator, limit.updated_at,
    )  # fmt: skip
    tx.execute(SQL["put_limit"], values)
    tx.operate()
    place = _measure(limit.name, (f"{limit.name}/", 0), tx)
    return {} if place is None else {limit.name: place}


def _measure(name: str, after: _Occupancy, tx: Tx) -> _Occupancy | None:
    """Jobs of a limit's keys that have not started are measured anew: they go back to their lot,
    which lets on as many as it may. Where to go on, None when all have been."""
    end = f"{name}0"  # "0" follows "/"
    (found,) = tx.row(SQL["waiting_of_limit"], (*after, end, _MAX_MEASURED))
    places = _places_of(found)
    rows = list(transitions.load(tx, [key for _, key in places]).values())
    for row in rows:
        transitions.hold(tx, row, row.limit_key or "")
    transitions.store(tx, rows)
    if len(places) == _MAX_MEASURED:
        # Nobody of the last key goes on before all of it has been measured.
        last = places[-1]
        tx.unsettled.update(dict.fromkeys(key for key, _ in places if key != last[0]))
        return last
    (names,) = tx.row(SQL["lots_of_limit"], (f"{name}/", end, _MAX_LOTS))
    tx.unsettled.update(dict.fromkeys(_names_of(names)))
    return None


def _open_scope(scope: str, tx: Tx) -> None:
    limits = [read_limit(row) for row in tx.execute(SQL["limits"]).fetchall()]
    name = scope_gate(scope)
    declared = any(scope in limit.scopes for limit in limits)
    if not declared and finish.read_gate(tx, name) == OPEN:
        raise NotFound(f"no task declares the scope {scope!r}")
    finish.write_gate(tx, name, OPEN)
    tx.operate()


def _read_bucket(execute: Execute, name: str, tag: int) -> LimitBucket:
    if name.startswith(LANE):
        seated = execute(SQL["seated"], (name,)).fetchone()
        first = seated or execute(SQL["oldest_of_lane"], (name,)).fetchone()
        job_id = None if first is None else ids.job_id(first[0], first[1], tag)
        return LimitBucket(name=name, taken=0 if seated is None else 1, capacity=1, first=job_id)
    if "/" in name:
        capacity = limit_buckets.max_per_key(execute, name)
        (taken,) = execute(SQL["taken"], (name, UNBOUNDED)).fetchone()
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
    (names,) = connection.execute(SQL["lots"], (after, limit)).fetchone()
    return _names_of(names)


def _admit(names: Sequence[str], tx: Tx) -> int:
    return sum(limit_buckets.admit(tx, lot) for lot in names)
