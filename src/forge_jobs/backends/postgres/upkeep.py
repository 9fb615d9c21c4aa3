"""Looking after the database: what ``forge db`` and ``forge doctor`` ask for."""

from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import SECOND
from forge_jobs.store.bundle import Finding, SchemaStatus, Severity

from . import faults, schema, sqlfiles
from .driver import Driver
from .pool import MOST
from .session import Server

CONNECTIONS_MOST: Final = MOST + 1
_SNAPSHOT_WARN_S: Final = 60.0
_DEAD_WARN: Final = 0.2
_DEAD_MATTER: Final = 10_000
_SKEW_WARN_S: Final = 5.0


class PostgresUpkeep:
    """None of this needs a prior ``open``."""

    def __init__(
        self,
        server: Server,
        close: Callable[[], Awaitable[None]],
        hearing: Callable[[], Awaitable[bool]],
    ) -> None:
        self._server = server
        self._close = close
        self._hearing = hearing
        self._sql = sqlfiles.statements("upkeep", server.address.schema)

    async def migrate(self) -> SchemaStatus:
        await schema.create_database(self._server)
        return (await schema.migrate(self._server)).status

    async def schema_status(self) -> SchemaStatus:
        return await schema.status(self._server)

    async def drop(self) -> None:
        await self._close()
        await schema.drop(self._server)

    async def examine(self) -> list[Finding]:
        try:
            driver = await self._server.connect(pooled=True)
        except ForgeError as error:
            return [Finding(Severity.ERROR, "server", str(error), "see the message")]
        try:
            transaction = driver.transaction()
            await transaction.start()
            findings = [
                *await self._facts(driver),
                await self._room(driver),
                await self._snapshot(driver),
                *await self._dead(driver),
            ]
            await transaction.rollback()
        except Exception as error:
            meant = faults.meaning(error, place=self._server.address.place, exposed=False)
            return [Finding(Severity.ERROR, "server", str(meant), "see the message")]
        finally:
            driver.terminate()
        findings.append(await self._notifications())
        return findings

    def describe(self) -> dict[str, str]:
        address = self._server.address
        return {"backend": "postgres", "place": address.place, "namespace": address.schema}

    async def _facts(self, driver: Driver) -> list[Finding]:
        [row] = await driver.fetch(self._sql["facts"])
        version = driver.get_server_version()[0]
        findings = [Finding(Severity.OK, "server", f"Postgres {row['version']}")]
        if version < faults.OLDEST_SERVER:
            findings = [
                Finding(
                    Severity.ERROR, "server", f"Postgres {row['version']} is too old",
                    f"use Postgres {faults.OLDEST_SERVER} or newer",
                )
            ]  # fmt: skip
        if row["fsync"] != "on" or row["synchronous_commit"] == "off":
            text = f"fsync {row['fsync']}, synchronous_commit {row['synchronous_commit']}"
            findings.append(
                Finding(
                    Severity.WARNING, "durability", f"{text}: a crash may lose accepted jobs",
                    "switch both on",
                )
            )  # fmt: skip
        skew_s = abs(row["now"] - self._server.clock.now()) / SECOND
        if skew_s > _SKEW_WARN_S:
            findings.append(
                Finding(
                    Severity.WARNING, "clock",
                    f"this machine and the server differ by {skew_s:.0f} s",
                    "run a time service (NTP) on both",
                )
            )  # fmt: skip
        return findings

    async def _room(self, driver: Driver) -> Finding:
        [row] = await driver.fetch(self._sql["room"])
        used, most = row["used"], row["most"]
        text = f"{used} of {most} connections in use, a process needs up to {CONNECTIONS_MOST}"
        if used + CONNECTIONS_MOST > most * 0.9:
            return Finding(
                Severity.WARNING, "connections", text,
                "raise max_connections, or put a pooler in transaction mode in between",
            )  # fmt: skip
        return Finding(Severity.OK, "connections", text)

    async def _snapshot(self, driver: Driver) -> Finding:
        found = await driver.fetch(self._sql["oldest_snapshot"])
        if not found or found[0]["age_s"] < _SNAPSHOT_WARN_S:
            return Finding(Severity.OK, "snapshots", "nobody keeps vacuum from cleaning up")
        row = found[0]
        text = (
            f"process {row['pid']} of user {row['usename']} ({row['state']}) has held a snapshot "
            f"for {row['age_s']:.0f} s: dead rows pile up"
        )
        cure = f"end that transaction, if need be with SELECT pg_terminate_backend({row['pid']})"
        return Finding(Severity.WARNING, "snapshots", text, cure)

    async def _dead(self, driver: Driver) -> list[Finding]:
        found = await driver.fetch(self._sql["dead_rows"])
        if not found:
            return []
        live, dead = found[0]["live"], found[0]["dead"]
        text = f"{dead:,} dead rows beside {live:,} live ones"
        if dead > _DEAD_MATTER and dead > live * _DEAD_WARN:
            schema_name = self._server.address.schema
            return [
                Finding(
                    Severity.WARNING, "bloat", text, f"VACUUM {schema_name}.jobs; see snapshots"
                )
            ]
        return [Finding(Severity.OK, "bloat", text)]

    async def _notifications(self) -> Finding:
        try:
            heard = await self._hearing()
        except ForgeError as error:
            return Finding(Severity.WARNING, "notifications", str(error), "see the message")
        if heard:
            return Finding(Severity.OK, "notifications", "they arrive")
        return Finding(
            Severity.WARNING, "notifications", "they do not arrive: workers poll instead",
            "a pooler in transaction mode drops them: give the server's own address as listen_url",
        )  # fmt: skip
