"""The settings contract on SQLite: typed settings in their tables, the others in one table."""

import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.backends.shared.setting_tables import TABLES, check_key, parse
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.instant import Instant, after
from forge_jobs.kit.clock import Clock
from forge_jobs.store.settings import LIMIT, STEERING, Change, Setting

from .counters import Execute
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .limits import Position, recheck

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "settings.sql")
_TYPED_SQL: Final = {
    namespace: table.statements("forge_", "?") for namespace, table in TABLES.items()
}


class SqliteSettings:
    """Stores named values; see ``forge_jobs.store.settings`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_key(namespace, name)
        now = self._clock.now()
        return await self._reader.call(
            lambda connection: _read(connection.execute, namespace, name, now)
        )

    async def all(self, namespace: str) -> list[Setting]:
        now = self._clock.now()

        def query(connection: sqlite3.Connection) -> list[Setting]:
            table = TABLES.get(namespace)
            if table is None:
                rows = connection.execute(SQL["all"], (namespace, now)).fetchall()
                return [_setting(row) for row in rows]
            rows = connection.execute(_TYPED_SQL[namespace]["all"]).fetchall()
            return [table.setting_of(table.struct_of(row)) for row in rows]

        return await self._reader.call(query)

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        parse(namespace, name, value, ttl_s)
        setting = (await self.update(namespace, {name: lambda _, __: value}, ttl_s=ttl_s))[name]
        assert setting is not None
        return setting

    async def update(
        self, namespace: str, changes: Mapping[str, Change], *, ttl_s: float | None = None
    ) -> dict[str, Setting | None]:
        for name in changes:
            check_key(namespace, name)
        unfinished: dict[str, Position] = {}

        def update(tx: Tx) -> dict[str, Setting | None]:
            settings: dict[str, Setting | None] = {}
            unfinished.clear()
            for name, change in changes.items():
                settings[name] = current = _read(tx.execute, namespace, name, tx.now)
                value = change(current, tx.now)
                if value is None:
                    continue
                parsed = parse(namespace, name, value, ttl_s)
                settings[name] = _write(tx, namespace, name, parsed, ttl_s)
                if namespace == LIMIT and (position := recheck(name, None, tx)):
                    unfinished[name] = position
            return settings

        settings = await self._writer.call(update, durable=namespace not in TABLES)
        for name, first in unfinished.items():
            position: Position | None = first
            while position is not None:
                position = await self._writer.call(partial(recheck, name, position))
        return settings

    async def delete(self, namespace: str, name: str) -> bool:
        check_key(namespace, name)

        def delete(tx: Tx) -> bool:
            existed = _read(tx.execute, namespace, name, tx.now) is not None
            if namespace in TABLES:
                statements = _TYPED_SQL[namespace]
                tx.execute(statements["delete"], (name,))
                if "delete_owned" in statements:
                    tx.execute(statements["delete_owned"], (name,))
            else:
                tx.execute(SQL["delete"], (namespace, name))
            if existed and namespace in STEERING:
                tx.raise_control_version()
            return existed

        existed = await self._writer.call(delete, durable=namespace not in TABLES)
        if existed and namespace == LIMIT:
            position = await self._writer.call(partial(recheck, name, None))
            while position is not None:
                position = await self._writer.call(partial(recheck, name, position))
        return existed

    async def trim(self, namespace: str, *, keep: int) -> int:
        values = (namespace, max(keep, 0))
        return await self._writer.call(lambda tx: tx.execute(SQL["trim"], values).rowcount)

    async def purge(self, *, limit: int) -> int:
        return await self._writer.call(
            lambda tx: tx.execute(SQL["purge"], (tx.now, limit)).rowcount
        )


def read_typed(execute: Execute, namespace: str, name: str) -> Any:
    """The struct of a typed setting; None without one."""
    row = execute(_TYPED_SQL[namespace]["get"], (name,)).fetchone()
    return None if row is None else TABLES[namespace].struct_of(row)


def write_typed(tx: Tx, namespace: str, struct: Struct) -> None:
    """Insert or replace a typed setting."""
    values = TABLES[namespace].values_of(struct, lambda items: msgspec.json.encode(items).decode())
    tx.execute(_TYPED_SQL[namespace]["put"], values)


def _read(execute: Execute, namespace: str, name: str, now: Instant) -> Setting | None:
    if namespace in TABLES:
        struct = read_typed(execute, namespace, name)
        return None if struct is None else TABLES[namespace].setting_of(struct)
    row = execute(SQL["get"], (namespace, name, now)).fetchone()
    return None if row is None else _setting(row)


def _write(tx: Tx, namespace: str, name: str, parsed: Any, ttl_s: float | None) -> Setting:
    if namespace in STEERING:
        tx.raise_control_version()
    table = TABLES.get(namespace)
    if table is not None:
        write_typed(tx, namespace, parsed)
        return table.setting_of(parsed)
    until = None if ttl_s is None else after(tx.now, ttl_s)
    tx.execute(SQL["put"], (namespace, name, parsed, until))
    return _setting(tx.row(SQL["get"], (namespace, name, tx.now)))


def _setting(row: tuple[Any, ...]) -> Setting:
    name, value, version, until = row
    return Setting(name=name, value=value, version=version, until=until)
