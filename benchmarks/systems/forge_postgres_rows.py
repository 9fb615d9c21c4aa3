"""Our own Postgres tables seen from outside: is work left, how many rows, do the counters agree
with them, and millions of copies of a row.

This is the one module of the benchmark that knows the Postgres schema. The parent uses it, in a
process that never opens the store through the library.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from benchmarks import postgres

FINISHED = ("done", "dead", "cancelled")
# Once the last handler was called, every job is running or over. Index: jobs_owner.
NOTHING_RUNS = (
    "SELECT NOT EXISTS (SELECT 1 FROM forge.jobs WHERE status = 'running' AND owner IS NOT NULL)"
)
BY_STATUS = (
    "SELECT status, count(*) FROM ("
    "SELECT status FROM forge.jobs UNION ALL SELECT status FROM forge.history) AS j GROUP BY status"
)
# Copies follow each other by a microsecond, as jobs do that were enqueued one after the other.
MOVING = ("run_at", "enqueued_at", "started_at", "finished_at")
SORTS = (("jobs", "pending"), ("jobs", "scheduled"), ("history", "done"))


def await_finished(store: Path, seconds: float) -> float:
    """Until every claimed job is over; the instant on the shared clock."""
    return postgres.await_answer(store, NOTHING_RUNS, seconds)


def by_status(store: Path) -> dict[str, int]:
    """Rows by state, counted row by row."""
    return dict(postgres.ask(store, BY_STATUS))


def counts(store: Path) -> dict[str, int]:
    """Unfinished and finished rows, counted row by row."""
    rows = by_status(store)
    finished = sum(rows.get(status, 0) for status in FINISHED)
    return {"waiting": sum(rows.values()) - finished, "finished": finished}


def _table(store: Path, name: str, before_0_1: str) -> str:
    """The name of a table; stores of unreleased commits have the second one."""
    [(found,)] = postgres.ask(store, f"SELECT to_regclass('forge.{before_0_1}') IS NOT NULL")
    return f"forge.{before_0_1}" if found else f"forge.{name}"


def state(store: Path) -> dict[str, int]:
    """Rows by state, their `attempts`, the dedupe `keys` that are taken and the `steps`; without
    zeros."""
    dedupe_keys = _table(store, "dedupe_keys", "dedupe")
    [(attempts, keys)] = postgres.ask(
        store,
        "SELECT (SELECT coalesce(sum(attempts), 0)::bigint FROM ("
        "SELECT attempts FROM forge.jobs UNION ALL SELECT attempts FROM forge.history) AS j),"
        f" (SELECT count(*) FROM {dedupe_keys})",
    )
    found = {**by_status(store), "attempts": attempts, "keys": keys, "steps": _steps(store)}
    return {name: number for name, number in found.items() if number}


def _steps(store: Path) -> int:
    """How many steps are stored; none where an earlier commit knows no steps."""
    [(known,)] = postgres.ask(store, "SELECT to_regclass('forge.steps') IS NOT NULL")
    return postgres.ask(store, "SELECT count(*) FROM forge.steps")[0][0] if known else 0


def discord(store: Path) -> list[str]:
    """Where our own counters differ from the rows: empty, or one sentence."""
    entries = _table(store, "counter_entries", "ledger")
    found = postgres.ask(
        store,
        "SELECT status, sum(jobs)::bigint FROM ("
        " SELECT status, jobs FROM forge.counters UNION ALL"
        f" SELECT target, jobs FROM {entries} WHERE target IS NOT NULL UNION ALL"
        f" SELECT source, -jobs FROM {entries} WHERE source IS NOT NULL"
        ") AS c GROUP BY status HAVING sum(jobs) <> 0",
    )
    counted, rows = dict(found), by_status(store)
    return [] if counted == rows else [f"the counters say {counted}, the rows are {rows}"]


def copy_suspended(store: Path, copies: int) -> None:
    """Beside the suspended job, which is the only one, `copies` more that wait for the same."""
    # None of them is due before the others: without a deadline that is the last moment there is.
    multiply(store, copies, (("jobs", "suspended"),), moving=("enqueued_at", "started_at"))
    postgres.ask(
        store,
        "INSERT INTO forge.waits (job, began_at, after, since, epoch, topic, step, deadline)"
        " SELECT j.id, w.began_at, w.after, w.since, w.epoch, w.topic, w.step, w.deadline"
        " FROM forge.waits w, forge.jobs j"
        " WHERE j.status = 'suspended' AND j.id > w.job RETURNING 1",
    )


def multiply(
    store: Path,
    copies: int,
    sorts: tuple[tuple[str, str], ...] = SORTS,
    moving: tuple[str, ...] = MOVING,
) -> None:
    """Beside the newest row of each sort `copies` more like it, made inside the server.

    `moving`: the columns that rise by a microsecond from copy to copy.
    """
    with psycopg.connect(postgres.address(store), autocommit=True) as link:
        link.execute("SET synchronous_commit = off")
        for table, status in sorts:
            columns = [
                name
                for (name,) in link.execute(
                    "SELECT column_name FROM information_schema.columns"
                    " WHERE table_schema = 'forge' AND table_name = %s ORDER BY ordinal_position",
                    [table],
                )
            ]
            values = ", ".join(value_of(name, moving) for name in columns)
            query = (
                f"INSERT INTO forge.{table} ({', '.join(columns)})"
                f" SELECT {values} FROM forge.{table} AS t, generate_series(1, {copies}) AS n(i)"
                f" WHERE t.id = (SELECT max(id) FROM forge.{table} WHERE status = '{status}')"
            )
            link.execute(query.encode())
            link.execute(
                b"INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)"
                b" SELECT 0, queue, kind, status, %s"
                b" FROM (SELECT queue, kind, status FROM forge.jobs UNION ALL"
                b" SELECT queue, kind, status FROM forge.history) AS j"
                b" WHERE status = %s LIMIT 1",
                [copies, status],
            )


def value_of(column: str, moving: tuple[str, ...]) -> str:
    if column == "id":
        return "nextval(pg_get_serial_sequence('forge.jobs', 'id'))"
    return f"t.{column} + n.i" if column in moving else f"t.{column}"
