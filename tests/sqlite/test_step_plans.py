"""The statements of steps, waits and events use their indexes, as they are and analysed."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite import schema
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.short_finish import SQL as EXCHANGE
from forge_jobs.backends.sqlite.steps import SQL
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
from tests.sqlite.test_plans import plan

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
FILL = (
    "INSERT INTO forge_jobs (id, status, queue, kind, priority, run_at, max_attempts, enqueued_at,"
    " due_at, owner, indexed_status, payload) SELECT i,"
    " CASE i % 2 WHEN 0 THEN 'suspended' ELSE 'running' END, 'q', 'k', 0, i, 5, i,"
    " CASE i % 2 WHEN 0 THEN i END, i % 4, CASE i % 2 WHEN 0 THEN 'suspended' END, '{}' FROM n",
    "INSERT INTO forge_steps SELECT i / 10, 's' || i, 'step', 1, i, i, NULL, '1' FROM n",
    "INSERT INTO forge_events (topic, sent_at, ends_at, is_open, payload)"
    " SELECT 'e' || (i % 3) || char(31) || (i % 100), i, i, NULL, '1' FROM n",
    "INSERT INTO forge_waits SELECT 'e' || (i % 3) || char(31) || (i % 100), i, 1, 's', i, 0, 0, i"
    " FROM n WHERE i % 2 = 0",
)
ORDERED = (
    "first_steps", "steps_of_jobs", "page_of_steps", "waiting_for", "first_event", "open_events",
    "page_of_events", "events_of_topic", "page_of_waits",
)  # fmt: skip


@pytest.fixture(scope="module", params=["plain", "analysed"])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    path = Path(tmp_path_factory.mktemp("plans")) / "jobs.db"
    schema.migrate(DatabaseFile.at(path), SYSTEM_CLOCK, SYSTEM_ENTROPY)
    opened = sqlite3.connect(path, isolation_level=None)
    for statement in FILL:
        head, middle, rest = statement.partition("SELECT")
        opened.execute(f"{NUMBERS}{head}{middle}{rest}")
    if request.param == "analysed":
        opened.execute("ANALYZE")
    yield opened
    opened.close()


@pytest.mark.parametrize("name", list(SQL))
def test_no_statement_reads_a_whole_table(connection: sqlite3.Connection, name: str) -> None:
    for step in plan(connection, SQL[name]):
        words = step.split()
        if words[0] == "SCAN" and words[1] in ("forge_steps", "forge_events", "forge_waits", "j"):
            # An index that holds open events alone.
            assert "forge_events_open" in step, (name, step)


@pytest.mark.parametrize("name", ORDERED)
def test_pages_are_read_in_order(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, SQL[name])
    assert not [step for step in steps if "B-TREE" in step], steps


def test_steps_are_found_by_job_and_name(connection: sqlite3.Connection) -> None:
    [found] = [step for step in plan(connection, SQL["find_steps"]) if " s " in step]
    assert found.endswith("(job=? AND name=?)")


def test_an_exchange_looks_for_open_events_in_their_index(connection: sqlite3.Connection) -> None:
    steps = [step for step in plan(connection, EXCHANGE["snapshot"]) if "forge_events" in step]
    assert steps
    assert all("forge_events_open" in step for step in steps), steps
