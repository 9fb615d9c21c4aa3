"""The statements use their indexes: asserted on 100,000 rows, as they are and analysed."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.backends.shared.sql_text import ordered_values
from forge_jobs.backends.sqlite import (
    counters,
    error_groups,
    limit_buckets,
    notify,
    queries,
    schema,
)
from forge_jobs.backends.sqlite.io.transaction import KEYS_SQL, ROWS_SQL
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.short_finish import SQL as EXCHANGE
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY

ROWS = 100_000

FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO forge_jobs (id, status, queue, kind, priority, run_at, max_attempts, enqueued_at,
                        due_at, finished_at, owner, indexed_status, claimable, dedupe_key, payload)
SELECT i, s, 'q' || (i % 3), 'k' || (i % 7), i % 5, i, 5, i,
       CASE WHEN s IN ('scheduled', 'failed') THEN i END,
       CASE WHEN s IN ('done', 'dead') THEN i END,
       CASE WHEN s = 'running' THEN i % 4 END,
       CASE WHEN s IN ('failed', 'dead') THEN s END,
       CASE WHEN s = 'pending' THEN 1 END,
       CASE WHEN i % 10 = 0 THEN 'key' || i END, '{}'
FROM (SELECT i, CASE i % 100 WHEN 0 THEN 'running' WHEN 1 THEN 'failed' WHEN 2 THEN 'dead'
                ELSE CASE i % 3 WHEN 0 THEN 'pending' WHEN 1 THEN 'scheduled' ELSE 'done' END
                END AS s FROM n)
"""


@pytest.fixture(scope="module", params=["plain", "analysed"])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    path = Path(tmp_path_factory.mktemp("plans")) / "jobs.db"
    schema.migrate(DatabaseFile.at(path), SYSTEM_CLOCK, SYSTEM_ENTROPY)
    opened = sqlite3.connect(path, isolation_level=None)
    opened.execute(FILL, (ROWS,))
    opened.execute("UPDATE forge_meta SET ingested = (SELECT max(id) FROM forge_jobs)")
    if request.param == "analysed":
        opened.execute("ANALYZE")
    yield opened
    opened.close()


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    values = [None] * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    return [row[3] for row in rows]


def test_a_claim_reads_its_index_without_a_sort(connection: sqlite3.Connection) -> None:
    steps = plan(connection, EXCHANGE["candidates"])
    reads = [step for step in steps if "forge_jobs" in step]
    assert reads == ["SEARCH forge_jobs USING INDEX forge_jobs_claim (queue=?)"]
    assert not [step for step in steps if "B-TREE" in step], steps


def test_a_claim_gives_the_right_jobs_in_the_right_order(connection: sqlite3.Connection) -> None:
    values = ordered_values(EXCHANGE["candidates"], ("q0", 1 << 60, 500, None))
    ids, *_ = connection.execute(EXCHANGE["candidates"], values).fetchone()
    expected = connection.execute(
        "SELECT id FROM forge_jobs NOT INDEXED WHERE status = 'pending' AND queue = 'q0'"
        " ORDER BY priority, run_at, id LIMIT 500"
    ).fetchall()
    assert ids == "[" + ",".join(str(key) for (key,) in expected) + "]"


def test_statistics_of_a_flooded_table_do_not_mislead_the_planner(tmp_path: Path) -> None:
    """Analysed while nearly all jobs are pending in one queue, a table scan has a lower estimated
    cost than the indexes; once most jobs are done it is slower."""
    schema.migrate(DatabaseFile.at(tmp_path / "jobs.db"), SYSTEM_CLOCK, SYSTEM_ENTROPY)
    flooded = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    flooded.execute(FILL, (5_000,))
    flooded.execute("UPDATE forge_jobs SET status = 'pending', queue = 'q0', due_at = NULL")
    flooded.execute("ANALYZE")
    frequent = (
        notify.SQL["poll"],
        EXCHANGE["any_pending"],
        EXCHANGE["snapshot"],
        queries.SQL["owned"],
    )
    for statement in frequent:
        for step in plan(flooded, statement):
            assert step.split()[:2] not in TABLE_SCANS, (statement, step)
    flooded.close()


