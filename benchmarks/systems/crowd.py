"""A store full of jobs of every sort, made inside the database: states, queues, kinds, tags, keys,
errors, and a week of minutes behind them. The oldest jobs have a tag, a kind and an error that no
other has, so that whoever looks for those has to go far.

Beside `forge_rows` and `forge_postgres_rows` this knows our schema.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import psycopg

from benchmarks import postgres
from benchmarks.systems import forge_rows
from benchmarks.systems.forge_pages import RARE

WEEK = 7 * 86_400 * 1_000_000
MINUTE = 60_000_000
KINDS = 20
QUEUES = 8
RARE_JOBS = 5
HISTOGRAM = '{"sum_s":1.5,"buckets":{"80":3,"82":2,"85":1,"90":1}}'

# Of a thousand jobs in a row: 700 done, 90 pending, 70 scheduled, 60 dead, 40 cancelled, 30 failed,
# 8 held, 1 suspended until a deadline, 1 running.
STATE = (
    "CASE WHEN i % 1000 < 700 THEN 'done' WHEN i % 1000 < 790 THEN 'pending'"
    " WHEN i % 1000 < 860 THEN 'scheduled' WHEN i % 1000 < 920 THEN 'dead'"
    " WHEN i % 1000 < 960 THEN 'cancelled' WHEN i % 1000 < 990 THEN 'failed'"
    " WHEN i % 1000 < 998 THEN 'held'"
    " WHEN i % 1000 < 999 THEN 'suspended' ELSE 'running' END"
)
KIND = f"CASE WHEN i <= {RARE_JOBS} THEN '{RARE}' ELSE 'kind_' || (i % {KINDS}) END"
QUEUE = f"'queue_' || (i % {KINDS} % {QUEUES})"
ERROR = (
    f"CASE WHEN i <= {RARE_JOBS} THEN 'ValueError: {RARE} trouble' WHEN s IN ('dead', 'failed')"
    " THEN 'TimeoutError: host ' || (i % 97) || ' did not answer within 30 s' END"
)

SQLITE_JOBS = f"""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO forge_jobs (id, status, queue, kind, priority, run_at, attempts, max_attempts,
    enqueued_at, owner, exchange, started_at, finished_at, due_at, claimable, options,
    last_error, indexed_status, dedupe_key, bucket, payload)
SELECT i, s, {QUEUE}, {KIND}, i % 3,
    CASE WHEN s IN ('scheduled', 'failed', 'suspended') THEN at + 30 * {WEEK} ELSE at END,
    s IN ('done', 'dead', 'failed', 'running'), 5, at,
    CASE WHEN s = 'running' THEN 1 END, CASE WHEN s = 'running' THEN 1 END,
    CASE WHEN s IN ('done', 'dead', 'failed', 'running') THEN at + 1000 END,
    CASE WHEN s IN ('done', 'dead', 'cancelled') THEN at + 5000 END,
    CASE WHEN s IN ('scheduled', 'failed', 'suspended') THEN at + 30 * {WEEK} END,
    CASE WHEN s = 'pending' THEN 1 END,
    CASE WHEN i <= {RARE_JOBS} THEN '{{"tags":["{RARE}"]}}'
         WHEN i % 10 < 3 THEN '{{"tags":["tag_' || (i % 7) || '","batch"]}}' END,
    {ERROR}, CASE WHEN s IN ('failed', 'held', 'suspended', 'dead', 'cancelled') THEN s END,
    CASE WHEN i % 10 = 0 THEN 'key-' || i END, CASE WHEN s = 'held' THEN 'key:crowd' END,
    CAST('{{"number":' || i || ',"to":"somebody@example.org"}}' AS BLOB)
