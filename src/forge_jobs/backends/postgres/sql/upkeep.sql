-- Looking after the schema. None of these is on a hot path.

-- name: probe
-- Whose server process answers (a pooler gives out numbers of its own), and what there is of ours.
SELECT pg_backend_pid() AS pid, to_regclass('forge.meta') IS NOT NULL AS ours,
    pg_is_in_recovery() AS standby;

-- name: meta
-- The few facts about the schema itself. Index: the primary key.
SELECT name, value FROM forge.meta;

-- name: set_meta
-- Record one of them. Index: the primary key.
INSERT INTO forge.meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value;

-- name: lock_schema
-- One migration at a time; ends with the transaction, so that no pooler can hand the lock on.
SELECT pg_advisory_xact_lock(hashtextextended('forge-jobs:' || $1, 0));

-- name: schema_exists
-- Whether there is anything to create first.
SELECT 1 FROM pg_namespace WHERE nspname = $1;

-- name: our_functions
-- Everything of ours that DROP TABLE leaves behind.
SELECT p.oid::regprocedure::text AS name FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = ANY ($2::text[]);

-- name: things_left
-- Whether the schema is empty now: it goes only if nobody else put something there.
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1
UNION ALL
SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1
LIMIT 1;

-- name: room
-- How many connections there are and how many there may be.
SELECT count(*) AS used, current_setting('max_connections')::integer AS most
FROM pg_stat_activity WHERE backend_type = 'client backend';

-- name: oldest_snapshot
-- Who keeps vacuum from removing dead rows, and for how long.
SELECT pid, usename, COALESCE(state, '') AS state,
    extract(epoch FROM clock_timestamp() - xact_start)::double precision AS age_s
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
ORDER BY xact_start LIMIT 1;

-- name: dead_rows
-- How much of the hot table is dead, and when it was cleaned last.
SELECT n_live_tup AS live, n_dead_tup AS dead,
    extract(epoch FROM clock_timestamp() - GREATEST(last_autovacuum, last_vacuum))::double precision
        AS vacuum_s
FROM pg_stat_all_tables WHERE relid = to_regclass('forge.jobs');

-- name: facts
-- The server's version, time and durability.
SELECT current_setting('server_version') AS version,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync;