@pytest.mark.parametrize(
    "name",
    [
        "claim",
        "claim_range",
        "done",
        "done_range",
        "done_with_result",
        "mark_started",
        "clear_expiry",
        "body",
    ],
)
def test_writes_of_an_exchange_find_rows_by_key(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, EXCHANGE[name])
    table = "forge_bodies" if name == "body" else "forge_jobs"
    assert any(step.startswith(f"SEARCH {table} USING INTEGER PRIMARY KEY") for step in steps), (
        steps
    )
    assert not [step for step in steps if step.startswith(f"SCAN {table}")]


def statements() -> Iterator[tuple[str, str]]:
    for text in (
        EXCHANGE,
        ROWS_SQL,
        KEYS_SQL,
        queries.SQL,
        counters.SQL,
        error_groups.SQL,
        notify.SQL,
        limit_buckets.SQL,
    ):
        for name in text:
            yield name, text[name]


TABLE_SCANS = [["SCAN", "forge_jobs"], ["SCAN", "j"], ["SCAN", "y"]]
# Scans that are short by design: they stop early, or read new or running rows only.
SHORT_SCANS = {"past_retention"}


@pytest.mark.parametrize(("name", "statement"), list(statements()))
def test_no_statement_reads_the_whole_table(
    connection: sqlite3.Connection, name: str, statement: str
) -> None:
    for step in plan(connection, statement):
        if step.split()[:2] in TABLE_SCANS and name not in SHORT_SCANS:
            # Either end of an index, or an index that holds running jobs alone.
            assert " INDEX forge_jobs_" in step, (name, step)


def test_keys_come_from_the_index_of_their_source(connection: sqlite3.Connection) -> None:
    for source, index in (
        ("all", "INTEGER PRIMARY KEY (rowid<?)"),
        ("new", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("status", "COVERING INDEX forge_jobs_status (indexed_status=? AND rowid<?)"),
        ("dedupe_key", "COVERING INDEX forge_jobs_dedupe (dedupe_key=? AND rowid<?)"),
        ("error_group", "COVERING INDEX forge_jobs_error_group (error_group=? AND rowid<?)"),
        ("parent", "INDEX forge_jobs_parent (<expr>=? AND rowid<?)"),
        ("running", "INDEX forge_jobs_running"),
        ("due", "COVERING INDEX forge_jobs_due (queue>? AND queue<?)"),
        ("claimable", "INDEX forge_jobs_claim (queue>? AND queue<?)"),
        ("track", "COVERING INDEX forge_jobs_track (queue>? AND queue<?)"),
    ):
        steps = [s for s in plan(connection, queries.SQL[f"keys_of_{source}"]) if "forge_jobs" in s]
        assert len(steps) == 1, (source, steps)
        assert index in steps[0], (source, steps)


@pytest.mark.parametrize("way", ["", "_down"])
def test_lists_by_a_time_read_their_index_in_order(
    connection: sqlite3.Connection, way: str
) -> None:
    for time, index in (
        ("due", "COVERING INDEX forge_jobs_due (queue=? AND due_at"),
        ("ended", "COVERING INDEX forge_jobs_ended (indexed_status=? AND finished_at"),
    ):
        steps = plan(connection, queries.SQL[f"positions_{time}{way}"])
        assert len(steps) == 1, steps
        assert index in steps[0], steps
    steps = plan(connection, queries.SQL[f"positions_started{way}"])
    assert "INDEX forge_jobs_running" in steps[0]


def test_jobs_without_a_queue_of_their_own_come_from_their_index(
    connection: sqlite3.Connection,
) -> None:
    steps = [step for step in plan(connection, ROWS_SQL["unrouted"]) if " j " in step]
    assert steps == ["SEARCH j USING INDEX forge_jobs_unrouted (kind=?)"]


def test_the_longest_waiting_job_of_each_queue(connection: sqlite3.Connection) -> None:
    expected = connection.execute(
        "SELECT queue, min(run_at) FROM forge_jobs NOT INDEXED WHERE status = 'pending'"
        " GROUP BY queue ORDER BY queue"
    ).fetchall()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1_000)
    assert connection.execute(counters.SQL["oldest_due"], (1_000,)).fetchall() == expected
    connection.set_progress_handler(None, 0)
    assert steps < 20, "it read the index instead of hopping through it"
