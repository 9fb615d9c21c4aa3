"""Numbers by kind and tag are read by primary keys in a database with a month of them."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres import sql_files
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.instant import DAY, HOUR, MINUTE
from tests.postgres.schemas import Schemas

from .server import PrivateServer

FILL = """
INSERT INTO {s}.periods (length, at, queue, kind, enqueued, started, done, retried, dead, cancelled,
    throttled, released)
SELECT 3600000000, i / 50 * 3600000000::bigint, 'q' || i % 3, 'k' || i % 50, 1, 1, 1, 0, 0, 0, 0, 0
FROM generate_series(0, 36000) AS i;
INSERT INTO {s}.minutes (at, queue, kind, enqueued, started, done, retried, dead, cancelled,
    throttled, released)
SELECT i / 50 * 60000000::bigint, 'q' || i % 3, 'k' || i % 50, 1, 1, 1, 0, 0, 0, 0, 0
FROM generate_series(0, 36000) AS i;
INSERT INTO {s}.tag_days (day, tag, weight, summary, whole)
SELECT i / 500 * 86400000000::bigint, 't' || i % 500, 1, '[]', repeat('x', 500)
FROM generate_series(0, 15000) AS i;
ANALYZE {s}.periods; ANALYZE {s}.minutes; ANALYZE {s}.tag_days;
"""
STARTS = [n * HOUR for n in range(100, 260)]
CALLS: dict[str, tuple[Any, ...]] = {
    "periods": (HOUR, 700 * HOUR, 725 * HOUR, None, 10_000),
    "minute_periods": (700 * MINUTE, 725 * MINUTE, None, 10_000),
    "periods_of_kind": (HOUR, STARTS, "k1", None),
    "minutes_of_kind": ([n * MINUTE for n in range(61)], "k1", None),
    "tag_days": (29 * DAY, 31 * DAY, True),
    "days_of_tag": (0, 31 * DAY, "t1"),
    "tag_weights": (3 * DAY,),
    "tag_rows": (3 * DAY, ["t1", "t2"]),
}
TABLES = ("periods", "minutes", "tag_days", "jobs", "history")


@pytest.fixture
def filled(postgres: PrivateServer, schemas: Schemas) -> Iterator[str]:
    """A schema with a month of numbers."""
    name = schemas.take()
    asyncio.run(_fill(postgres, name))
    yield name
    schemas.give_back(name)


async def _fill(postgres: PrivateServer, name: str) -> None:
    store = PostgresStore(postgres.url(schema=name))
    await store.open()
    await store.close()
    link = await asyncpg.connect(postgres.url())
    await link.execute(FILL.replace("{s}", name))
    await link.close()


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that a plan reads without an index."""
    if "Seq Scan" in plan["Node Type"] and plan.get("Relation Name") in TABLES:
        yield plan["Relation Name"]
    for inner in plan.get("Plans", ()):
        yield from scanned(inner)


async def test_no_read_scans_a_table(postgres: PrivateServer, filled: str) -> None:
    sql = sql_files.statements("breakdowns", filled)
    link = await asyncpg.connect(postgres.url())
    try:
        for statement, values in CALLS.items():
            assert await _plan(link, sql[statement], *values) == [], statement
        planted = f"SELECT * FROM {filled}.periods WHERE kind = 'k1'"
        assert await _plan(link, planted) == ["periods"]
    finally:
        await link.close()


async def _plan(link: Any, statement: str, *values: Any) -> list[str]:
    told = await link.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *values)
    return list(scanned(json.loads(told)[0]["Plan"]))
