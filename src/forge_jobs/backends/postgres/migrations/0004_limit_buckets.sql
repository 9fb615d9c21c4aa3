-- What holds jobs back: permits of buckets, full keys and busy lanes.

-- Take up to p_permits whole permits from a bucket: core.bucket.taken. No row: granted is NULL. A
-- refusal writes nothing. Index: the primary key.
CREATE FUNCTION forge.take_permits(
    p_now bigint, p_scope text, p_permits integer,
    OUT granted integer, OUT retry_s double precision)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_bucket forge.buckets%ROWTYPE;
    v_tokens double precision;
BEGIN
    SELECT * INTO v_bucket FROM forge.buckets WHERE scope = p_scope FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_tokens := least(v_bucket.capacity, v_bucket.tokens
        + greatest(p_now - v_bucket.at, 0) / 1000000.0::double precision * v_bucket.refill_per_s);
    granted := least(greatest(p_permits, 0), floor(v_tokens + 0.000001::double precision))::integer;
    v_tokens := greatest(v_tokens - granted, 0);
    IF granted > 0 THEN
        UPDATE forge.buckets SET tokens = v_tokens, at = greatest(p_now, v_bucket.at)
        WHERE scope = p_scope;
    END IF;
    IF granted < p_permits AND v_bucket.refill_per_s > 0 THEN
        retry_s := (ceil((1 - v_tokens) / v_bucket.refill_per_s * 1000000)
            + greatest(v_bucket.at - p_now, 0)) / 1000000;
    END IF;
END
$$;

-- Lots: where jobs of full keys and busy lanes wait. A job in a lane takes the lane's seat before
-- anything else and keeps it until it waits for a later time or ends; a job with a limit key counts as
-- one of the key's from pending on. Whoever lets jobs go on, or stores new ones, holds the lot's lock
-- until its commit; what it counts after that is counted with a fresh snapshot. Locks of lots are
-- taken in one order, before those of limits; whoever cannot wait for one leaves the job marked as
-- new, and the next exchange that comes along looks at it.

