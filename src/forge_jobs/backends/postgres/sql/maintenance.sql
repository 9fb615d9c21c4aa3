-- Schema, size and diagnosis. None of these is on a hot path.

-- name: probe
-- The pid of the server process that answers (a pooler reports another one), and whether our tables are there.
SELECT pg_backend_pid() AS pid, to_regclass('forge.meta') IS NOT NULL AS ours,
    pg_is_in_recovery() AS standby, current_setting('server_encoding') AS encoding;

-- name: meta
-- Schema numbers, revisions of function sets, and the tag of this store. Index: the primary key.
SELECT name, value FROM forge.meta
UNION ALL
SELECT 'functions.' || name, revision::text FROM forge.function_sets;

-- name: set_meta
-- Stores one of them. Index: the primary key.
INSERT INTO forge.meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value;

-- name: set_function_set
-- Records which revision of a set of functions is installed. Index: the primary key.
INSERT INTO forge.function_sets (name, revision, functions) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET revision = EXCLUDED.revision, functions = EXCLUDED.functions;

-- name: installed_functions
-- The functions of all installed sets, also of releases that this one does not know.
SELECT unnest(functions) AS name FROM forge.function_sets;

-- name: lock_schema
-- One migration or installation of functions at a time. Ends with the transaction, so that no pooler can keep the
-- lock.
SELECT pg_advisory_xact_lock(hashtextextended('forge-jobs:' || $1, 0));

-- name: lock_timeout
-- How long to wait for locks from here on; ends with the transaction.
SELECT set_config('lock_timeout', $1, true);

-- name: schema_exists
-- Whether the schema has to be created first.
SELECT 1 FROM pg_namespace WHERE nspname = $1;

-- name: our_functions
-- Functions by name, with their signatures.
SELECT p.oid::regprocedure::text AS name FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = ANY ($2::text[]);

-- name: things_left
-- Whether the schema is empty: it is dropped only if nothing of others is in it.
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1
UNION ALL
SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1
LIMIT 1;

-- name: connection_count
-- How many connections are open and how many may be, less those reserved for superusers.
SELECT count(*) AS used, current_setting('max_connections')::integer
    - current_setting('superuser_reserved_connections')::integer AS max_connections
FROM pg_stat_activity WHERE backend_type = 'client backend';

-- name: sizes
-- The size of each of our tables, with indexes and TOAST; asks the file system, reads no row. Index: none, a handful
-- of rows of the catalogue.
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'm')
ORDER BY bytes DESC, name;

-- name: workers
-- The number of worker processes. Index: none, a handful of rows.
SELECT count(*) AS count FROM forge.processes;

-- name: oldest_snapshot
-- The session that keeps vacuum from removing dead rows of this database, for how long, and what ends it.
SELECT holder, age_s, cure FROM (
    SELECT 'process ' || pid || ' of user ' || COALESCE(usename, '?')
            || COALESCE(' (' || NULLIF(application_name, '') || ')', '')
            || COALESCE(', ' || state, '') AS holder,
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
-- How many sessions this user may not see into.
SELECT count(*) AS count FROM pg_stat_activity
WHERE backend_type = 'client backend' AND query = '<insufficient privilege>';

-- name: dead_rows
-- Dead and live rows of each hot table, the worst first, and when it was vacuumed.
SELECT c.relname AS name, pg_stat_get_live_tuples(c.oid) AS live,
    pg_stat_get_dead_tuples(c.oid) AS dead, current_setting('autovacuum') AS autovacuum,
    extract(epoch FROM clock_timestamp() - GREATEST(
        pg_stat_get_last_autovacuum_time(c.oid), pg_stat_get_last_vacuum_time(c.oid)
    ))::double precision AS vacuum_s
FROM unnest(ARRAY['jobs', 'history', 'counter_entries', 'dedupe_keys', 'processes', 'steps', 'waits', 'events'])
    AS n(name)
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
-- Version, time and durability of the server, and the pid of the process that answers.
SELECT current_setting('server_version') AS version,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync, pg_backend_pid() AS pid,
    to_regclass('forge.processes') IS NOT NULL AS ours;
