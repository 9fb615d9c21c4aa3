"""The limit contract on Postgres: gates, and how full limit buckets are."""

from typing import Final

from forge_jobs.core import ids
from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import LANE
from forge_jobs.core.throttle import Gate
from forge_jobs.store.limits import Admitted, LimitBucket

from . import sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import EVERYBODY, Notifier

# How many pending jobs are checked again in one transaction when a limit changes.
_MAX_MEASURED: Final = 5_000
_LIMIT_S: Final = 60.0


class PostgresLimits:
    """What bounds jobs; see ``forge_jobs.store.limits`` for what each method promises."""

    def __init__(self, server: Server, notifier: Notifier) -> None:
        self._server = server
        self._notifier = notifier
        self._sql = sql_files.statements("limits", server.address.schema)
        self._store_now = sql_files.statements("jobs", server.address.schema)["store_now"]
        self.tag = 0

    async def gates(self) -> dict[str, Gate]:
        found = await self._server.ask(self._sql["gates"], writes=False)
        return {row[0]: Gate(row[1], row[2]) for row in found}

    async def open_gate(self, name: str) -> None:
        async def work(link: Link) -> None:
            await link.fetch(self._sql["open_gate"], name)
            await link.fetch(self._sql["raise_control_version"])

        await self._server.within(work)
        await self._notifier.notify([EVERYBODY])

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
        await self._notifier.notify(row["queues"] or ())
        return Admitted(row["admitted"], row["last"])

    async def reapply(self, name: str) -> None:
        """Apply a changed limit to the jobs of its keys that have not started."""

        # Apart from the change itself: it waits for the locks of limit buckets, and no transaction
        # should wait for the limit's row meanwhile.
        async def measure(link: Link) -> Row:
            now = await self._now(link)
            row = await link.row(self._sql["reapply_limit"], now, name, key, job, _MAX_MEASURED)
            assert row is not None
            return row

        key, job = f"{name}/", 0
        while key is not None:
            row = await self._server.within(measure, limit_s=_LIMIT_S)
            key, job = row["last_key"], row["last_id"]

    async def _now(self, link: Link) -> Instant:
        row = await link.row(self._store_now, self._server.store_clock.bind())
        assert row is not None
        return row["now"]
