"""The contract for settings on Postgres."""

from forge_jobs.core.instant import after
from forge_jobs.core.settings import check_name, check_setting
from forge_jobs.store.settings import Setting

from . import sql_files
from .connection.driver import Row
from .connection.server import Link, Server


class PostgresSettings:
    """Named values; see ``forge_jobs.store.settings`` for what each method promises."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("settings", server.address.schema)

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_name(namespace, name)
        now = self._server.present.bind()
        row = await self._server.ask_row(self._sql["get"], now, namespace, name, writes=False)
        return None if row is None else _setting(row)

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        now = self._server.present.bind()
        [row] = await self._server.ask(
            self._sql["put"], now, namespace, name, value, _length(ttl_s)
        )
        return _setting(row)

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)

        async def work(link: Link) -> Setting:
            now = self._server.present.bind()
            while True:
                row = await link.row(
                    self._sql["put_if_absent"], now, namespace, name, value, _length(ttl_s)
                )
                # What stands was written by somebody else: a new statement sees their commit.
                row = row or await link.row(self._sql["get"], now, namespace, name)
                if row is not None:
                    return _setting(row)
                # It ended or was removed between the two: now the place is free.

        return await self._server.within(work)

    async def delete(self, namespace: str, name: str) -> bool:
        check_name(namespace, name)
        now = self._server.present.bind()
        row = await self._server.ask_row(self._sql["delete"], now, namespace, name)
        return row is not None and row["existed"]

    async def trim(self, namespace: str, *, keep: int) -> int:
        return len(await self._server.ask(self._sql["trim"], namespace, max(keep, 0)))

    async def purge(self, *, limit: int) -> int:
        now = self._server.present.bind()
        return len(await self._server.ask(self._sql["purge"], now, limit))


def _length(ttl_s: float | None) -> int | None:
    return None if ttl_s is None else after(0, ttl_s)


def _setting(row: Row) -> Setting:
    return Setting(name=row["name"], value=row["value"], version=row["version"], until=row["until"])
