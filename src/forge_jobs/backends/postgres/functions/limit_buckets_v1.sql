-- set: limit_buckets_v1
-- revision: 2
-- requires: primitives_v1

-- Limit buckets: which jobs of full limit keys and busy lanes are held, and when they may become pending.
--
-- A job in a lane occupies the lane before it counts against any other limit, and does so until it waits for a
-- later time or reaches a terminal state. A job with a limit key counts against the key from pending on.
-- A transaction that admits jobs of a bucket, or stores new ones, holds the bucket's advisory lock until its
-- commit; what it counts after that is counted with a fresh snapshot. Locks of buckets are taken in one order,
-- before those of limits.
-- A transaction that cannot wait for a lock marks the job as unchecked (the prefix new: before the bucket's name);
-- the next exchange checks it.

-- The limit bucket in which a due job waits first; NULL for a job that no lane or key binds.
CREATE OR REPLACE FUNCTION forge.first_limit_bucket_v1(p_queue text, p_lane text, p_order text, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_order IS NOT NULL THEN 'lane:' || p_queue || '/' || p_lane ELSE p_key END
$$;

-- The advisory lock of a limit bucket. Buckets share 512 locks, so that a transaction with many buckets needs no
-- more than that.
CREATE OR REPLACE FUNCTION forge.limit_bucket_lock_v1(p_bucket text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('forge-jobs:forge:buckets', 0) + (hashtextextended(p_bucket, 0) & 511)
$$;

-- How many jobs of a limit key may run at once; NULL = any number.
CREATE OR REPLACE FUNCTION forge.limit_key_max_v1(p_key text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT l.concurrency FROM forge.limits l
    WHERE l.name = split_part(p_key, '/', 1) AND l.per IS NOT NULL
$$;

-- Whether a limit key is full. Its lock is held. Index: jobs_limit_key.
CREATE OR REPLACE FUNCTION forge.limit_key_is_full_v1(p_key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_max integer := forge.limit_key_max_v1(p_key);
BEGIN
    IF v_max IS NULL THEN
        RETURN false;
    END IF;
    RETURN v_max <= (SELECT count(*) FROM (
        SELECT 1 FROM forge.jobs j
        WHERE j.limit_key = p_key AND j.limit_key IS NOT NULL
            AND j.status IN ('pending', 'running')
        LIMIT v_max) AS g);
END
$$;

-- Admits jobs of one bucket, at most a thousand; returns the ids of those that became pending. The bucket's lock is
-- held.
CREATE OR REPLACE FUNCTION forge.admit_from_bucket_v1(p_bucket text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queue text;
    v_lane text;
    v_head record;
    v_max integer;
    v_room integer := 1000;
    v_admitted bigint[];
BEGIN
    UPDATE forge.jobs SET limit_bucket = p_bucket WHERE status = 'held' AND limit_bucket = 'new:' || p_bucket;
    IF p_bucket LIKE 'lane:%' THEN
        v_queue := split_part(substr(p_bucket, 6), '/', 1);
        v_lane := substr(p_bucket, length(v_queue) + 7);
        -- Index: jobs_lane_active.
        IF EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
                AND (j.status IN ('pending', 'running')
                    OR (j.status = 'held' AND j.limit_bucket >= 'task:' AND j.limit_bucket < 'task<')))
        THEN
            RETURN '{}';
        END IF;
        -- Index: jobs_lane, read in order; IS TRUE keeps the condition out of the choice of an index.
        SELECT j.id, j.lane_order, j.limit_key INTO v_head FROM forge.jobs j
        WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
            AND (j.status = 'held' AND j.limit_bucket = p_bucket) IS TRUE
        ORDER BY j.id LIMIT 1;
        IF NOT FOUND OR EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
                AND j.id < v_head.id AND (j.lane_order = 'strict' OR v_head.lane_order = 'strict'))
        THEN
            RETURN '{}';
        END IF;
        -- A transaction that is changing the row now checks this bucket afterwards.
        PERFORM 1 FROM forge.jobs j
        WHERE j.id = v_head.id AND (j.status = 'held' AND j.limit_bucket = p_bucket) IS TRUE
        FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN '{}';
        END IF;
        IF v_head.limit_key IS NOT NULL THEN
            IF NOT pg_try_advisory_xact_lock(forge.limit_bucket_lock_v1(v_head.limit_key)) THEN
                UPDATE forge.jobs SET limit_bucket = 'new:' || limit_key WHERE id = v_head.id;
                RETURN '{}';
            ELSIF forge.limit_key_is_full_v1(v_head.limit_key) THEN
                UPDATE forge.jobs SET limit_bucket = limit_key WHERE id = v_head.id;
                RETURN '{}';
            END IF;
        END IF;
        v_admitted := ARRAY[v_head.id];
    ELSE
        v_max := forge.limit_key_max_v1(p_bucket);
        IF v_max IS NOT NULL THEN
            -- Index: jobs_limit_key.
            SELECT least(v_max - count(*), v_room) INTO v_room FROM (
                SELECT 1 FROM forge.jobs j
                WHERE j.limit_key = p_bucket AND j.limit_key IS NOT NULL
                    AND j.status IN ('pending', 'running')
                LIMIT v_max) AS g;
        END IF;
        IF v_room <= 0 THEN
            RETURN '{}';
        END IF;
        -- Index: jobs_held, in its order.
        SELECT array_agg(l.id) INTO v_admitted FROM (
            SELECT j.id FROM forge.jobs j WHERE j.status = 'held' AND j.limit_bucket = p_bucket
            ORDER BY j.priority, j.id
            LIMIT v_room
            FOR UPDATE SKIP LOCKED
        ) AS l;
        IF v_admitted IS NULL THEN
            RETURN '{}';
        END IF;
    END IF;
    UPDATE forge.jobs SET status = 'pending', limit_bucket = NULL WHERE id = ANY (v_admitted);
    RETURN v_admitted;
END
$$;

-- Writes counter entries for admitted jobs; returns the queues that have more to do.
CREATE OR REPLACE FUNCTION forge.count_admitted_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_queues text[];
BEGIN
    IF p_jobs = '{}' THEN
        RETURN '{}';
    END IF;
    WITH counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'held', 'pending', count(*)
        FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY queue, kind
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM counted;
    RETURN v_queues;
END
$$;

-- Admits jobs of these buckets as far as there is room. Waits for the locks.
CREATE OR REPLACE FUNCTION forge.admit_buckets_v1(p_now bigint, p_buckets text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '10s' AS $$
DECLARE
    v_bucket text;
    v_admitted bigint[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(o.lock) FROM (
        SELECT DISTINCT forge.limit_bucket_lock_v1(l) AS lock FROM unnest(p_buckets) AS l ORDER BY 1) AS o;
    FOREACH v_bucket IN ARRAY p_buckets LOOP
        v_admitted := v_admitted || forge.admit_from_bucket_v1(v_bucket);
    END LOOP;
    RETURN forge.count_admitted_v1(p_now, v_admitted);
END
$$;

-- The same for the buckets of jobs that were finished or wait for a later time. Index: the primary keys.
CREATE OR REPLACE FUNCTION forge.admit_buckets_of_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_buckets text[];
BEGIN
    SELECT array_agg(DISTINCT o.limit_bucket) INTO v_buckets FROM (
        SELECT queue, lane, lane_order, limit_key FROM forge.jobs
        WHERE id = ANY (p_jobs) AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
        UNION ALL
        SELECT queue, lane, lane_order, limit_key FROM forge.history
        WHERE id = ANY (p_jobs) AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
    ) AS b
    CROSS JOIN LATERAL (
        SELECT forge.first_limit_bucket_v1(b.queue, b.lane, b.lane_order, b.limit_key) AS limit_bucket
        UNION ALL SELECT b.limit_key WHERE b.limit_key IS NOT NULL
    ) AS o;
    RETURN CASE WHEN v_buckets IS NULL THEN '{}' ELSE forge.admit_buckets_v1(p_now, v_buckets) END;
END
$$;

-- Holds released or reaped jobs whose limit key was lowered below what ran: the least urgent and newest first. They
-- are pending and their rows are locked. Index: the primary key, jobs_limit_key.
CREATE OR REPLACE FUNCTION forge.hold_over_limits_v1(p_now bigint, p_jobs bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '10s' AS $$
DECLARE
    v_keys text[];
    v_key text;
    v_max integer;
    v_over integer;
BEGIN
    SELECT array_agg(DISTINCT j.limit_key) INTO v_keys FROM forge.jobs j
    WHERE j.id = ANY (p_jobs) AND (j.status = 'pending' AND j.limit_key IS NOT NULL) IS TRUE;
    IF v_keys IS NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(o.lock) FROM (
        SELECT DISTINCT forge.limit_bucket_lock_v1(k) AS lock FROM unnest(v_keys) AS k ORDER BY 1) AS o;
    FOREACH v_key IN ARRAY v_keys LOOP
        v_max := forge.limit_key_max_v1(v_key);
        CONTINUE WHEN v_max IS NULL;
        SELECT count(*) - v_max INTO v_over FROM forge.jobs j
        WHERE j.limit_key = v_key AND j.limit_key IS NOT NULL AND j.status IN ('pending', 'running');
        CONTINUE WHEN v_over <= 0;
        WITH held AS (
            UPDATE forge.jobs SET status = 'held', limit_bucket = limit_key WHERE id = ANY (ARRAY(
                SELECT j.id FROM forge.jobs j
                WHERE j.id = ANY (p_jobs) AND (j.status = 'pending' AND j.limit_key = v_key) IS TRUE
                ORDER BY j.priority DESC, j.id DESC
                LIMIT v_over))
            RETURNING queue, kind
        )
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'pending', 'held', count(*)
        FROM held GROUP BY queue, kind;
    END LOOP;
END
$$;

-- For transactions that cannot wait for the locks: marks the first waiting job of each bucket as unchecked.
CREATE OR REPLACE FUNCTION forge.mark_buckets_unchecked_v1(p_buckets text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE forge.jobs SET limit_bucket = 'new:' || limit_bucket WHERE id IN (
        SELECT h.id FROM unnest(p_buckets) AS l(limit_bucket) CROSS JOIN LATERAL (
            SELECT j.id FROM forge.jobs j WHERE j.status = 'held' AND j.limit_bucket = l.limit_bucket
            ORDER BY j.priority, j.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS h)
$$;

-- Admits jobs that are marked as unchecked, without waiting for any lock. Index: jobs_held, one bucket per step.
CREATE OR REPLACE FUNCTION forge.admit_unchecked_v1(p_now bigint, p_limit integer) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_bucket text := 'new:';
    v_admitted bigint[] := '{}';
BEGIN
    FOR v_step IN 1 .. p_limit LOOP
        SELECT j.limit_bucket INTO v_bucket FROM forge.jobs j
        WHERE j.status = 'held' AND j.limit_bucket > v_bucket AND j.limit_bucket < 'new<'
        ORDER BY j.limit_bucket LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF pg_try_advisory_xact_lock(forge.limit_bucket_lock_v1(substr(v_bucket, 5))) THEN
            v_admitted := v_admitted || forge.admit_from_bucket_v1(substr(v_bucket, 5));
        END IF;
    END LOOP;
    RETURN forge.count_admitted_v1(p_now, v_admitted);
END
$$;

-- The safety net: checks buckets by name, after p_after, and admits what may run. The transitions admit jobs
-- themselves; this repairs what they missed.
CREATE OR REPLACE FUNCTION forge.sweep_buckets_v1(
    p_now bigint, p_after text, p_limit integer, OUT admitted integer, OUT last text, OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_bucket text := p_after;
    v_admitted bigint[] := '{}';
BEGIN
    FOR v_step IN 1 .. p_limit LOOP
        SELECT j.limit_bucket INTO v_bucket FROM forge.jobs j
        WHERE j.status = 'held' AND j.limit_bucket > v_bucket ORDER BY j.limit_bucket LIMIT 1;
        EXIT WHEN NOT FOUND;
        last := v_bucket;
        IF v_bucket LIKE 'new:%' THEN
            v_bucket := substr(v_bucket, 5);
        END IF;
        IF pg_try_advisory_xact_lock(forge.limit_bucket_lock_v1(v_bucket)) THEN
            v_admitted := v_admitted || forge.admit_from_bucket_v1(v_bucket);
        END IF;
        v_bucket := last;
    END LOOP;
    admitted := cardinality(v_admitted);
    queues := forge.count_admitted_v1(p_now, v_admitted);
    IF NOT EXISTS (SELECT 1 FROM forge.jobs j WHERE j.status = 'held' AND j.limit_bucket > last) THEN
        last := NULL;
    END IF;
END
$$;

-- After a change of a limit: pending jobs of its keys become held and are admitted anew, at most p_limit of them
-- and those behind the position (p_key, p_id). Returns the position to continue from; NULL when all are done.
-- First it takes the locks of all buckets: a transaction that admitted jobs by the old number holds one of them until
-- its commit, and its pending jobs are seen only after that. It waits for no row, so that it can take them first.
CREATE OR REPLACE FUNCTION forge.reapply_limit_v1(
    p_now bigint, p_limit_name text, p_key text, p_id bigint, p_limit integer,
    OUT last_key text, OUT last_id bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET lock_timeout = '10s' AS $$
DECLARE
    v_jobs bigint[];
    v_keys text[];
    v_buckets text[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('forge-jobs:forge:buckets', 0) + n)
    FROM generate_series(0, 511) AS n;
    -- "0" follows "/". Index: jobs_limit_key, in its order.
    SELECT array_agg(w.id ORDER BY w.limit_key, w.id),
        array_agg(w.limit_key ORDER BY w.limit_key, w.id)
    INTO v_jobs, v_keys FROM (
        SELECT j.limit_key, j.id FROM forge.jobs j
        WHERE (j.limit_key, j.id) > (p_key COLLATE "C", p_id)
            AND j.limit_key < p_limit_name || '0'
            AND j.limit_key IS NOT NULL AND j.status IN ('pending', 'running')
            AND j.status = 'pending'
        ORDER BY j.limit_key, j.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS w;
    WITH changed AS (
        UPDATE forge.jobs j SET status = 'held', limit_bucket = j.limit_key
        WHERE j.id = ANY (v_jobs)
        RETURNING j.queue, j.kind
    )
    INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, 'pending', 'held', count(*)
    FROM changed GROUP BY queue, kind;
    IF cardinality(v_jobs) = p_limit THEN
        -- No job of the last key is admitted before all of its jobs have been checked.
        last_key := v_keys[p_limit];
        last_id := v_jobs[p_limit];
        SELECT array_agg(DISTINCT k) INTO v_buckets FROM unnest(v_keys) AS k WHERE k <> last_key;
    ELSE
        -- Index: jobs_held, one step per bucket.
        WITH RECURSIVE steps (limit_bucket, ordinal) AS (
            (SELECT j.limit_bucket, 1 FROM forge.jobs j
            WHERE j.status = 'held' AND j.limit_bucket >= p_limit_name || '/' AND j.limit_bucket < p_limit_name || '0'
            ORDER BY j.limit_bucket LIMIT 1)
            UNION ALL
            SELECT (SELECT j.limit_bucket FROM forge.jobs j
                WHERE j.status = 'held' AND j.limit_bucket > s.limit_bucket AND j.limit_bucket < p_limit_name || '0'
                ORDER BY j.limit_bucket LIMIT 1), s.ordinal + 1
            FROM steps s WHERE s.limit_bucket IS NOT NULL AND s.ordinal < p_limit
        )
        SELECT array_agg(s.limit_bucket) INTO v_buckets FROM steps s WHERE s.limit_bucket IS NOT NULL;
    END IF;
    IF v_buckets IS NOT NULL THEN
        PERFORM forge.admit_buckets_v1(p_now, v_buckets);
    END IF;
END
$$;
