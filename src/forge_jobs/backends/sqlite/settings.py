"""The contract for settings on SQLite."""

import sqlite3
from functools import partial
from typing import Any, Final

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.instant import after
from forge_jobs.core.settings import check_name, check_setting
from forge_jobs.kit.clock import Clock
from forge_jobs.store.settings import Setting

from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "settings.sql")


class SqliteSettings:
    """Named values; see ``forge_jobs.store.settings`` for what each method promises."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_name(namespace, name)
        place = (namespace, name, self._clock.now())

        def look(connection: sqlite3.Connection) -> Setting | None:
            return _setting(connection.execute(SQL["get"], place).fetchone())

        return await self._reader.call(look)

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        return await self._writer.call(partial(_put, namespace, name, value, ttl_s), durable=True)

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)

        def put(tx: Tx) -> Setting:
            standing = _setting(tx.row(SQL["get"], (namespace, name, tx.now)))
            return standing or _put(namespace, name, value, ttl_s, tx)

        return await self._writer.call(put, durable=True)

    async def delete(self, namespace: str, name: str) -> bool:
        check_name(namespace, name)

        def delete(tx: Tx) -> bool:
            stood = tx.row(SQL["get"], (namespace, name, tx.now)) is not None
            tx.execute(SQL["delete"], (namespace, name))
            return stood

        return await self._writer.call(delete, durable=True)

    async def trim(self, namespace: str, *, keep: int) -> int:
        values = (namespace, max(keep, 0))
        return await self._writer.call(lambda tx: tx.execute(SQL["trim"], values).rowcount)

    async def purge(self, *, limit: int) -> int:
        return await self._writer.call(
            lambda tx: tx.execute(SQL["purge"], (tx.now, limit)).rowcount
        )


def _put(namespace: str, name: str, value: bytes, ttl_s: float | None, tx: Tx) -> Setting:
    until = None if ttl_s is None else after(tx.now, ttl_s)
    tx.execute(SQL["put"], (namespace, name, value, until))
    kept = _setting(tx.row(SQL["get"], (namespace, name, tx.now)))
    assert kept is not None
    return kept


def _setting(row: tuple[Any, ...] | None) -> Setting | None:
    if row is None:
        return None
    name, value, version, until = row
    return Setting(name=name, value=value, version=version, until=until)