FROM (SELECT i, {STATE} AS s, :now - (:rows - i) * ({WEEK} / :rows) AS at FROM n)
"""
SQLITE_MINUTES = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :minutes * {KINDS})
INSERT INTO forge_minutes (at, queue, kind, data)
SELECT at, queue, kind, json_object('at', at, 'queue', queue, 'kind', kind, 'enqueued', 5,
    'started', 5, 'done', 4, 'retried', 1, 'waited', json(:histogram), 'ran', json(:histogram),
    'took', json(:histogram))
FROM (SELECT (:now / {MINUTE} - i / {KINDS}) * {MINUTE} AS at,
             'queue_' || (i % {KINDS} % {QUEUES}) AS queue, 'kind_' || (i % {KINDS}) AS kind FROM n)
"""
# Hours and days of a month, five minutes of two days.
LENGTHS = ((300_000_000, 2 * 288), (3_600_000_000, 31 * 24), (86_400_000_000, 31))
TAGS = 501
TAG_SUMS = '{"runs":5,"done":4,"retried":1,"ran_s":1.5,"waited_s":0.5}'
TAG_TASKS = (
    f'[{{"queue":"queue_1","kind":"kind_1","sums":{TAG_SUMS}}},'
    f'{{"queue":"queue_2","kind":"kind_2","sums":{TAG_SUMS}}}]'
)
TAG_HOURS = "{" + ",".join(f'"{hour}":{TAG_SUMS}' for hour in range(24)) + "}"
TAG_HEAD = f"""'[' || day || ',"' || tag || '",{TAG_SUMS},1.55'"""
TAG_TEXTS = f"""{TAG_HEAD} || ']', {TAG_HEAD} || ',{TAG_HOURS},{TAG_TASKS}]'"""
TAG_NAME = "CASE WHEN i % 501 = 0 THEN '' ELSE 'tag_' || (i % 501) END"
SQLITE_PERIODS = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :periods * {KINDS})
INSERT INTO forge_periods (length, at, queue, kind, data)
SELECT :length, at, queue, kind, json_object('at', at, 'queue', queue, 'kind', kind, 'enqueued', 5,
    'started', 5, 'done', 4, 'retried', 1, 'waited', json(:histogram), 'ran', json(:histogram),
    'took', json(:histogram))
FROM (SELECT (:now / :length - i / {KINDS}) * :length AS at,
             'queue_' || (i % {KINDS} % {QUEUES}) AS queue, 'kind_' || (i % {KINDS}) AS kind FROM n)
"""
SQLITE_TAGS = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < 31 * {TAGS})
INSERT INTO forge_tag_days (day, tag, weight, summary, whole)
SELECT day, tag, 1.55, {TAG_TEXTS}
FROM (SELECT (:now / 86400000000 - i / {TAGS}) * 86400000000 AS day, {TAG_NAME} AS tag FROM n)
"""
POSTGRES_JOBS = f"""
INSERT INTO forge.{{table}} (id, status, queue, kind, priority, run_at, attempts, max_attempts,
    enqueued_at, owner, exchange, started_at, finished_at, tags, last_error, dedupe_key,
    limit_bucket, payload)
SELECT i, s, {QUEUE}, {KIND}, i % 3,
    CASE WHEN s IN ('scheduled', 'failed', 'suspended') THEN at + 30 * {WEEK} ELSE at END,
    (s IN ('done', 'dead', 'failed', 'running'))::int, 5, at,
    CASE WHEN s = 'running' THEN 1 END, CASE WHEN s = 'running' THEN 1 END,
    CASE WHEN s IN ('done', 'dead', 'failed', 'running') THEN at + 1000 END,
    CASE WHEN s IN ('done', 'dead', 'cancelled') THEN at + 5000 END,
    CASE WHEN i <= {RARE_JOBS} THEN ARRAY['{RARE}']
         WHEN i % 10 < 3 THEN ARRAY['tag_' || (i % 7), 'batch'] END,
    {ERROR}, CASE WHEN i % 10 = 0 THEN 'key-' || i END, CASE WHEN s = 'held' THEN 'key:crowd' END,
    convert_to('{{{{"number":' || i || ',"to":"somebody@example.org"}}}}', 'UTF8')
FROM (SELECT i, {STATE} AS s, {{now}} - ({{rows}} - i) * ({WEEK} / {{rows}}) AS at
      FROM generate_series(1, {{rows}}) AS i) AS n
WHERE (s IN ('done', 'dead', 'cancelled')) = {{over}}
"""
POSTGRES_MINUTES = f"""
INSERT INTO forge.minutes (at, queue, kind, enqueued, started, done, retried, dead, cancelled,
    throttled, released, waited, ran, took)
SELECT ({{now}} / {MINUTE} - i / {KINDS}) * {MINUTE}, 'queue_' || (i % {KINDS} % {QUEUES}),
    'kind_' || (i % {KINDS}), 5, 5, 4, 1, 0, 0, 0, 0, h, h, h
FROM generate_series(0, {{minutes}} * {KINDS} - 1) AS i, (SELECT '{HISTOGRAM}'::jsonb AS h) AS h
"""
POSTGRES_PERIODS = f"""
INSERT INTO forge.periods (length, at, queue, kind, enqueued, started, done, retried, dead,
    cancelled, throttled, released, waited, ran, took)
SELECT {{length}}, ({{now}} / {{length}} - i / {KINDS}) * {{length}},
    'queue_' || (i % {KINDS} % {QUEUES}), 'kind_' || (i % {KINDS}), 5, 5, 4, 1, 0, 0, 0, 0, h, h, h
FROM generate_series(0, {{periods}} * {KINDS} - 1) AS i, (SELECT '{HISTOGRAM}'::jsonb AS h) AS h
"""
POSTGRES_TOTALS = """
INSERT INTO forge.totals
SELECT DISTINCT ON (queue, kind) 0, queue, kind, enqueued, started, done, retried, dead, cancelled,
    throttled, released, waited, ran, took FROM forge.periods
"""
POSTGRES_TAGS = f"""
INSERT INTO forge.tag_days (day, tag, weight, summary, whole)
SELECT day, tag, 1.55, {TAG_TEXTS}
FROM (SELECT ({{now}} / 86400000000 - i / {TAGS}) * 86400000000 AS day, {TAG_NAME} AS tag
      FROM generate_series(0, 31 * {TAGS} - 1) AS i) AS n
"""
POSTGRES_COUNTERS = """
INSERT INTO forge.counters (queue, kind, status, jobs)
SELECT queue, kind, status, count(*) FROM (
    SELECT queue, kind, status FROM forge.jobs UNION ALL
    SELECT queue, kind, status FROM forge.history) AS j
GROUP BY queue, kind, status
"""


