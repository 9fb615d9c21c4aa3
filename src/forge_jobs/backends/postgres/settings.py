"""The settings contract on Postgres: typed settings in their tables, the others in one table."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.backends.shared.setting_tables import TABLES, SettingTable, check_key, parse
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import Instant, after
from forge_jobs.store.settings import LIMIT, STEERING, Change, Setting

from . import sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .limits import PostgresLimits
from .notify.notifier import EVERYBODY, Notifier


class _ChangeFailed(ForgeError):
    """Carries the exception of a change past the mapping of the driver's errors."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class PostgresSettings:
    """Named values; see ``forge_jobs.store.settings`` for what each method promises."""

    def __init__(self, server: Server, notifier: Notifier, limits: PostgresLimits) -> None:
        self._server = server
        self._notifier = notifier
        self._limits = limits
        schema = server.address.schema
        self._sql = sql_files.statements("settings", schema)
        self._typed_sql = {
            namespace: _statements(table, schema) for namespace, table in TABLES.items()
        }

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_key(namespace, name)
        if namespace in TABLES:
            statement = self._typed_sql[namespace]["get"]
            row = await self._server.ask_row(statement, name, writes=False)
        else:
            now = self._server.store_clock.bind()
            row = await self._server.ask_row(self._sql["get"], now, namespace, name, writes=False)
        return None if row is None else _setting(namespace, row)

    async def all(self, namespace: str) -> list[Setting]:
        if namespace in TABLES:
            rows = await self._server.ask(self._typed_sql[namespace]["all"], writes=False)
        else:
            now = self._server.store_clock.bind()
            rows = await self._server.ask(self._sql["all"], now, namespace, writes=False)
        return [_setting(namespace, row) for row in rows]

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        if namespace in TABLES:
            setting = (await self.update(namespace, {name: lambda _, __: value}, ttl_s=ttl_s))[name]
            assert setting is not None
            return setting
        parse(namespace, name, value, ttl_s)
        now = self._server.store_clock.bind()
        [row] = await self._server.ask(
            self._sql["put"], now, namespace, name, value, _length(ttl_s)
        )
        return _setting(namespace, row)

    async def update(
        self, namespace: str, changes: Mapping[str, Change], *, ttl_s: float | None = None
    ) -> dict[str, Setting | None]:
        for name in changes:
            check_key(namespace, name)

        async def work(link: Link) -> tuple[dict[str, Setting | None], list[str]]:
            settings: dict[str, Setting | None] = {}
            # In the order of their names, like every transaction that locks limits.
            names, written = sorted(changes), list[str]()
            while names:
                rows = await self._lock(link, namespace, names)
                now = await self._now(link)
                for name in names:
                    row = rows.get(name)
                    current = None if row is None else _unexpired(_setting(namespace, row), now)
                    value = _call(changes[name], current, now)
                    if value is None:
                        settings[name] = current
                    elif setting := await self._write(
                        link, namespace, name, value, ttl_s, locked=row is not None
                    ):
                        settings[name] = setting
                        written.append(name)
                # Those that others inserted meanwhile: the next statements see their commit.
                names = [name for name in names if name not in settings]
            if written and namespace in STEERING:
                await link.fetch(self._sql["raise_control_version"])
            return settings, written

        try:
            settings, written = await self._server.within(work)
        except _ChangeFailed as failed:
            raise failed.error from None
        for name in written if namespace == LIMIT else ():
            await self._limits.reapply(name)
        await self._notify(namespace, changed=bool(written))
        return settings

    async def delete(self, namespace: str, name: str) -> bool:
        check_key(namespace, name)
        if namespace not in TABLES:
            now = self._server.store_clock.bind()
            row = await self._server.ask_row(self._sql["delete"], now, namespace, name)
            return row is not None and row["existed"]
        statements = self._typed_sql[namespace]

        async def work(link: Link) -> bool:
            existed = await link.fetch(f"{statements['delete']} RETURNING 1", name)
            if "delete_owned" in statements:
                await link.fetch(statements["delete_owned"], name)
            if existed and namespace in STEERING:
                await link.fetch(self._sql["raise_control_version"])
            return bool(existed)

        existed = await self._server.within(work)
        if existed and namespace == LIMIT:
            await self._limits.reapply(name)
        await self._notify(namespace, changed=existed)
        return existed

    async def trim(self, namespace: str, *, keep: int) -> int:
        return len(await self._server.ask(self._sql["trim"], namespace, max(keep, 0)))

    async def purge(self, *, limit: int) -> int:
        now = self._server.store_clock.bind()
        return len(await self._server.ask(self._sql["purge"], now, limit))

    async def _lock(self, link: Link, namespace: str, names: list[str]) -> dict[str, Row]:
        """The rows of these settings, locked in the order of their names; expired ones too."""
        if namespace in TABLES:
            rows = await link.fetch(self._typed_sql[namespace]["lock"], names)
            return {row[TABLES[namespace].key]: row for row in rows}
        rows = await link.fetch(self._sql["lock"], namespace, names)
        return {row["name"]: row for row in rows}

    async def _now(self, link: Link) -> Instant:
        row = await link.row(self._sql["now"], self._server.store_clock.bind())
        assert row is not None
        return row["now"]

    async def _write(
        self,
        link: Link,
        namespace: str,
        name: str,
        value: bytes,
        ttl_s: float | None,
        *,
        locked: bool,
    ) -> Setting | None:
        """Write a setting. If its row was not ``locked`` it was absent: None, without effect, if
        another transaction has inserted it since."""
        table, parsed = TABLES.get(namespace), parse(namespace, name, value, ttl_s)
        if table is None:
            now = self._server.store_clock.bind()
            statement = self._sql["put" if locked else "insert"]
            row = await link.row(statement, now, namespace, name, value, _length(ttl_s))
            return None if row is None else _setting(namespace, row)
        statement = self._typed_sql[namespace]["put" if locked else "insert"]
        done = await link.fetch(f"{statement} RETURNING 1", *table.values_of(parsed, list))
        return table.setting_of(parsed) if done else None

    async def _notify(self, namespace: str, *, changed: bool) -> None:
        if changed and namespace in STEERING:
            await self._notifier.notify([EVERYBODY])


def _statements(table: SettingTable[Any], schema: str) -> dict[str, str]:
    columns, key = ", ".join(table.columns), table.key
    lock = (
        f"SELECT {columns} FROM {schema}.{table.name} "  # noqa: S608 - our own, checked names
        f"WHERE {key} = ANY ($1::text[]) ORDER BY {key} FOR UPDATE"
    )
    return {**table.statements(f"{schema}.", "$n"), "lock": lock}


def _call(change: Change, current: Setting | None, now: Instant) -> bytes | None:
    try:
        return change(current, now)
    except Exception as error:
        raise _ChangeFailed(error) from error


def _unexpired(setting: Setting, now: Instant) -> Setting | None:
    return None if setting.until is not None and setting.until <= now else setting


def _length(ttl_s: float | None) -> int | None:
    return None if ttl_s is None else after(0, ttl_s)


def _setting(namespace: str, row: Row) -> Setting:
    table = TABLES.get(namespace)
    if table is not None:
        return table.setting_of(table.struct_of(row))
    return Setting(name=row["name"], value=row["value"], version=row["version"], until=row["until"])
