"""Query plans: no page and no GET route scans the jobs table, on SQLite and on Postgres.

Every page and route is requested with every filter, and the plan of each statement is checked. The
tables are large and analysed, so that the planner has no reason for a sequential scan.
``tests/postgres/test_plans.py`` counts how much is read through indexes.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from benchmarks.systems import crowd, forge_pages, forge_rows
from forge_jobs.backends.postgres.connection import server
from forge_jobs.backends.sqlite.io import reader
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.web import Role
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import openapi_path
from forge_jobs.web.pages.all import PAGES
from tests.postgres.schemas import Schemas
from tests.postgres.server import PrivateServer
from tests.web.harness import WebHarness, web_harness

ROWS = 60_000
MINUTES = 30
BY_INDEX = "SET LOCAL enable_seqscan = off"
WRITES = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
SCAN = re.compile(r"SCAN (forge_jobs|j|y)\b(?!.* (INDEX|KEY))")


async def visit_all(harness: WebHarness) -> dict[str, int]:
    """Request every page and GET route with every filter; the status by path."""
    store = await harness.forge.aready()
    found = [await store.jobs.page(Filter(statuses=(one,)), limit=1) for one in JobStatus]
    jobs = [job for page in found for job in page.jobs]
    assert len(jobs) == len(JobStatus)
    middle = max(job.enqueued_at for job in jobs) - 3 * 86_400_000_000
    times = [to_datetime(middle + n * 3_600_000_000).strftime("%Y-%m-%dT%H:%M") for n in (0, 1)]
    paths = forge_pages.addresses([job.id for job in jobs], *times)
    paths += [page.path for page in PAGES] + [
        openapi_path(one) for one in ROUTES if one.method == "GET"
    ]
    paths += [f"/api/jobs?{given}" for given in forge_pages.FILTERS if "=" in given]
    named = {"{id}": jobs[0].id, "{name}": "queue_1", "{kind}": "kind_1", "{action}": "retry"}
    responses: dict[str, int] = {}
    async with harness.client(Role.ADMIN) as client:
        for path in paths:
            for word, value in named.items():
                path = path.replace(word, value)
            responses[path] = (await client.get(path)).status_code
    await harness.app.aclose()
    return responses


def check(responses: dict[str, int]) -> None:
    assert len(responses) > 150
    assert {path for path, status in responses.items() if status >= 500} == set()
    assert sum(status == 200 for status in responses.values()) > 140


# ---------------------------------------------------------------------------------------- SQLite


class SqliteTrace:
    """Records the statements of SQLite readers."""

    def __init__(self) -> None:
        self.statements: dict[str, None] = {}

    def connect(self, *given: Any, **named: Any) -> sqlite3.Connection:
        connection = _connect(*given, **named)
        connection.set_trace_callback(self.statements.setdefault)
        return connection


_connect = reader.connect


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> SqliteTrace:
    found = SqliteTrace()
    monkeypatch.setattr(reader, "connect", found.connect)
    return found


def scans_of(connection: sqlite3.Connection, statements: list[str]) -> list[str]:
    """Plans with a full scan of the jobs."""
    return [
        f"{step[3]}: {text}"
        for text in statements
        for step in connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall()
        if SCAN.match(step[3])
    ]


async def test_on_sqlite_no_statement_of_a_page_scans_the_jobs(
    tmp_path: Path, traced: SqliteTrace
) -> None:
    harness = web_harness(forge_rows.url(tmp_path, "default"))
    await harness.forge.aready()
    crowd.fill_sqlite(tmp_path, ROWS, MINUTES)
    with sqlite3.connect(forge_rows.path_in(tmp_path)) as connection:
        connection.execute("ANALYZE")
    check(await visit_all(harness))
    await harness.forge.aclose()
    asked = [
        text
        for text in traced.statements
        if "forge_jobs" in text and not text.lstrip().upper().startswith(WRITES)
    ]
    assert len(asked) > 100
    assert scans_of(connection, asked) == []
    planted = "SELECT id FROM forge_jobs WHERE kind = 'rare' ORDER BY enqueued_at LIMIT 5"
    assert len(scans_of(connection, [*asked, planted])) == 1
    connection.close()


# -------------------------------------------------------------------------------------- Postgres


class PostgresTrace:
    """Records statements on Postgres, with the arguments of the first call."""

    def __init__(self) -> None:
        self.statements: dict[str, tuple[Any, ...]] = {}

    def recording(self, connect: Any) -> Any:
        async def recorded(*given: Any, **named: Any) -> Any:
            connection = await connect(*given, **named)
            connection.add_query_logger(self._keep)
            return connection

        return recorded

    def _keep(self, record: Any) -> None:
        if record.query.lstrip().upper().startswith(("SELECT", "WITH", "SET LOCAL")):
            self.statements.setdefault(record.query, record.args)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> PostgresTrace:
    found = PostgresTrace()
    monkeypatch.setattr(server.drivers, "connect", found.recording(server.drivers.connect))
    return found


@pytest.fixture
def crowded(postgres: PrivateServer, schemas: Schemas, tmp_path: Path) -> Iterator[str]:
    """A schema with many jobs."""
    name = schemas.take()
    asyncio.run(_migrated(postgres.url(schema=name)))
    (tmp_path / "url").write_text(postgres.url())
    crowd.fill_postgres(tmp_path, ROWS, MINUTES, name)
    postgres.sql(f"VACUUM ANALYZE {name}.jobs", f"VACUUM ANALYZE {name}.history")
    yield name
    postgres.sql(f"TRUNCATE {name}.jobs, {name}.history, {name}.counters, {name}.minutes")
    postgres.sql(f"TRUNCATE {name}.periods, {name}.totals, {name}.tag_days")
    schemas.give_back(name)


async def _migrated(url: str) -> None:
    harness = web_harness(url)
    await harness.forge.aready()
    await harness.forge.aclose()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def seq_scans_of(link: Any, statements: dict[str, tuple[Any, ...]]) -> list[str]:
    """Plans that read all of jobs or history, by a sequential scan or a full index scan."""
    found: list[str] = []
    for text, values in statements.items():
        async with link.transaction():
            if " AS source, " in text:
                # sent in a transaction that begins with it
                await link.execute(BY_INDEX)
            told = await link.fetchval(f"EXPLAIN (FORMAT JSON) {text}", *values)
        plan = json.loads(told)[0]["Plan"]
        limited = {id(inner) for node in nodes(plan) if node["Node Type"] == "Limit"
                   for inner in node["Plans"]}  # fmt: skip
        found += [
            f"{node['Node Type']} {node.get('Index Name', '')}: {text}"
            for node in nodes(plan)
            if node.get("Relation Name") in ("jobs", "history")
            and (
                node["Node Type"] == "Seq Scan"
                or (
                    node.get("Index Name", "").endswith("_pkey")
                    and "Index Cond" not in node
                    and id(node) not in limited
                )
            )
        ]
    return found


async def test_on_postgres_no_statement_of_a_page_scans_the_jobs(
    postgres: PrivateServer, crowded: str, asked: PostgresTrace
) -> None:
    harness = web_harness(postgres.url(schema=crowded))
    check(await visit_all(harness))
    await harness.forge.aclose()
    assert BY_INDEX in asked.statements
    statements = {text: values for text, values in asked.statements.items() if crowded in text}
    assert len(statements) > 25
    link = await asyncpg.connect(postgres.url())
    try:
        assert await seq_scans_of(link, statements) == []
        bad = f"SELECT id FROM {crowded}.jobs WHERE kind = $1 ORDER BY enqueued_at LIMIT 5"
        hidden = f"SELECT 'x' AS source, id FROM {crowded}.jobs WHERE kind = $1 ORDER BY id + 0"
        for planted in (bad, hidden):
            assert len(await seq_scans_of(link, {planted: ("rare",)})) == 1
    finally:
        await link.close()
