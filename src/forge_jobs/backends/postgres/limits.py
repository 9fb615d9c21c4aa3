"""The contract for limits on Postgres: their numbers, scopes, and how full lots are."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from forge_jobs.core import ids
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import (
    LANE,
    SCOPE,
    Declared,
    Limit,
    refilled,
    scope_gate,
    with_declared,
    with_operator_change,
)
from forge_jobs.core.throttle import Gate
from forge_jobs.store.limits import Admitted, LimitBucket, LimitChange

from . import sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import EVERYBODY, Notifier

# How many jobs in line are measured anew in one transaction when a limit changes.
_MAX_MEASURED: Final = 5_000
_LIMIT_S: Final = 60.0


class PostgresLimits:
    """What bounds jobs; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, server: Server, bell: Notifier) -> None:
        self._server = server
        self._bell = bell
        self._sql = sql_files.statements("limits", server.address.schema)
        self._present = sql_files.statements("jobs", server.address.schema)["store_now"]
        self.tag = 0

    async def publish(self, declared: Sequence[Declared]) -> None:
        now = self._server.present.bind()
        found = await self._server.ask(self._sql["all"], now, writes=False)
        known = {row["name"]: _limit(row) for row in found}
        fresh = [
            told
            for told in declared
            if with_declared(known.get(told.name), told, 0) != known.get(told.name)
        ]
        # In the order of their names, as all who lock limits do.
        for told in sorted(fresh, key=lambda told: told.name):
            await self._put(told.name, lambda limit, at, told=told: with_declared(limit, told, at))

    async def all(self) -> list[Limit]:
        now = self._server.present.bind()
        found = await self._server.ask(self._sql["all"], now, writes=False)
        return [refilled(_limit(row), row["now"]) for row in found]

    async def change(self, name: str, change: LimitChange) -> Limit:
        asked = structs.asdict(change)
        return await self._put(name, lambda limit, at: with_operator_change(limit, name, asked, at))

    async def reset(self, name: str) -> None:
        def changed(limit: Limit | None, at: Instant) -> Limit:
            if limit is None:
                raise NotFound(f"there is no limit {name!r}")
            return structs.replace(limit, by_operator=False, updated_at=at)

        await self._put(name, changed)

    async def gates(self) -> dict[str, Gate]:
        found = await self._server.ask(self._sql["scope_gates"], writes=False)
        return {row[0].removeprefix(SCOPE): Gate(row[1], row[2]) for row in found}

    async def open_scope(self, scope: str) -> None:
        async def work(link: Link) -> None:
            opened = await link.fetch(self._sql["open_scope"], scope_gate(scope))
            [row] = await link.fetch(self._sql["scope_is_declared"], scope)
            if not opened and not row["known"]:
                raise NotFound(f"no task declares the scope {scope!r}")
            await link.fetch(self._sql["raise_control_version"])

        await self._server.within(work)
        await self._bell.notify([EVERYBODY])

    async def bucket(self, name: str) -> LimitBucket:
        if name.startswith(LANE):
            queue, _, lane = name.removeprefix(LANE).partition("/")
            found = await self._server.ask(self._sql["lane"], queue, lane, writes=False)
            first = found[0] if found else None
            job_id = None if first is None else ids.job_id(first[0], first[1], self.tag)
            taken = 1 if first is not None and first["occupies_lane"] else 0
            return LimitBucket(name=name, taken=taken, capacity=1, first=job_id)
        statement = self._sql["limit_key" if "/" in name else "running"]
        [row] = await self._server.ask(statement, name, writes=False)
        return LimitBucket(name=name, taken=row["taken"], capacity=row["max_running"])

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        async def work(link: Link) -> Row:
            now = await self._now(link)
            row = await link.row(self._sql["sweep_buckets"], now, after or "", max(limit, 1))
            assert row is not None
            return row

        row = await self._server.within(work, limit_s=_LIMIT_S)
        await self._bell.notify(row["queues"] or ())
        return Admitted(row["admitted"], row["last"])

    async def _put(self, name: str, changed: Callable[[Limit | None, Instant], Limit]) -> Limit:
        async def work(link: Link) -> Limit:
            now = await self._now(link)
            row = await link.row(self._sql["lock"], name)
            limit = changed(None if row is None else _limit(row), now)
            await link.fetch(
                self._sql["put"], limit.name, limit.concurrency, limit.per, limit.rate_per_s,
                limit.burst, list(limit.scopes), limit.tokens, limit.at, limit.by_operator,
                limit.updated_at,
            )  # fmt: skip
            await link.fetch(self._sql["raise_control_version"])
            return limit

        async def measure(link: Link) -> Row:
            now = await self._now(link)
            row = await link.row(self._sql["reapply_limit"], now, name, key, job, _MAX_MEASURED)
            assert row is not None
            return row

        limit = await self._server.within(work)
        # Apart from the change itself: it waits for the locks of lots, and nobody should wait for
        # the limit's row meanwhile.
        key, job = f"{name}/", 0
        while key is not None:
            row = await self._server.within(measure, limit_s=_LIMIT_S)
            key, job = row["last_key"], row["last_id"]
        await self._bell.notify([EVERYBODY])
        return limit

    async def _now(self, link: Link) -> Instant:
        row = await link.row(self._present, self._server.present.bind())
        assert row is not None
        return row["now"]


def _limit(row: Row) -> Limit:
    return Limit(
        name=row["name"],
        concurrency=row["concurrency"],
        per=row["per"],
        rate_per_s=row["rate_per_s"],
        burst=row["burst"],
        scopes=tuple(row["scopes"]),
        tokens=row["tokens"],
        at=row["at"],
        by_operator=row["by_operator"],
        updated_at=row["updated_at"],
    )
