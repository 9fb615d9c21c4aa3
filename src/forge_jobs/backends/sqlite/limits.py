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
    operated,
    published,
    refilled,
    scope_gate,
)
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.kit.clock import Clock
from forge_jobs.store.limits import Admitted, LimitChange, Lot

from . import finish, lots, moves
from .books import Execute
from .lots import SQL, read_limit
from .moves import as_json
from .reader import Reader
from .transaction import Tx
from .writer import Writer

# How many jobs in line are measured anew when a limit changes; the net does the rest.
_MEASURED_MOST = 5_000
_names_of = msgspec.json.Decoder(list[str]).decode


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
        if all(known.get(told.name) == published(known.get(told.name), told, now)
               for told in declared):  # fmt: skip
            return
        await self._writer.call(partial(_publish, declared))

    async def all(self) -> list[Limit]:
        now = self._clock.now()
        return [refilled(limit, now) for limit in await self._reader.call(_all)]

    async def change(self, name: str, change: LimitChange) -> Limit:
        return await self._writer.call(partial(_change, name, change))

    async def reset(self, name: str) -> None:
        await self._writer.call(partial(_reset, name))

    async def gates(self) -> dict[str, Gate]:
        rows = await self._reader.call(lambda link: link.execute(SQL["scope_gates"]).fetchall())
        return {name.removeprefix(SCOPE): Gate(until, count) for name, until, count in rows}

    async def open_scope(self, scope: str) -> None:
        await self._writer.call(partial(_open_scope, scope))

    async def look(self, name: str) -> Lot:
        return await self._reader.call(lambda link: _look(link.execute, name, self.tag))

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        names = await self._reader.call(partial(_lots, after or "", max(limit, 1) + 1))
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


def _publish(declared: Sequence[Declared], tx: Tx) -> None:
    for told in declared:
        known = _known(tx, told.name)
        limit = published(known, told, tx.now)
        if limit != known:
            _put(tx, limit)


def _change(name: str, change: LimitChange, tx: Tx) -> Limit:
    limit = operated(_known(tx, name), name, structs.asdict(change), tx.now)
    _put(tx, limit)
    return limit


def _reset(name: str, tx: Tx) -> None:
    limit = _known(tx, name)
    if limit is None:
        raise NotFound(f"there is no limit {name!r}")
    _put(tx, structs.replace(limit, by_operator=False, updated_at=tx.now))


def _put(tx: Tx, limit: Limit) -> None:
    values = (
        limit.name, limit.concurrency, limit.per, limit.rate_per_s, limit.burst,
        as_json(limit.scopes), limit.tokens, limit.at, limit.by_operator, limit.updated_at,
    )  # fmt: skip
    tx.execute(SQL["put_limit"], values)
    tx.operate()
    # Jobs of its keys that have not started are measured anew. "0" follows "/".
    first, end = f"{limit.name}/", f"{limit.name}0"
    (waiting,) = tx.row(SQL["waiting_of_limit"], (first, end, _MEASURED_MOST))
    if waiting != "[]":
        rows = list(moves.load_text(tx, waiting).values())
        for row in rows:
            moves.hold(tx, row, row.limit_key or "")
        moves.store(tx, rows)
    (names,) = tx.row(SQL["lots_of_limit"], (first, end, _MEASURED_MOST))
    tx.unsettled.update(dict.fromkeys(_names_of(names)))


def _open_scope(scope: str, tx: Tx) -> None:
    limits = [read_limit(row) for row in tx.execute(SQL["limits"]).fetchall()]
    name = scope_gate(scope)
    declared = any(scope in limit.scopes for limit in limits)
    if not declared and finish.read_gate(tx, name) == OPEN:
        raise NotFound(f"no task declares the scope {scope!r}")
    finish.write_gate(tx, name, OPEN)
    tx.operate()


def _look(execute: Execute, name: str, tag: int) -> Lot:
    if name.startswith(LANE):
        seated = execute(SQL["seated"], (name,)).fetchone()
        first = seated or execute(SQL["oldest_of_lane"], (name,)).fetchone()
        job_id = None if first is None else ids.job_id(first[0], first[1], tag)
        return Lot(name=name, taken=0 if seated is None else 1, most=1, first=job_id)
    if "/" in name:
        most = lots.key_most(execute, name)
        (taken,) = execute(SQL["taken"], (name, UNBOUNDED)).fetchone()
        return Lot(name=name, taken=taken, most=None if most == UNBOUNDED else most)
    found = execute(SQL["limit"], (name,)).fetchone()
    sort, _, subject = name.partition(":")
    statement = "running_of_queue" if sort == "queue" else "running_of_kind"
    (taken,) = execute(SQL[statement], (subject,)).fetchone()
    return Lot(name=name, taken=taken, most=None if found is None else read_limit(found).cap)


def _lots(after: str, limit: int, connection: sqlite3.Connection) -> list[str]:
    (names,) = connection.execute(SQL["lots"], (after, limit)).fetchone()
    return _names_of(names)


def _admit(names: Sequence[str], tx: Tx) -> int:
    return sum(lots.admit(tx, lot) for lot in names)
