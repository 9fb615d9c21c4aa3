"""The project's targets that this benchmark can judge, as data, and the comparisons beside them.

A comparison has no bar: it is printed with its ratio and judged by nobody but the reader.
"""

from __future__ import annotations

from benchmarks.figures import Sense, Target

DRAIN_FULL = Target("drain-full", "drain, FULL, to the best FULL peer", 15, 25, "×", level="full")
DRAIN_NORMAL = Target(
    "drain-normal", "drain, NORMAL, to litequeue, rows kept", 20, 30, "×", level="normal"
)
ENQUEUE_FULL = Target("enqueue-full", "enqueue one by one, FULL, to Huey", 1.1, 1.5, "×")
ENQUEUE_NORMAL = Target("enqueue-normal", "enqueue one by one, NORMAL, to litequeue", 0.9, 1, "×")
ENQUEUE_AWAITED_FULL = Target(
    "enqueue-awaited-full", "awaited one by one, FULL, to synchronous calls", 0.5, 0.8, "×"
)
ENQUEUE_AWAITED_NORMAL = Target(
    "enqueue-awaited-normal", "awaited one by one, NORMAL, to synchronous", 0.3, 0.6, "×"
)
IDLE_P50 = Target("idle-p50", "enqueue to start, other process, p50", 3, 1, "ms", Sense.MAX_AT)
IDLE_P99 = Target("idle-p99", "enqueue to start, other process, p99", 8, 5, "ms", Sense.MAX_AT)
IDLE_CPU = Target("idle-cpu", "CPU of an idle worker", 1.0, 0.5, "%", Sense.BELOW)
MEMORY = Target("memory", "memory of an idle worker, 100 slots", 80, 45, "MB", Sense.MAX_AT)
AWAIT = Target("await", "handlers that await 10 ms, of 10,000 jobs/s", 90, 97, "%")
DEF_FULL = Target("def-full", "def no-op, FULL, to the best FULL peer", 5, 10, "×", level="full")
DEF_NORMAL = Target(
    "def-normal", "def no-op, NORMAL, to litequeue, rows kept", 5, 10, "×", level="normal"
)
START_WORKER = Target("start-worker", "forge worker to its first job", 1, 0.5, "s", Sense.MAX_AT)
START_LIST = Target("start-list", "forge jobs list on an empty store", 0.35, 0.2, "s", Sense.MAX_AT)
DEPTH = Target("depth", "claim cost with 3 M rows, to an empty table", 1.5, 1.1, "×", Sense.MAX_AT)

