"""A batch deletes as many rows as it says, whatever plan the server chooses."""

from collections.abc import Awaitable, Callable

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.store.jobs import Retention

from .server import PrivateServer

# A subquery with LIMIT and SKIP LOCKED on the inner side of a join runs once per row.
PLAN = ("enable_hashjoin", "enable_mergejoin", "enable_hashagg", "enable_material", "enable_sort")
Purge = Callable[[PostgresStore], Awaitable[object]]
TABLES: dict[str, tuple[str, Purge]] = {
    "minutes": (
        "INSERT INTO {s}.minutes SELECT n, 'q', 'k', 1, 0, 0, 0, 0, 0, 0, 0 FROM n",
        lambda store: store.metrics.purge_minutes(before=100, limit=3),
    ),
    "vitals": (
        "INSERT INTO {s}.vitals SELECT n, 'h', '{{}}' FROM n",
        lambda store: store.metrics.purge_minutes(before=100, limit=3),
    ),
    "audit": (
        "INSERT INTO {s}.audit (at, entry) SELECT n, '{{}}' FROM n",
        lambda store: store.metrics.purge_actions(before=100, limit=3),
    ),
    "error_groups": (
        "INSERT INTO {s}.error_groups SELECT n::text, n, '{{}}' FROM n",
        lambda store: store.error_groups.purge(before=100, limit=3),
    ),
    "settings": (
        "INSERT INTO {s}.settings SELECT 'x', n::text, '', 1, n FROM n",
        lambda store: store.settings.purge(limit=3),
    ),
}


@pytest.mark.parametrize("table", TABLES)
async def test_a_batch_deletes_no_more_than_its_size(
    store: PostgresStore, schema: str, postgres: PrivateServer, table: str
) -> None:
    insert, purge = TABLES[table]
    numbers = "WITH n AS (SELECT n FROM generate_series(1, 10) AS n) "
    postgres.sql(numbers + insert.format(s=schema), f"ANALYZE {schema}.{table}")
    for name in PLAN:
        await store._server.ask(f"SET {name} = off")
    await purge(store)
    assert postgres.sql(f"SELECT count(*) FROM {schema}.{table}").strip() == "7"


async def test_lapsed_dedupe_keys_are_deleted_under_the_same_plan(
    store: PostgresStore, schema: str, postgres: PrivateServer
) -> None:
    keys = "SELECT 'k', n::text, n, n FROM generate_series(1, 1500) AS n"
    postgres.sql(f"INSERT INTO {schema}.dedupe_keys {keys}", f"ANALYZE {schema}.dedupe_keys")
    for name in PLAN:
        await store._server.ask(f"SET {name} = off")
    await store.jobs.purge(Retention(), limit=1)
    assert postgres.sql(f"SELECT count(*) FROM {schema}.dedupe_keys").strip() == "500"
