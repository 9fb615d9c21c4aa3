"""The findings of ``forge doctor`` on a Postgres server, with their remedies."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres import diagnosis
from forge_jobs.backends.postgres.connection import error_mapping
from forge_jobs.backends.postgres.notify import listener
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import Finding, Severity
from forge_jobs.testing.clock import MovableClock

from .counters import handed_over
from .pooler import transaction_pooler
from .proxy import faulty_proxy
from .server import PrivateServer


@pytest.fixture
def schema(postgres: PrivateServer) -> Iterator[str]:
    """A new schema: those of earlier tests hold dead rows."""
    yield "examined"
    postgres.sql("DROP SCHEMA IF EXISTS examined CASCADE")


async def found(store: PostgresStore) -> dict[str, Finding]:
    return {finding.subject: finding for finding in await store.maintenance.examine()}


@asynccontextmanager
async def visitor(server: PrivateServer) -> AsyncIterator[Any]:
    """A connection of another program."""
    connection = await asyncpg.connect(server.url(), server_settings={"application_name": "report"})
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_healthy_server(store: PostgresStore) -> None:
    findings = await found(store)
    fine = {"server", "clock", "rights", "connections", "snapshots", "bloat", "notifications"}
    assert {name for name, one in findings.items() if one.severity is Severity.OK} == fine
    assert findings["notifications"].message.startswith("they arrive, after ")
    # The tests' own server runs without fsync, which no other server should do.
    assert set(findings) - fine == {"durability"}
    assert "fsync off" in findings["durability"].message
    assert findings["durability"].cure


async def test_an_old_server(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_mapping, "OLDEST_SERVER", 99)
    finding = (await found(store))["server"]
    assert finding.severity is Severity.ERROR
    assert finding.cure == "upgrade the server to Postgres 99 or newer"


@pytest.mark.parametrize("write", [False, True])
async def test_a_session_that_holds_an_old_snapshot_is_named(
    store: PostgresStore, postgres: PrivateServer, write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_SNAPSHOT_WARN_S", 1.0)
    async with visitor(postgres) as other:
        async with other.transaction(isolation=None if write else "repeatable_read"):
            # A reader holds its snapshot; a writer that idles holds its transaction id.
            await other.fetch("SELECT pg_current_xact_id()" if write else "SELECT 1")
            await asyncio.sleep(1.1)
            finding = (await found(store))["snapshots"]
        pid = other.get_server_pid()
    assert finding.severity is Severity.WARNING
    assert f"process {pid} of user postgres (report), idle in transaction has" in finding.message
    assert f"pg_terminate_backend({pid})" in finding.cure
    assert (await found(store))["snapshots"].severity is Severity.OK


async def test_dead_rows(
    store: PostgresStore, schema: str, postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_MIN_DEAD_ROWS", 100)
    postgres.sql(f"ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)")
    await store.jobs.enqueue([NewJob(kind="work", queue="q")] * 500)
    async with visitor(postgres) as other:
        await other.execute(f"UPDATE {schema}.jobs SET priority = 1")
        await handed_over(other.fetch)
    finding = (await found(store))["bloat"]
    postgres.sql(f"ALTER TABLE {schema}.jobs RESET (autovacuum_enabled)")
    assert finding.severity is Severity.WARNING
    assert re.match(r"jobs: [5-9]\d\d dead rows beside", finding.message)
    assert f"VACUUM {schema}.jobs" in finding.cure


async def test_few_connections_left(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(12):
        me = NewProcess(host_id=f"h{n}", label="l", queues=("q",), pid=n, hostname="b")
        await store.processes.register(me)
    finding = (await found(store))["connections"]
    assert "12 workers up to 48" in finding.message
    assert finding.severity is Severity.WARNING
    assert "max_connections" in finding.cure


async def test_clocks_that_differ(url: str) -> None:
    store = PostgresStore(url, MovableClock())
    await store.open()
    finding = (await found(store))["clock"]
    await store.close()
    assert finding.severity is Severity.WARNING
    assert "NTP" in finding.cure


async def test_a_pooler_that_drops_notifications(
    store: PostgresStore, schema: str, postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_S", 1.0)
    with transaction_pooler(postgres.folder) as folder:
        pooled = PostgresStore(f"postgresql://postgres@/postgres?host={folder}&schema={schema}")
        finding = (await found(pooled))["notifications"]
    assert finding.severity is Severity.WARNING
    assert finding.message == "a pooler drops them: workers poll 4 times a second instead"
    assert "listen_url" in finding.cure


async def test_notifications_that_do_not_arrive(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PROBE_S", 1.0)
    async with faulty_proxy(url) as (proxy, through):
        proxy.deaf = True
        finding = (await found(PostgresStore(through)))["notifications"]
    assert finding.message.startswith("they do not arrive")


async def test_no_server_at_all() -> None:
    store = PostgresStore("postgresql://me:geheim@127.0.0.1:1/shop")
    [finding] = await store.maintenance.examine()
    assert (finding.severity, finding.subject) == (Severity.ERROR, "server")
    assert "geheim" not in finding.message


async def test_repeated_examinations_of_a_live_page_commit_nothing(store: PostgresStore) -> None:
    """A live page refreshes after each commit: a commit of its own would refresh it for ever."""
    first = {one.subject: one for one in await store.maintenance.examine(deep=False)}
    before = await store.metrics.stamp()
    for _ in range(3):
        seen = {one.subject: one for one in await store.maintenance.examine(deep=False)}
        assert seen["notifications"] == first["notifications"]
    assert await store.metrics.stamp() == before
    await store.maintenance.examine()
    assert await store.metrics.stamp() != before
