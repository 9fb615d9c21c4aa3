-- What people do and look at: bulk actions, retention, lists.

-- Take a dedupe key for a job that comes back; false while another live job holds it. A live job is
-- one with a row in jobs. Each step is a statement of its own, so that each sees what was committed
-- while the one before waited for a lock.
CREATE FUNCTION forge.take_key(p_kind text, p_key text, p_job bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '5s' AS $$
DECLARE
    v_holder bigint;
BEGIN
    LOOP
        INSERT INTO forge.dedupe (kind, key, job) VALUES (p_kind, p_key, p_job)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
        SELECT job INTO v_holder FROM forge.dedupe WHERE kind = p_kind AND key = p_key FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        IF v_holder <> p_job AND EXISTS (SELECT 1 FROM forge.jobs WHERE id = v_holder) THEN
            RETURN false;
        END IF;
        UPDATE forge.dedupe SET job = p_job, until = NULL WHERE kind = p_kind AND key = p_key;
        RETURN true;
    END LOOP;
END
$$;

-- Failed, dead and cancelled jobs begin again: pending, with a clean slate. The history of errors
-- stays; an expiry that has passed goes, since it would cancel the job before anybody could run it.
-- The rows are locked already. The answer is the queues that have more to do.
CREATE FUNCTION forge.revive(p_now bigint, p_jobs bigint[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queues text[];
BEGIN
    WITH gone AS (DELETE FROM forge.history WHERE id = ANY (p_jobs) RETURNING *)
    INSERT INTO forge.jobs SELECT * FROM gone;
    INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status,
        CASE WHEN lane_order IS NULL AND limit_key IS NULL THEN 'pending' ELSE 'held' END, count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY 2, 3, 4, 5;
    WITH moved AS (
        UPDATE forge.jobs
        SET status = CASE WHEN lane_order IS NULL AND limit_key IS NULL THEN 'pending'
                ELSE 'held' END,
            lot = forge.first_lot(queue, lane, lane_order, limit_key),
            run_at = p_now, attempts = 0, crashes = 0, throttles = 0,
            throttled_since = NULL, missing_since = NULL, result = NULL, finished_at = NULL,
            expires_at = CASE WHEN expires_at > p_now THEN expires_at END
        WHERE id = ANY (p_jobs)
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM moved;
    RETURN v_queues || forge.settle_jobs(p_now, p_jobs);
END
$$;

-- Held jobs become pending, room or not; with p_run_now scheduled and failed ones do, are due at once,
-- and wait in their lot if they have to. The rows are locked already. The answer is the queues that have more to do.
CREATE FUNCTION forge.make_pending(p_now bigint, p_jobs bigint[], p_run_now boolean)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queues text[];
BEGIN
    INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status,
        CASE WHEN p_run_now AND (lane_order IS NOT NULL OR limit_key IS NOT NULL) THEN 'held'
            ELSE 'pending' END, count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY 2, 3, 4, 5;
    WITH moved AS (
        UPDATE forge.jobs
        SET status = CASE WHEN p_run_now AND (lane_order IS NOT NULL OR limit_key IS NOT NULL)
                THEN 'held' ELSE 'pending' END,
            lot = CASE WHEN p_run_now
                THEN forge.first_lot(queue, lane, lane_order, limit_key) END,
            run_at = CASE WHEN p_run_now THEN p_now ELSE run_at END
        WHERE id = ANY (p_jobs)
        RETURNING queue
    )
    SELECT array_agg(DISTINCT queue) INTO v_queues FROM moved;
    IF p_run_now THEN
        v_queues := v_queues || forge.settle_jobs(p_now, p_jobs);
    END IF;
    RETURN v_queues;
END
$$;

-- Jobs that are not running go, with their logs, their payloads and their keys. The rows are locked
-- already.
CREATE FUNCTION forge.remove(p_now bigint, p_jobs bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_lots text[];
BEGIN
    SELECT array_agg(DISTINCT o.lot) INTO v_lots FROM forge.jobs j
    CROSS JOIN LATERAL (
        SELECT forge.first_lot(j.queue, j.lane, j.lane_order, j.limit_key) AS lot
        UNION ALL SELECT j.limit_key) AS o
    WHERE j.id = ANY (p_jobs) AND j.status <> 'running' AND o.lot IS NOT NULL;
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
        DELETE FROM forge.dedupe d USING gone g
        WHERE d.kind = g.kind AND d.key = g.dedupe_key AND d.job = g.id
    ),
    bodies AS (DELETE FROM forge.bodies b USING gone g WHERE b.job = g.id),
    logs AS (DELETE FROM forge.logs l USING gone g WHERE l.job = g.id)
    INSERT INTO forge.ledger (minute, queue, kind, source, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status, count(*)
    FROM gone GROUP BY queue, kind, status;
    IF v_lots IS NOT NULL THEN
        PERFORM forge.settle(p_now, v_lots);
    END IF;
END
$$;
