-- Looking after the schema. None of these is on a hot path.

-- name: probe
-- Whose server process answers (a pooler gives out numbers of its own), and what there is of ours.
SELECT pg_backend_pid() AS pid, to_regclass('forge.meta') IS NOT NULL AS ours,
    pg_is_in_recovery() AS standby, current_setting('server_encoding') AS encoding;

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

-- name: lock_patience
-- How long to wait for locks from here on; ends with the transaction.
SELECT set_config('lock_timeout', $1, true);

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
-- How many connections there are and how many there may be, less those kept for superusers.
SELECT count(*) AS used, current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer AS most
FROM pg_stat_activity WHERE backend_type = 'client backend';

-- name: sizes
-- How large each table of ours is, with its indexes and what was moved aside; asks the file system,
-- reads no row. Index: none, a handful of rows of the catalogue.
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'm')
ORDER BY bytes DESC, name;

-- name: workers
-- How many worker processes there are. Index: none, a handful of rows.
SELECT count(*) AS count FROM forge.processes;

-- name: oldest_snapshot
-- Who keeps vacuum from removing dead rows of this database, for how long, and what ends it.
SELECT who, age_s, cure FROM (
    SELECT 'process ' || pid || ' of user ' || COALESCE(usename, '?')
            || COALESCE(' (' || NULLIF(application_name, '') || ')', '')
            || COALESCE(', ' || state, '') AS who,
        extract(epoch FROM clock_timestamp() - xact_start)::double precision AS age_s,
        'end that transaction, if need be with SELECT pg_terminate_backend(' || pid || ')' AS cure
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
        AND xact_start IS NOT NULL AND (datname = current_database() OR datname IS NULL)
        AND query NOT LIKE 'autovacuum:%'
    UNION ALL
    SELECT 'the prepared transaction ' || quote_literal(gid) || ' of user ' || owner,
        extract(epoch FROM clock_timestamp() - prepared)::double precision,
        'COMMIT PREPARED or ROLLBACK PREPARED ' || quote_literal(gid)
    FROM pg_prepared_xacts WHERE database = current_database()
) AS holders
ORDER BY age_s DESC LIMIT 1;

-- name: hidden_sessions
-- How many sessions this user may not look into.
SELECT count(*) AS count FROM pg_stat_activity
WHERE backend_type = 'client backend' AND query = '<insufficient privilege>';

-- name: dead_rows
-- How much of each hot table is dead, the worst first, and whether anything cleans them.
SELECT c.relname AS name, pg_stat_get_live_tuples(c.oid) AS live,
    pg_stat_get_dead_tuples(c.oid) AS dead, current_setting('autovacuum') AS autovacuum,
    extract(epoch FROM clock_timestamp() - GREATEST(
        pg_stat_get_last_autovacuum_time(c.oid), pg_stat_get_last_vacuum_time(c.oid)
    ))::double precision AS vacuum_s
FROM unnest(ARRAY['jobs', 'history', 'ledger', 'dedupe', 'processes']) AS n(name)
JOIN pg_class c ON c.oid = to_regclass('forge.' || n.name)
ORDER BY dead DESC, n.name;

-- name: rights
-- Whether this user may do what workers and producers do; all true while there are no tables.
SELECT COALESCE(has_schema_privilege(to_regnamespace($1), 'USAGE'), true) AS enters,
    COALESCE(has_table_privilege(to_regclass('forge.jobs'), 'INSERT'), true)
        AND COALESCE(has_table_privilege(to_regclass('forge.jobs'), 'UPDATE'), true)
        AND COALESCE(has_table_privilege(to_regclass('forge.jobs'), 'DELETE'), true) AS writes,
    to_regnamespace($1) IS NOT NULL
        OR has_database_privilege(current_database(), 'CREATE') AS creates,
    current_setting('transaction_read_only') AS read_only, current_user AS name;

-- name: facts
-- The server's version, time, durability, and whose process answers.
SELECT current_setting('server_version') AS version,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync, pg_backend_pid() AS pid,
    to_regclass('forge.processes') IS NOT NULL AS ours;
