"""Numbers by kind and tag are read by primary keys, never from the jobs."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.backends.shared.sql_text import ordered_values
from forge_jobs.backends.sqlite import breakdowns, schema
from forge_jobs.backends.sqlite.counters import BREAKDOWNS_SQL as SQL
from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.core.instant import DAY, FIVE_MINUTES, HOUR
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY

# Per statement the tables that it reads, each by a search with these columns.
SEARCHES = {
    "periods": ["forge_periods USING PRIMARY KEY (length=? AND at>? AND at<?)"],
    "minute_periods": ["forge_minutes USING PRIMARY KEY (at>? AND at<?)"],
    "periods_of_kind": ["p USING PRIMARY KEY (length=? AND at=? AND queue=? AND kind=?)"],
    "minutes_of_kind": ["m USING PRIMARY KEY (at=? AND queue=? AND kind=?)"],
    "stored_periods": ["p USING PRIMARY KEY (length=? AND at=? AND queue=? AND kind=?)"],
    "tag_days": ["forge_tag_days USING PRIMARY KEY (day>? AND day<?)"],
    "days_of_tag": ["d USING PRIMARY KEY (day=? AND tag=?)"],
    "tag_weights": ["forge_tag_days USING PRIMARY KEY (day=?)"],
    "tag_rows": ["d USING PRIMARY KEY (day=? AND tag=?)"],
    "purge_periods": ["forge_periods USING PRIMARY KEY (length=? AND at<?)"],
    "purge_short_periods": ["forge_periods USING PRIMARY KEY (length=? AND at<?)"],
    "kind_counts": [],
}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = Path(tmp_path_factory.mktemp("plans")) / "jobs.db"
    schema.migrate(DatabaseFile.at(path), SYSTEM_CLOCK, SYSTEM_ENTROPY)
    opened = sqlite3.connect(path, isolation_level=None)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_statement_searches_by_its_key(connection: sqlite3.Connection, name: str) -> None:
    statement = SQL[name]
    values = [None] * statement.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    steps = [str(row[3]) for row in rows]
    for search in SEARCHES[name]:
        assert f"SEARCH {search}" in steps, steps
    jobs = [step for step in steps if "forge_jobs" in step]
    assert all("INTEGER PRIMARY KEY (rowid>?)" in step for step in jobs), steps


def test_five_minutes_are_kept_for_two_days_and_hours_as_long_as_minutes(
    connection: sqlite3.Connection,
) -> None:
    rows = [
        (length, at * DAY, "q", "k", "{}") for length in (FIVE_MINUTES, HOUR) for at in range(10)
    ]
    connection.executemany("INSERT INTO forge_periods VALUES (?, ?, ?, ?, ?)", rows)

    def execute(statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        return connection.execute(statement, ordered_values(statement, values))

    breakdowns.purge(execute, 5 * DAY, 100)
    found = connection.execute("SELECT length, at FROM forge_periods ORDER BY length, at")
    kept: dict[int, list[int]] = {}
    for length, at in found.fetchall():
        kept.setdefault(length, []).append(at // DAY)
    assert kept == {FIVE_MINUTES: [7, 8, 9], HOUR: [5, 6, 7, 8, 9]}
    connection.execute("DELETE FROM forge_periods")