METRICS = Target("metrics", "drain with metrics on, to off", 0.9, 0.95, "×")
POSTGRES_METRICS = Target(
    "postgres-metrics", "Postgres: drain with metrics on, to off", 0.9, 0.95, "×"
)
LIMITS = Target("limits", "drain with a rate limit, to none", 0.9, 0.95, "×")
POSTGRES_LIMITS = Target(
    "postgres-limits", "Postgres: drain with a rate limit, to none", 0.9, 0.95, "×"
)
POOL = Target("pool", "a warm Python child, to one process per job", 20, 40, "×")
POSTGRES_DRAIN = Target("postgres-drain", "Postgres: drain, to the best peer", 3, 4, "×")
POSTGRES_CEILING = Target(
    "postgres-ceiling", "Postgres: drain, of the raw-SQL ceiling", 60, 80, "%"
)
POSTGRES_SERVER = Target(
    "postgres-server", "Postgres: server time per job of a drain", 25, 23, "µs", Sense.MAX_AT
)
POSTGRES_BULK = Target(
    "postgres-bulk", "Postgres: enqueue in bulk, to the best peer", 2.5, 3.5, "×"
)
POSTGRES_ONE = Target("postgres-one", "Postgres: enqueue one by one, to the best peer", 1, 1.2, "×")
POSTGRES_CALLERS = Target(
    "postgres-callers", "Postgres: enqueue, 100 callers, to the best", 20, 25, "×"
)
POSTGRES_SYNC = Target(
    "postgres-sync", "Postgres: from sync code, to PgQueuer awaited", 0.9, 1, "×"
)
POSTGRES_AWAIT = Target("postgres-await", "Postgres: await 5 ms, of 20,000 jobs/s", 85, 95, "%")
POSTGRES_ENDED = Target(
    "postgres-ended", "Postgres: drain with 10 M ended rows, to 1 M", 1.2, 1.05, "×", Sense.MAX_AT
)
POSTGRES_RECOVERY = Target(
    "postgres-recovery", "Postgres: a killed worker's job starts again", 20, 8, "s", Sense.MAX_AT
)
POSTGRES_P50 = Target(
    "postgres-idle-p50", "Postgres: enqueue to start, idle, p50", 3, 2, "ms", Sense.MAX_AT
)
POSTGRES_P99 = Target(
    "postgres-idle-p99", "Postgres: enqueue to start, idle, p99", 10, 5, "ms", Sense.MAX_AT
)
POSTGRES_MEMORY = Target(
    "postgres-memory", "Postgres: memory of an idle worker", 80, 50, "MB", Sense.MAX_AT
)
POSTGRES_DEPTH = Target(
    "postgres-depth", "Postgres: claim cost with 3 M rows, to empty", 1.5, 1.1, "×", Sense.MAX_AT
)
POSTGRES_SNAPSHOT = Target(
    "postgres-snapshot", "Postgres: claim p99 under a held snapshot", 2, 2, "×", Sense.MAX_AT
)
POSTGRES_ANALYZE = Target(
    "postgres-analyze", "Postgres: speed after ANALYZE, to before", 0.8, 0.95, "×"
)

STEPS = Target("steps", "steps, FULL, to DBOS on SQLite", 15, 40, "×", level="full")
POSTGRES_STEPS = Target("postgres-steps", "Postgres: steps, to the best peer", 8, 15, "×")
POSTGRES_STEPS_LIMIT = Target(
    "postgres-steps-limit", "Postgres: steps, of raw SQL inserts", 40, 60, "%"
)
POSTGRES_STEPS_COST = Target(
    "postgres-steps-cost", "Postgres: CPU per step, best peer's to ours", 5, 10, "×"
)
POSTGRES_STEP_LONE = Target(
    "postgres-step-lone", "Postgres: a lone step, to the best peer", 1, 0.7, "×", Sense.MAX_AT
)
POSTGRES_RESUME_DBOS = Target(
    "postgres-step-resume-dbos", "Postgres: resume, faster than DBOS", 5, 20, "×"
)
POSTGRES_RESUME_ABSURD = Target(
    "postgres-step-resume-absurd", "Postgres: resume, to absurd", 1.2, 0.8, "×", Sense.MAX_AT
)
# No aim was set for memory and for the call of a broadcast: it is the bar.
POSTGRES_SLEEPING = Target(
    "postgres-step-sleeping", "Postgres: memory of 5,000 sleeping jobs", 1, 1, "MB", Sense.MAX_AT
)
POSTGRES_WAITING = Target(
    "postgres-step-waiting", "Postgres: memory of 100,000 waiting jobs", 5, 5, "MB", Sense.MAX_AT
)
POSTGRES_SEND_P50 = Target(
    "postgres-step-send-p50", "Postgres: send to next step, idle, p50", 5, 3, "ms", Sense.MAX_AT
)
POSTGRES_SEND_P99 = Target(
    "postgres-step-send-p99", "Postgres: send to next step, idle, p99", 20, 10, "ms", Sense.MAX_AT
)
POSTGRES_BROADCAST = Target(
    "postgres-step-broadcast", "Postgres: one event, 10,000 pending", 1.5, 0.5, "s", Sense.MAX_AT
)
POSTGRES_BROADCAST_CALL = Target(
    "postgres-step-broadcast-call", "Postgres: that sender's own call", 50, 50, "ms", Sense.MAX_AT
)