-- The lot in which a job that comes due waits first; NULL for a job that nothing binds.
CREATE FUNCTION forge.first_lot(p_queue text, p_lane text, p_order text, p_key text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_order IS NOT NULL THEN 'lane:' || p_queue || '/' || p_lane ELSE p_key END
$$;

-- The lock of a lot. Lots share 512 locks, so that a transaction with many lots needs no more.
CREATE FUNCTION forge.lot_lock(p_lot text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('forge-jobs:forge:lots', 0) + (hashtextextended(p_lot, 0) & 511)
$$;

-- How many jobs of a key may run at once; NULL = any number.
CREATE FUNCTION forge.key_most(p_key text) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT l.concurrency FROM forge.limits l
    WHERE l.name = split_part(p_key, '/', 1) AND l.per IS NOT NULL
$$;

-- Whether a key is full. Its lock is held. Index: jobs_going.
CREATE FUNCTION forge.key_is_full(p_key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_most integer := forge.key_most(p_key);
BEGIN
    IF v_most IS NULL THEN
        RETURN false;
    END IF;
    RETURN v_most <= (SELECT count(*) FROM (
        SELECT 1 FROM forge.jobs j
        WHERE j.limit_key = p_key AND j.limit_key IS NOT NULL
            AND j.status IN ('pending', 'running')
        LIMIT v_most) AS g);
END
$$;

-- Let jobs of one lot go on, at most a thousand; the keys of those that became pending. The lot's
-- lock is held.
CREATE FUNCTION forge.admit_lot(p_lot text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queue text;
    v_lane text;
    v_head record;
    v_most integer;
    v_room integer := 1000;
    v_moved bigint[];
BEGIN
    UPDATE forge.jobs SET lot = p_lot WHERE status = 'held' AND lot = 'new:' || p_lot;
    IF p_lot LIKE 'lane:%' THEN
        v_queue := split_part(substr(p_lot, 6), '/', 1);
        v_lane := substr(p_lot, length(v_queue) + 7);
        -- Index: jobs_seat.
        IF EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
                AND (j.status IN ('pending', 'running')
                    OR (j.status = 'held' AND j.lot >= 'task:' AND j.lot < 'task<')))
        THEN
            RETURN '{}';
        END IF;
        -- Index: jobs_lane, walked in order; the condition is kept out of the choice.
        SELECT j.id, j.lane_order, j.limit_key INTO v_head FROM forge.jobs j
        WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
            AND (j.status = 'held' AND j.lot = p_lot) IS TRUE
        ORDER BY j.id LIMIT 1;
        IF NOT FOUND OR EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = v_queue AND j.lane = v_lane AND j.lane_order IS NOT NULL
                AND j.id < v_head.id AND (j.lane_order = 'strict' OR v_head.lane_order = 'strict'))
        THEN
            RETURN '{}';
        END IF;
        -- Whoever is changing it right now looks at this lot afterwards.
        PERFORM 1 FROM forge.jobs j
        WHERE j.id = v_head.id AND (j.status = 'held' AND j.lot = p_lot) IS TRUE
        FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN '{}';
        END IF;
        IF v_head.limit_key IS NOT NULL THEN
            IF NOT pg_try_advisory_xact_lock(forge.lot_lock(v_head.limit_key)) THEN
                UPDATE forge.jobs SET lot = 'new:' || limit_key WHERE id = v_head.id;
                RETURN '{}';
            ELSIF forge.key_is_full(v_head.limit_key) THEN
                UPDATE forge.jobs SET lot = limit_key WHERE id = v_head.id;
                RETURN '{}';
            END IF;
        END IF;
        v_moved := ARRAY[v_head.id];
    ELSE
        v_most := forge.key_most(p_lot);
        IF v_most IS NOT NULL THEN
            -- Index: jobs_going.
            SELECT least(v_most - count(*), v_room) INTO v_room FROM (
                SELECT 1 FROM forge.jobs j
                WHERE j.limit_key = p_lot AND j.limit_key IS NOT NULL
                    AND j.status IN ('pending', 'running')
                LIMIT v_most) AS g;
        END IF;
        IF v_room <= 0 THEN
            RETURN '{}';
        END IF;
        -- Index: jobs_held, in the order it gives.
        SELECT array_agg(l.id) INTO v_moved FROM (
            SELECT j.id FROM forge.jobs j WHERE j.status = 'held' AND j.lot = p_lot
            ORDER BY j.priority, j.id
            LIMIT v_room
            FOR UPDATE SKIP LOCKED
        ) AS l;
        IF v_moved IS NULL THEN
            RETURN '{}';
        END IF;
    END IF;
    UPDATE forge.jobs SET status = 'pending', lot = NULL WHERE id = ANY (v_moved);
    RETURN v_moved;
END
$$;

-- Jobs went on: into the books. The answer is the queues that have more to do.
CREATE FUNCTION forge.went_on(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_queues text[];
BEGIN
    IF p_jobs = '{}' THEN
        RETURN '{}';
    END IF;
    WITH booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'held', 'pending', count(*)
        FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY queue, kind
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM booked;
    RETURN v_queues;
END
$$;

-- Let jobs of these lots go on as far as there is room, waiting for the locks.
CREATE FUNCTION forge.settle(p_now bigint, p_lots text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '10s' AS $$
DECLARE
    v_lot text;
    v_moved bigint[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(o.lock) FROM (
        SELECT DISTINCT forge.lot_lock(l) AS lock FROM unnest(p_lots) AS l ORDER BY 1) AS o;
    FOREACH v_lot IN ARRAY p_lots LOOP
        v_moved := v_moved || forge.admit_lot(v_lot);
    END LOOP;
    RETURN forge.went_on(p_now, v_moved);
END
$$;

-- The same for the lots of jobs that have ended or wait for a later time. Index: the primary keys.
CREATE FUNCTION forge.settle_jobs(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_lots text[];
BEGIN
    SELECT array_agg(DISTINCT o.lot) INTO v_lots FROM (
        SELECT queue, lane, lane_order, limit_key FROM forge.jobs
        WHERE id = ANY (p_jobs) AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
        UNION ALL
        SELECT queue, lane, lane_order, limit_key FROM forge.history
        WHERE id = ANY (p_jobs) AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
    ) AS b
    CROSS JOIN LATERAL (
        SELECT forge.first_lot(b.queue, b.lane, b.lane_order, b.limit_key) AS lot
        UNION ALL SELECT b.limit_key WHERE b.limit_key IS NOT NULL
    ) AS o;
    RETURN CASE WHEN v_lots IS NULL THEN '{}' ELSE forge.settle(p_now, v_lots) END;
END
$$;

-- Where somebody cannot wait for the locks: the waiting jobs of these lots are marked as new.
CREATE FUNCTION forge.renew_lots(p_lots text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE forge.jobs SET lot = 'new:' || lot WHERE id IN (
        SELECT h.id FROM unnest(p_lots) AS l(lot) CROSS JOIN LATERAL (
            SELECT j.id FROM forge.jobs j WHERE j.status = 'held' AND j.lot = l.lot
            ORDER BY j.priority, j.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS h)
$$;

-- Look at jobs that are marked as new, without waiting for any lock. Index: jobs_held, one by one.
CREATE FUNCTION forge.admit_new(p_now bigint, p_limit integer) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_lot text := 'new:';
    v_moved bigint[] := '{}';
BEGIN
    FOR v_step IN 1 .. p_limit LOOP
        SELECT j.lot INTO v_lot FROM forge.jobs j
        WHERE j.status = 'held' AND j.lot > v_lot AND j.lot < 'new<'
        ORDER BY j.lot LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF pg_try_advisory_xact_lock(forge.lot_lock(substr(v_lot, 5))) THEN
            v_moved := v_moved || forge.admit_lot(substr(v_lot, 5));
        END IF;
    END LOOP;
    RETURN forge.went_on(p_now, v_moved);
END
$$;

-- The net: lots by name, behind p_after, with a job in them that may go on.
CREATE FUNCTION forge.admit(
    p_now bigint, p_after text, p_limit integer, OUT moved integer, OUT last text, OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_lot text := p_after;
    v_moved bigint[] := '{}';
BEGIN
    FOR v_step IN 1 .. p_limit LOOP
        SELECT j.lot INTO v_lot FROM forge.jobs j
        WHERE j.status = 'held' AND j.lot > v_lot ORDER BY j.lot LIMIT 1;
        EXIT WHEN NOT FOUND;
        last := v_lot;
        IF v_lot LIKE 'new:%' THEN
            v_lot := substr(v_lot, 5);
        END IF;
        IF pg_try_advisory_xact_lock(forge.lot_lock(v_lot)) THEN
            v_moved := v_moved || forge.admit_lot(v_lot);
        END IF;
        v_lot := last;
    END LOOP;
    moved := cardinality(v_moved);
    queues := forge.went_on(p_now, v_moved);
    IF NOT EXISTS (SELECT 1 FROM forge.jobs j WHERE j.status = 'held' AND j.lot > last) THEN
        last := NULL;
    END IF;
END
$$;

-- A limit changed: jobs of its keys that are in line are measured anew, at most p_limit of them and
-- those behind a key and a job. The answer is where to go on; NULL when all have been.
CREATE FUNCTION forge.measure_anew(
    p_now bigint, p_limit_name text, p_key text, p_id bigint, p_limit integer,
    OUT last_key text, OUT last_id bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_jobs bigint[];
    v_keys text[];
    v_lots text[];
BEGIN
    -- "0" follows "/". Index: jobs_going, walked in order.
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
    WITH moved AS (
        UPDATE forge.jobs j SET status = 'held', lot = j.limit_key
        WHERE j.id = ANY (v_jobs)
        RETURNING j.queue, j.kind
    )
    INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, 'pending', 'held', count(*)
    FROM moved GROUP BY queue, kind;
    IF cardinality(v_jobs) = p_limit THEN
        -- Nobody of the last key goes on before all of it has been measured.
        last_key := v_keys[p_limit];
        last_id := v_jobs[p_limit];
        SELECT array_agg(DISTINCT k) INTO v_lots FROM unnest(v_keys) AS k WHERE k <> last_key;
    ELSE
        -- Index: jobs_held, hopped through.
        WITH RECURSIVE steps (lot, place) AS (
            (SELECT j.lot, 1 FROM forge.jobs j
            WHERE j.status = 'held' AND j.lot >= p_limit_name || '/' AND j.lot < p_limit_name || '0'
            ORDER BY j.lot LIMIT 1)
            UNION ALL
            SELECT (SELECT j.lot FROM forge.jobs j
                WHERE j.status = 'held' AND j.lot > s.lot AND j.lot < p_limit_name || '0'
                ORDER BY j.lot LIMIT 1), s.place + 1
            FROM steps s WHERE s.lot IS NOT NULL AND s.place < p_limit
        )
        SELECT array_agg(s.lot) INTO v_lots FROM steps s WHERE s.lot IS NOT NULL;
    END IF;
    IF v_lots IS NOT NULL THEN
        PERFORM forge.settle(p_now, v_lots);
    END IF;
END
$$;
