-- set: steps_v1
-- revision: 2
-- requires: primitives_v1

-- Steps of running jobs, and the locks that fence them.
--
-- A step may be stored only while its claim is current. A transaction that stores steps holds the lock of its owner,
-- shared, until its commit; the reaper takes a job from an owner only with that lock, exclusively, and does not wait for
-- it. So do the owner's own transactions that end claims otherwise than by done: an earlier exchange, whose reply was
-- lost, may still be under way. No row of jobs is locked or written for a step.
-- A step in a user's own transaction, which may be long, locks the row of its job instead: nothing else of the owner has
-- to wait. Who could wait for such a row learns by a second lock of the owner that there are some.

-- The lock of an owner, for steps that are part of its exchanges.
CREATE OR REPLACE FUNCTION forge.owner_lock_v1(p_owner bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('forge-jobs:forge.owners', p_owner)
$$;

-- The lock that is held, shared, while a user's own transaction has stored a step of this owner's jobs.
CREATE OR REPLACE FUNCTION forge.open_steps_lock_v1(p_owner bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('forge-jobs:forge.open_steps', p_owner)
$$;

-- A step as JSON (rows.py reads it). Values are JSON text; as a string they come back byte for byte.
CREATE OR REPLACE FUNCTION forge.step_json_v1(p_step forge.steps) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_array(p_step.name, p_step.kind, p_step.epoch, p_step.began_at, p_step.ended_at,
        convert_from(p_step.value, 'UTF8'), p_step.fingerprint)
$$;

-- What a claim brings of the steps of its job: the first 1,000, at most 1 MiB of values but at least one. The length of
-- a value is known without reading it. Volatile, so that it sees what was committed before the job became claimable,
-- also in a statement that began earlier. Index: the primary key.
CREATE OR REPLACE FUNCTION forge.claimed_steps_v1(p_job bigint, p_failed_runs integer) RETURNS jsonb
LANGUAGE sql VOLATILE AS $$
    SELECT jsonb_build_object(
        'failed_runs', COALESCE(p_failed_runs, 0),
        'more', COALESCE(bool_or(NOT f.fits), false),
        'steps', COALESCE(jsonb_agg(
            jsonb_build_array(f.name, f.kind, f.epoch, f.began_at, f.ended_at, convert_from(f.value, 'UTF8'),
                f.fingerprint) ORDER BY f.number) FILTER (WHERE f.fits), '[]'))
    FROM (
        SELECT s.*, row_number() OVER w AS number, row_number() OVER w = 1 OR (row_number() OVER w <= 1000
            AND COALESCE(sum(octet_length(s.value)) OVER w, 0) <= 1048576) AS fits
        FROM (SELECT * FROM forge.steps WHERE job = p_job ORDER BY name LIMIT 1001) AS s
        WINDOW w AS (ORDER BY s.name)
    ) AS f
$$;

-- Stores steps of claims that this owner still holds; the first write of a name stays. Returns NULL if all were stored
-- now, else [[position, step that is stored before or NULL if the claim is not current], …] of the others. The owner's
-- lock is held. Index: the primary keys.
CREATE OR REPLACE FUNCTION forge.store_steps_v1(
    p_owner bigint, p_keys bigint[], p_epochs integer[], p_names text[], p_kinds text[], p_began bigint[],
    p_ended bigint[], p_values bytea[], p_fingerprints bigint[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_names text[];
BEGIN
    WITH written AS (
        INSERT INTO forge.steps (job, began_at, ended_at, epoch, kind, name, value, fingerprint)
        SELECT g.key, g.began_at, g.ended_at, g.epoch, g.kind, g.name, g.value, g.fingerprint
        FROM unnest(p_keys, p_epochs, p_names, p_kinds, p_began, p_ended, p_values, p_fingerprints)
            AS g(key, epoch, name, kind, began_at, ended_at, value, fingerprint)
        JOIN forge.jobs j ON j.id BETWEEN g.key AND g.key AND j.epoch = g.epoch
        WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        ON CONFLICT DO NOTHING
        RETURNING job, name
    )
    SELECT array_agg(job), array_agg(name) INTO v_jobs, v_names FROM written;
    IF cardinality(v_jobs) = cardinality(p_keys) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT jsonb_agg(jsonb_build_array(g.ordinal - 1, s.step))
        FROM unnest(p_keys, p_epochs, p_names) WITH ORDINALITY AS g(key, epoch, name, ordinal)
        LEFT JOIN LATERAL (
            SELECT s.epoch, forge.step_json_v1(s) AS step FROM forge.steps s
            JOIN forge.jobs j ON j.id BETWEEN s.job AND s.job AND j.epoch = g.epoch
            WHERE (s.job, s.name) BETWEEN (g.key, g.name) AND (g.key, g.name)
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
        ) AS s ON true
        WHERE s.epoch IS DISTINCT FROM g.epoch
            OR NOT EXISTS (SELECT 1 FROM unnest(v_jobs, v_names) AS w(job, name)
                WHERE w.job = g.key AND w.name = g.name)
            -- The same name twice in one call.
            OR EXISTS (SELECT 1 FROM unnest(p_keys, p_epochs, p_names) WITH ORDINALITY AS f(key, epoch, name, ordinal)
                WHERE f.key = g.key AND f.epoch = g.epoch AND f.name = g.name AND f.ordinal < g.ordinal));
END
$$;

-- Stores a step in a user's own transaction. Until that ends, nobody can take the job from its owner. Errors leave the
-- transaction unable to commit: FJ001 another database, FJ002 the claim is not current, FJ003 the name is taken.
CREATE OR REPLACE FUNCTION forge.store_step_json_v1(p_tag text, p_owner bigint, p_step json) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '5s' AS $$
DECLARE
    v_step record;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM forge.meta WHERE name = 'tag' AND value = p_tag) THEN
        RAISE EXCEPTION 'these are not the jobs of this store' USING ERRCODE = 'FJ001';
    END IF;
    SELECT * INTO v_step FROM json_to_record(p_step) AS s(key bigint, epoch integer, name text, kind text,
        began_at bigint, ended_at bigint, value text, fingerprint bigint);
    PERFORM pg_advisory_xact_lock_shared(forge.open_steps_lock_v1(p_owner));
    PERFORM 1 FROM forge.jobs j
    WHERE j.id = v_step.key AND j.epoch = v_step.epoch AND (j.owner = p_owner AND j.status = 'running') IS TRUE
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this process no longer owns the job of step %', v_step.name USING ERRCODE = 'FJ002';
    END IF;
    INSERT INTO forge.steps (job, began_at, ended_at, epoch, kind, name, value, fingerprint)
    VALUES (v_step.key, v_step.began_at, v_step.ended_at, v_step.epoch, v_step.kind, v_step.name,
        convert_to(v_step.value, 'UTF8'), v_step.fingerprint)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is stored already', v_step.name USING ERRCODE = 'FJ003';
    END IF;
END
$$;

-- Marks claims as started that wait for nobody: rows that a user's own transaction has locked are left out. Returns
-- whether a dedupe key has to be freed, and the claims to mark later.
CREATE OR REPLACE FUNCTION forge.mark_started_v1(
    p_now bigint, p_owner bigint, p_keys bigint[], p_epochs integer[], OUT waiting boolean, OUT unmarked jsonb)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH own AS MATERIALIZED (
        SELECT j.id FROM forge.jobs j
        WHERE j.id = ANY (p_keys) AND j.epoch = p_epochs[width_bucket(j.id, p_keys)]
            AND (j.owner = p_owner AND j.status = 'running') IS TRUE AND j.started_at IS NULL
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    marked AS (
        UPDATE forge.jobs j SET started_at = p_now FROM own WHERE j.id BETWEEN own.id AND own.id
        RETURNING j.unique_waiting
    )
    SELECT bool_or(unique_waiting) INTO waiting FROM marked;
    SELECT jsonb_agg(jsonb_build_array(j.id, j.epoch)) INTO unmarked FROM forge.jobs j
    WHERE j.id = ANY (p_keys) AND j.epoch = p_epochs[width_bucket(j.id, p_keys)]
        AND (j.owner = p_owner AND j.status = 'running') IS TRUE AND j.started_at IS NULL;
END
$$;