PAGES = Target("pages", "the slowest page over 1 M jobs", 100, 50, "ms", Sense.BELOW)
PAGES_BUSY = Target("pages-busy", "drain with 20 pages open, to none", 0.95, 0.98, "×")
PAGES_SIGHT = Target(
    "pages-sight", "from a change to its sight on a page, p99", 2, 1.5, "s", Sense.BELOW
)
PAGES_IDLE = Target("pages-idle", "50 open streams while nothing happens", 5, 2, "%", Sense.BELOW)
POSTGRES_PAGES = Target(
    "postgres-pages", "Postgres: the slowest page over 1 M jobs", 100, 50, "ms", Sense.BELOW
)
POSTGRES_PAGES_BUSY = Target(
    "postgres-pages-busy", "Postgres: drain with 20 pages open, to none", 0.95, 0.98, "×"
)
POSTGRES_PAGES_SIGHT = Target(
    "postgres-pages-sight", "Postgres: from a change to its sight, p99", 2, 1.5, "s", Sense.BELOW
)
POSTGRES_PAGES_IDLE = Target(
    "postgres-pages-idle", "Postgres: 50 open streams, nothing happens", 5, 2, "%", Sense.BELOW
)

ALL = (
    DRAIN_FULL, DRAIN_NORMAL, ENQUEUE_NORMAL, ENQUEUE_FULL, ENQUEUE_AWAITED_NORMAL,
    ENQUEUE_AWAITED_FULL, IDLE_P50, IDLE_P99, IDLE_CPU, MEMORY, START_WORKER, START_LIST,
    AWAIT, DEF_FULL, DEF_NORMAL, DEPTH, METRICS, POSTGRES_METRICS, LIMITS, POSTGRES_LIMITS, POOL,
    POSTGRES_DRAIN,
    POSTGRES_CEILING, POSTGRES_BULK,
    POSTGRES_ONE, POSTGRES_CALLERS, POSTGRES_P50, POSTGRES_P99, POSTGRES_MEMORY, POSTGRES_DEPTH,
    POSTGRES_SNAPSHOT, POSTGRES_SERVER, POSTGRES_SYNC, POSTGRES_AWAIT, POSTGRES_ENDED,
    POSTGRES_RECOVERY, POSTGRES_ANALYZE,
    STEPS, POSTGRES_STEPS, POSTGRES_STEPS_LIMIT, POSTGRES_STEPS_COST, POSTGRES_STEP_LONE,
    POSTGRES_RESUME_DBOS, POSTGRES_RESUME_ABSURD, POSTGRES_SLEEPING, POSTGRES_WAITING,
    POSTGRES_SEND_P50, POSTGRES_SEND_P99, POSTGRES_BROADCAST, POSTGRES_BROADCAST_CALL,
    PAGES, PAGES_BUSY, PAGES_SIGHT, PAGES_IDLE, POSTGRES_PAGES, POSTGRES_PAGES_BUSY,
    POSTGRES_PAGES_SIGHT, POSTGRES_PAGES_IDLE,
)  # fmt: skip


# Nobody set a bar for the door: it is shown beside servers that promise less.
DOOR_SQLITE = Target("door-sqlite", "door, SQLite, durable, to the best in memory", None, None, "×")
DOOR_POSTGRES = Target(
    "door-postgres", "door, Postgres, durable, to the best in memory", None, None, "×"
)
DOOR_P99 = Target("door-p99", "door, SQLite: p99 with 40 connections", None, None, "ms")
DOOR_P99_POSTGRES = Target(
    "door-postgres-p99", "door, Postgres: p99 with 40 connections", None, None, "ms"
)
DJANGO_DRAIN = Target("django-drain", "Django: drain of no-ops, to the best backend", 8, 12, "×")
DJANGO_ENQUEUE = Target(
    "django-enqueue", "Django: enqueue in atomic(), to the best", 1.1, 1, "×", Sense.MAX_AT
)
DJANGO_START = Target("django-start", "Django: enqueue to start, p50", 5, 3, "ms", Sense.MAX_AT)


def untargeted(key: str, text: str, unit: str = "×") -> Target:
    """A comparison that no target asks for."""
    return Target(key, text, None, None, unit)
