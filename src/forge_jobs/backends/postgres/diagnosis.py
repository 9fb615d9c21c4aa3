"""Examines a Postgres server for ``forge doctor``: each finding comes with a remedy.

Only reads, on a separate connection, so that it works while the pool does not.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs.core.errors import ForgeError, ServerTooOld
from forge_jobs.core.instant import SECOND
from forge_jobs.store.store import Finding, Severity

from . import sql_files
from .connection import error_mapping
from .connection.driver import Driver, Row, Transaction
from .connection.pool import MAX_POOL_SIZE
from .connection.server import Server
from .notify.listener import POLL_S

MAX_CONNECTIONS: Final = MAX_POOL_SIZE + 1
_SNAPSHOT_WARN_S: Final = 60.0
_MAX_DEAD_SHARE: Final = 0.2
_MIN_DEAD_ROWS: Final = 10_000
_SKEW_WARN_S: Final = 5.0
_MAX_USED_SHARE: Final = 0.9
_OK, _WARNING, _ERROR = Severity.OK, Severity.WARNING, Severity.ERROR


class Examination:
    """One examination. ``notify_round_trip`` measures how long a notification takes; None: it did
    not arrive."""

    def __init__(
        self, server: Server, notify_round_trip: Callable[[], Awaitable[float | None]]
    ) -> None:
        self._server = server
        self._notify_round_trip = notify_round_trip
        self._sql = sql_files.statements("maintenance", server.address.schema)

    async def run(self) -> list[Finding]:
        try:
            driver = await self._server.connect(pooled=True)
        except ServerTooOld as error:
            cure = f"upgrade the server to Postgres {error.oldest} or newer"
            return [Finding(_ERROR, "server", f"Postgres {error.version} is too old", cure)]
        except ForgeError as error:
            return [Finding(_ERROR, "server", str(error), "see the message")]
        try:
            # Behind a pooler only a transaction stays on one server process.
            transaction = Transaction(driver, pooled=True)
            await transaction.start()
            before = self._server.clock.now()
            [facts] = await driver.fetch(self._sql["facts"])
            after = self._server.clock.now()
            pooled = facts["pid"] != driver.get_server_pid()
            findings = [
                Finding(_OK, "server", f"Postgres {facts['version']}"),
                *_durability(facts),
                _clock((facts["now"] - (before + after) / 2) / SECOND),
                await self._rights(driver),
                await self._connections(driver, facts["ours"]),
                await self._snapshot(driver),
                *await self._dead_rows(driver),
            ]
            await transaction.rollback()
        except Exception as error:
            mapped = error_mapping.translated(
                error, location=self._server.address.location, may_have_committed=False
            )
            return [Finding(_ERROR, "server", str(mapped), "see the message")]
        finally:
            driver.terminate()
        findings.append(await self._notifications(pooled))
        return findings

    async def _rights(self, driver: Driver) -> Finding:
        schema = self._server.address.schema
        [row] = await driver.fetch(self._sql["rights"], schema)
        name = row["name"]
        if row["read_only"] == "on":
            return Finding(
                _ERROR, "rights", f"transactions of user {name} are read-only",
                "give the address of the primary, and a user that may write",
            )  # fmt: skip
        if not row["enters"] or not row["writes"]:
            return Finding(
                _ERROR, "rights", f"user {name} may not write to schema {schema}",
                f"GRANT ALL ON SCHEMA {schema} TO {name}, and on all tables, sequences and "
                "functions in it; or use its owner",
            )  # fmt: skip
        if not row["creates"]:
            return Finding(
                _ERROR, "rights", f"user {name} may not create schema {schema}",
                f"let the database's owner run CREATE SCHEMA {schema} AUTHORIZATION {name}",
            )  # fmt: skip
        return Finding(_OK, "rights", f"user {name} may write to schema {schema}")

    async def _connections(self, driver: Driver, ours: bool) -> Finding:
        [row] = await driver.fetch(self._sql["connection_count"])
        workers = (await driver.fetch(self._sql["workers"]))[0]["count"] if ours else 0
        used, allowed = row["used"], row["max_connections"]
        text = (
            f"{used} of {allowed} connections in use; a process needs up to {MAX_CONNECTIONS}, "
            f"{workers} workers up to {workers * MAX_CONNECTIONS}"
        )
        if max(used, workers * MAX_CONNECTIONS) + MAX_CONNECTIONS > allowed * _MAX_USED_SHARE:
            return Finding(
                _WARNING, "connections", text,
                "raise max_connections, or put a pooler in transaction mode in between",
            )  # fmt: skip
        return Finding(_OK, "connections", text)

    async def _snapshot(self, driver: Driver) -> Finding:
        found = await driver.fetch(self._sql["oldest_snapshot"])
        if found and found[0]["age_s"] >= _SNAPSHOT_WARN_S:
            row = found[0]
            text = (
                f"{row['holder']} has held a snapshot for {row['age_s']:,.0f} s: dead rows pile up"
            )
            return Finding(_WARNING, "snapshots", text, row["cure"])
        [hidden] = await driver.fetch(self._sql["hidden_sessions"])
        if hidden["count"]:
            return Finding(
                _OK, "snapshots",
                f"no old one is visible, but {hidden['count']} sessions of "
                "other users are hidden (GRANT pg_read_all_stats shows them)",
            )  # fmt: skip
        return Finding(_OK, "snapshots", "no session keeps vacuum from cleaning up")

    async def _dead_rows(self, driver: Driver) -> list[Finding]:
        found = await driver.fetch(self._sql["dead_rows"])
        if not found:
            return []
        schema = self._server.address.schema
        findings: list[Finding] = []
        if found[0]["autovacuum"] != "on":
            findings.append(
                Finding(_WARNING, "autovacuum", "it is off: dead rows pile up", "autovacuum = on")
            )
        for row in found:
            if row["dead"] > _MIN_DEAD_ROWS and row["dead"] > row["live"] * _MAX_DEAD_SHARE:
                cleaned = "never" if row["vacuum_s"] is None else f"{row['vacuum_s']:,.0f} s ago"
                text = (
                    f"{row['name']}: {row['dead']:,} dead rows beside {row['live']:,} live ones, "
                    f"cleaned {cleaned}"
                )
                cure = f"VACUUM {schema}.{row['name']}; if it does not help, see snapshots"
                findings.append(Finding(_WARNING, "bloat", text, cure))
        if findings:
            return findings
        dead, live = sum(row["dead"] for row in found), sum(row["live"] for row in found)
        return [Finding(_OK, "bloat", f"{dead:,} dead rows beside {live:,} live ones")]

    async def _notifications(self, pooled: bool) -> Finding:
        try:
            took_s = await self._notify_round_trip()
        except ForgeError as error:
            return Finding(_WARNING, "notifications", str(error), "see the message")
        if took_s is not None:
            return Finding(_OK, "notifications", f"they arrive, after {took_s * 1000:.1f} ms")
        why = "a pooler drops them" if pooled else "they do not arrive"
        return Finding(
            _WARNING, "notifications",
            f"{why}: workers poll {1 / POLL_S:.0f} times a second instead",
            "give the server's own address, percent-encoded, as listen_url",
        )  # fmt: skip


def _durability(facts: Row) -> list[Finding]:
    if facts["fsync"] == "on" and facts["synchronous_commit"] != "off":
        return []
    text = f"fsync {facts['fsync']}, synchronous_commit {facts['synchronous_commit']}"
    return [
        Finding(_WARNING, "durability", f"{text}: a crash may lose accepted jobs", "switch both on")
    ]


def _clock(skew_s: float) -> Finding:
    """Clock skew. Store time is the server's, but users compare it with their own clock."""
    text = f"this machine and the server differ by {abs(skew_s):,.1f} s"
    if abs(skew_s) > _SKEW_WARN_S:
        return Finding(_WARNING, "clock", text, "run a time service (NTP) on both")
    return Finding(_OK, "clock", text)
