-- set: primitives_v1
-- revision: 3
-- requires: none

-- Small functions that several sets share: the store clock, histogram buckets, error lists, moves to history,
-- dedupe keys.
--
-- All functions here and in the other sets are part of the caller's transaction. They run on the server so that an
-- exchange is one round trip and each statement sees what the one before it wrote.
--
-- Settings on the functions: a plan that was made while a table was empty must not be kept after it has grown. So
-- the planner may only choose index scans and nested loops, which are right for every batch size here.
-- The guard of a claim is written (owner = … AND status = …) IS TRUE to keep it out of the choice of an index: a
-- job is found by its primary key, never by its owner.
-- ANALYZE may see an empty table that is full a moment later, or full of dead rows that an old snapshot keeps. A join
-- of a list of ids with jobs by equality would then begin with all of jobs, in the order of the primary key. So such a
-- join is written j.id BETWEEN l.id AND l.id (or with two columns on each side): an index lookup all the
-- same, but no condition that rows can be merged by. For the same reason an ORDER BY that only orders locks says
-- j.id + 0.

-- Store time: the clock of the server, or the instant that a test binds.
CREATE OR REPLACE FUNCTION forge.store_now_v1(p_now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT COALESCE(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The histogram bucket of a duration as one byte. The bounds equal those of core.histogram and must never differ
-- from them. A plain expression, so that the planner can inline it.
CREATE OR REPLACE FUNCTION forge.histogram_bucket_v1(p_s double precision) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT set_byte(E'\\x00'::bytea, 0, width_bucket(p_s, '{
        1e-05, 2e-05, 5e-05, 0.0001, 0.000112, 0.000125, 0.00014, 0.00016, 0.00018, 0.0002,
        0.000224, 0.00025, 0.00028, 0.000315, 0.000355, 0.0004, 0.00045, 0.0005, 0.00056,
        0.00063, 0.00071, 0.0008, 0.0009, 0.001, 0.00112, 0.00125, 0.0014, 0.0016, 0.0018,
        0.002, 0.00224, 0.0025, 0.0028, 0.00315, 0.00355, 0.004, 0.0045, 0.005, 0.0056, 0.0063,
        0.0071, 0.008, 0.009, 0.01, 0.0112, 0.0125, 0.014, 0.016, 0.018, 0.02, 0.0224, 0.025,
        0.028, 0.0315, 0.0355, 0.04, 0.045, 0.05, 0.056, 0.063, 0.071, 0.08, 0.09, 0.1, 0.112,
        0.125, 0.14, 0.16, 0.18, 0.2, 0.224, 0.25, 0.28, 0.315, 0.355, 0.4, 0.45, 0.5, 0.56,
        0.63, 0.71, 0.8, 0.9, 1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8, 3.15, 3.55,
        4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0, 10.0, 11.2, 12.5, 14.0, 16.0, 18.0, 20.0, 22.4,
        25.0, 28.0, 31.5, 35.5, 40.0, 45.0, 50.0, 56.0, 63.0, 71.0, 80.0, 90.0, 100.0, 112.0,
        125.0, 140.0, 160.0, 180.0, 200.0, 224.0, 250.0, 280.0, 315.0, 355.0, 400.0, 450.0,
        500.0, 560.0, 630.0, 710.0, 800.0, 900.0, 1000.0, 1120.0, 1250.0, 1400.0, 1600.0,
        1800.0, 2000.0, 2240.0, 2500.0, 2800.0, 3150.0, 3550.0, 4000.0, 4500.0, 5000.0, 5600.0,
        6300.0, 7100.0, 8000.0, 9000.0, 10000.0, 11200.0, 12500.0, 14000.0, 16000.0, 18000.0,
        20000.0, 22400.0, 25000.0, 28000.0, 31500.0, 35500.0, 40000.0, 45000.0, 50000.0,
        56000.0, 63000.0, 71000.0, 80000.0, 90000.0, 100000.0, 112000.0, 125000.0, 140000.0,
        160000.0, 180000.0, 200000.0, 224000.0, 250000.0, 280000.0, 315000.0, 355000.0,
        400000.0, 450000.0, 500000.0, 560000.0, 630000.0, 710000.0, 800000.0, 900000.0,
        1000000.0
    }'::double precision[]))
$$;

-- An error list with one more entry; it keeps the newest 32. p_group: its error group.
CREATE OR REPLACE FUNCTION forge.append_error_v1(p_errors jsonb, p_at bigint, p_attempt integer, p_message text,
    p_started_at bigint, p_due_at bigint, p_owner bigint, p_group text)
RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_array_length(p_errors) >= 32 THEN p_errors - 0
            ELSE COALESCE(p_errors, '[]') END
        || jsonb_build_array(
            jsonb_build_array(p_at, p_attempt, p_message, p_started_at, p_due_at, p_owner, p_group))
$$;

-- What last_error says of a job that expired.
CREATE OR REPLACE FUNCTION forge.expiry_message_v1() RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'expired before it could start'
$$;

-- Moves rows that have a terminal state to history. Both tables have the same columns in the same order.
CREATE OR REPLACE FUNCTION forge.archive_v1(p_jobs bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH deleted AS (DELETE FROM forge.jobs WHERE id = ANY (p_jobs) RETURNING *)
    INSERT INTO forge.history SELECT * FROM deleted
$$;

-- Frees the dedupe keys of jobs that are unique only while they wait, when they start. Rows are locked in the order
-- of the keys, as everywhere.
CREATE OR REPLACE FUNCTION forge.free_keys_at_start_v1(p_jobs bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH own AS MATERIALIZED (
        SELECT d.kind, d.key
        FROM forge.jobs j
        JOIN forge.dedupe_keys d
            ON (d.kind, d.key) BETWEEN (j.kind, j.dedupe_key) AND (j.kind, j.dedupe_key) AND d.job = j.id
        WHERE j.id = ANY (p_jobs) AND j.unique_waiting
        ORDER BY d.kind || '', d.key || ''
        FOR UPDATE OF d
    )
    DELETE FROM forge.dedupe_keys d USING own
    WHERE (d.kind, d.key) BETWEEN (own.kind, own.key) AND (own.kind, own.key)
$$;

-- Frees the dedupe keys of jobs that have just moved to history, or keeps them for dedupe_for_s more.
-- p_ran: their worker finished them, so they had started.
CREATE OR REPLACE FUNCTION forge.free_keys_at_end_v1(p_jobs bigint[], p_now bigint, p_ran boolean) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH own AS MATERIALIZED (
        SELECT d.kind, d.key,
            CASE WHEN NOT (p_ran AND h.unique_waiting) AND h.dedupe_for_s > 0
                THEN p_now + round(h.dedupe_for_s * 1000000)::bigint END AS until
        FROM forge.history h
        JOIN forge.dedupe_keys d
            ON (d.kind, d.key) BETWEEN (h.kind, h.dedupe_key) AND (h.kind, h.dedupe_key) AND d.job = h.id
        WHERE h.id = ANY (p_jobs) AND h.dedupe_key IS NOT NULL
        ORDER BY d.kind || '', d.key || ''
        FOR UPDATE OF d
    ),
    kept AS (
        UPDATE forge.dedupe_keys d SET until = own.until FROM own
        WHERE (d.kind, d.key) BETWEEN (own.kind, own.key) AND (own.kind, own.key) AND own.until IS NOT NULL
    )
    DELETE FROM forge.dedupe_keys d USING own
    WHERE (d.kind, d.key) BETWEEN (own.kind, own.key) AND (own.kind, own.key) AND own.until IS NULL
$$;