def fill_sqlite(store: Path, rows: int, minutes: int) -> None:
    """The tables must be there and empty."""
    now = time.time_ns() // 1_000
    connection = sqlite3.connect(forge_rows.path_in(store), isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SQLITE_JOBS, {"rows": rows, "now": now})
        told = {"minutes": minutes, "now": now, "histogram": HISTOGRAM}
        connection.execute(SQLITE_MINUTES, told)
        for length, periods in LENGTHS:
            of_length = {"length": length, "periods": periods}
            connection.execute(SQLITE_PERIODS, {**of_length, "now": now, "histogram": HISTOGRAM})
        connection.execute(SQLITE_TAGS, {"now": now})
        connection.execute(
            "INSERT INTO forge_totals (queue, kind, data) SELECT queue, kind, max(data)"
            " FROM forge_periods GROUP BY queue, kind"
        )
        connection.execute(
            "INSERT INTO forge_counts (queue, kind, status, jobs)"
            " SELECT queue, kind, status, count(*) FROM forge_jobs GROUP BY queue, kind, status"
        )
        connection.execute("UPDATE forge_meta SET ingested = (SELECT max(id) FROM forge_jobs)")
        connection.execute("COMMIT")
    finally:
        connection.close()


def fill_postgres(store: Path, rows: int, minutes: int, schema: str = "forge") -> None:
    """The same on Postgres."""
    now = time.time_ns() // 1_000
    statements = [
        "SET synchronous_commit = off",
        *(
            POSTGRES_JOBS.format(table=table, now=now, rows=rows, over=over)
            for table, over in (("jobs", "false"), ("history", "true"))
        ),
        POSTGRES_MINUTES.replace("{now}", str(now)).replace("{minutes}", str(minutes)),
        *(
            POSTGRES_PERIODS.replace("{now}", str(now))
            .replace("{length}", str(length))
            .replace("{periods}", str(periods))
            for length, periods in LENGTHS
        ),
        POSTGRES_TOTALS,
        POSTGRES_TAGS.replace("{now}", str(now)),
        POSTGRES_COUNTERS,
        f"SELECT setval(pg_get_serial_sequence('forge.jobs', 'id'), {rows})",
    ]
    with psycopg.connect(postgres.address(store), autocommit=True) as link:
        for text in statements:
            link.execute(text.replace("forge.", f"{schema}.").encode())
