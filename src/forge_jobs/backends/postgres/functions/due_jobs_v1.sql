-- set: due_jobs_v1
-- revision: 3
-- requires: primitives_v1, limit_buckets_v1, events_v1

-- Promotion of due jobs, expiry, and the cancellation of waiting jobs.

-- Due jobs of one queue become pending, at most p_limit; expired ones are cancelled instead. Suspended ones have a wait
-- that must be decided, so that they take a path of their own. Index: jobs_due.
CREATE OR REPLACE FUNCTION forge.promote_queue_v1(
    p_now bigint, p_queue text, p_limit integer, OUT promoted integer, OUT expired integer)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_terminal bigint[];
    v_buckets text[];
    v_bound boolean;
    v_suspended bigint[];
BEGIN
    WITH due AS MATERIALIZED (
        SELECT j.id, j.status, COALESCE(j.expires_at <= p_now, false) AS late,
            forge.first_limit_bucket_v1(j.queue, j.lane, j.lane_order, j.limit_key) AS limit_bucket
        FROM forge.jobs j
        WHERE j.queue = p_queue AND j.status IN ('scheduled', 'failed', 'suspended') AND j.run_at <= p_now
        ORDER BY j.run_at, j.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ),
    changed AS (
        UPDATE forge.jobs j
        SET status = CASE WHEN due.late THEN 'cancelled'
                WHEN due.limit_bucket IS NOT NULL THEN 'held' ELSE 'pending' END,
            limit_bucket = CASE WHEN NOT due.late THEN 'new:' || due.limit_bucket END,
            finished_at = CASE WHEN due.late THEN p_now END,
            last_error = CASE WHEN due.late THEN forge.expiry_message_v1() ELSE j.last_error END
        FROM due WHERE j.id BETWEEN due.id AND due.id AND due.status <> 'suspended'
        RETURNING j.id, j.queue, j.kind, due.status AS source, j.status AS target, due.limit_bucket
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, source, target, count(*)
        FROM changed GROUP BY queue, kind, source, target
    )
    SELECT count(*) FILTER (WHERE target <> 'cancelled'),
        count(*) FILTER (WHERE target = 'cancelled'),
        array_agg(id) FILTER (WHERE target = 'cancelled'),
        array_agg(DISTINCT limit_bucket) FILTER (WHERE target = 'cancelled'), bool_or(target = 'held'),
        (SELECT array_agg(due.id) FROM due WHERE due.status = 'suspended')
    INTO promoted, expired, v_terminal, v_buckets, v_bound, v_suspended FROM changed;
    IF v_terminal IS NOT NULL THEN
        PERFORM forge.archive_v1(v_terminal);
        PERFORM forge.free_keys_at_end_v1(v_terminal, p_now, false);
        PERFORM forge.mark_buckets_unchecked_v1(v_buckets);
    END IF;
    IF v_bound OR v_buckets IS NOT NULL THEN
        PERFORM forge.admit_unchecked_v1(p_now, 1000);
    END IF;
    IF v_suspended IS NOT NULL THEN
        promoted := promoted + forge.promote_suspended_v1(p_now, v_suspended);
    END IF;
END
$$;

-- Cancels jobs in any waiting state, or suspended ones. The rows are locked already.
CREATE OR REPLACE FUNCTION forge.cancel_waiting_v1(p_now bigint, p_jobs bigint[], p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status, 'cancelled', count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY queue, kind, status;
    UPDATE forge.jobs
    SET status = 'cancelled', finished_at = p_now, last_error = p_reason, limit_bucket = NULL
    WHERE id = ANY (p_jobs);
    DELETE FROM forge.waits WHERE job = ANY (p_jobs);
    PERFORM forge.archive_v1(p_jobs);
    PERFORM forge.free_keys_at_end_v1(p_jobs, p_now, false);
    PERFORM forge.admit_buckets_of_jobs_v1(p_now, p_jobs);
END
$$;

-- Cancels waiting jobs of all queues whose expiry has passed. Index: jobs_expiry.
CREATE OR REPLACE FUNCTION forge.expire_v1(p_now bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
BEGIN
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT id FROM forge.jobs
        WHERE expires_at IS NOT NULL AND status <> 'running' AND expires_at <= p_now
        ORDER BY expires_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS l;
    IF v_jobs IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM forge.cancel_waiting_v1(p_now, v_jobs, forge.expiry_message_v1());
    RETURN cardinality(v_jobs);
END
$$;
