-- set: operators_v1
-- revision: 3
-- requires: primitives_v1, limit_buckets_v1

-- Bulk actions of operators: retry, run now, delete.

-- Takes a dedupe key for a job that is retried; false while another live job holds it. A live job is one with a row
-- in jobs. Each step is a statement of its own, so that each sees what was committed while the one before waited
-- for a lock.
CREATE OR REPLACE FUNCTION forge.take_dedupe_key_v1(p_kind text, p_key text, p_job bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '5s' AS $$
DECLARE
    v_holder bigint;
BEGIN
    LOOP
        INSERT INTO forge.dedupe_keys (kind, key, job) VALUES (p_kind, p_key, p_job)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
        SELECT job INTO v_holder FROM forge.dedupe_keys WHERE kind = p_kind AND key = p_key FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        IF v_holder <> p_job AND EXISTS (SELECT 1 FROM forge.jobs WHERE id = v_holder) THEN
            RETURN false;
        END IF;
        UPDATE forge.dedupe_keys SET job = p_job, until = NULL WHERE kind = p_kind AND key = p_key;
        RETURN true;
    END LOOP;
END
$$;

-- Failed, dead and cancelled jobs become pending with all counters reset. The error list stays; an expiry that has
-- passed is dropped, since it would cancel the job before it could run. The rows are locked already. Returns the
-- queues that have more to do.
CREATE OR REPLACE FUNCTION forge.retry_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queues text[];
BEGIN
    WITH deleted AS (DELETE FROM forge.history WHERE id = ANY (p_jobs) RETURNING *)
    INSERT INTO forge.jobs SELECT * FROM deleted;
    INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status,
        CASE WHEN lane_order IS NULL AND limit_key IS NULL THEN 'pending' ELSE 'held' END, count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY 2, 3, 4, 5;
    WITH changed AS (
        UPDATE forge.jobs
        SET status = CASE WHEN lane_order IS NULL AND limit_key IS NULL THEN 'pending'
                ELSE 'held' END,
            limit_bucket = forge.first_limit_bucket_v1(queue, lane, lane_order, limit_key),
            run_at = p_now, attempts = 0, crashes = 0, throttles = 0,
            throttled_since = NULL, missing_since = NULL, result = NULL, finished_at = NULL, failed_runs = NULL,
            expires_at = CASE WHEN expires_at > p_now THEN expires_at END
        WHERE id = ANY (p_jobs)
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM changed;
    RETURN v_queues || forge.admit_buckets_of_jobs_v1(p_now, p_jobs);
END
$$;

-- Held jobs become pending, room or not; with p_run_now scheduled, failed and suspended ones become due at once and
-- wait in their limit bucket if they have to; the wait of a suspended one is forgotten. The rows are locked already.
-- Returns the queues that have more to do.
CREATE OR REPLACE FUNCTION forge.make_pending_v1(p_now bigint, p_jobs bigint[], p_run_now boolean)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queues text[];
BEGIN
    INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status,
        CASE WHEN p_run_now AND (lane_order IS NOT NULL OR limit_key IS NOT NULL) THEN 'held'
            ELSE 'pending' END, count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY 2, 3, 4, 5;
    WITH changed AS (
        UPDATE forge.jobs
        SET status = CASE WHEN p_run_now AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
                THEN 'held' ELSE 'pending' END,
            limit_bucket = CASE WHEN p_run_now
                THEN forge.first_limit_bucket_v1(queue, lane, lane_order, limit_key) END,
            run_at = CASE WHEN p_run_now THEN p_now ELSE run_at END
        WHERE id = ANY (p_jobs)
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM changed;
    IF p_run_now THEN
        DELETE FROM forge.waits WHERE job = ANY (p_jobs);
        v_queues := v_queues || forge.admit_buckets_of_jobs_v1(p_now, p_jobs);
    END IF;
    RETURN v_queues;
END
$$;

-- Deletes jobs that are not running, with their logs, tracebacks, payloads, steps, waits and dedupe keys. The rows are
-- locked already.
CREATE OR REPLACE FUNCTION forge.delete_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_buckets text[];
BEGIN
    SELECT array_agg(DISTINCT o.limit_bucket) INTO v_buckets FROM forge.jobs j
    CROSS JOIN LATERAL (
        SELECT forge.first_limit_bucket_v1(j.queue, j.lane, j.lane_order, j.limit_key) AS limit_bucket
        UNION ALL SELECT j.limit_key) AS o
    WHERE j.id = ANY (p_jobs) AND j.status <> 'running' AND o.limit_bucket IS NOT NULL;
    WITH waiting AS (
        DELETE FROM forge.jobs WHERE id = ANY (p_jobs) AND status <> 'running'
        RETURNING id, queue, kind, status, dedupe_key
    ),
    ended AS (
        DELETE FROM forge.history WHERE id = ANY (p_jobs)
        RETURNING id, queue, kind, status, dedupe_key
    ),
    gone AS (SELECT * FROM waiting UNION ALL SELECT * FROM ended),
    keys AS (
        DELETE FROM forge.dedupe_keys d USING gone g
        WHERE (d.kind, d.key) BETWEEN (g.kind, g.dedupe_key) AND (g.kind, g.dedupe_key) AND d.job = g.id
    ),
    bodies AS (DELETE FROM forge.large_payloads b USING gone g WHERE b.job BETWEEN g.id AND g.id),
    logs AS (DELETE FROM forge.job_logs l USING gone g WHERE l.job BETWEEN g.id AND g.id),
    tracebacks AS (DELETE FROM forge.job_tracebacks t USING gone g WHERE t.job BETWEEN g.id AND g.id),
    steps AS (DELETE FROM forge.steps s USING gone g WHERE s.job BETWEEN g.id AND g.id),
    waits AS (DELETE FROM forge.waits w USING gone g WHERE w.job BETWEEN g.id AND g.id)
    INSERT INTO forge.counter_entries (minute, queue, kind, source, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status, count(*)
    FROM gone GROUP BY queue, kind, status;
    IF v_buckets IS NOT NULL THEN
        PERFORM forge.admit_buckets_v1(p_now, v_buckets);
    END IF;
END
$$;
