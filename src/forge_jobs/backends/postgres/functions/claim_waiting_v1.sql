-- set: claim_waiting_v1
-- revision: 3
-- requires: primitives_v1, limit_buckets_v1, exchange_v1, steps_v1

-- The hot call of a worker that only waits for jobs.

-- What exchange_v1 does for a process that has nothing to write, in a single statement: between jobs that come far
-- apart, the number of statements decides the latency of a start. In every case that is not plain (limits, gates,
-- tracks, due jobs, a paused queue, cancel requests, an expired lease, a dedupe key to free, open events, more jobs
-- than can start at once) nothing is claimed here, and exchange_v1 is called.
CREATE OR REPLACE FUNCTION forge.claim_waiting_v1(
    p_now bigint, p_owner bigint, p_number bigint, p_queues text[], p_free integer[],
    p_prefetch integer[]
) RETURNS TABLE (
    c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer,
    c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean,
    c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint,
    c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, c_options text,
    head jsonb
)
LANGUAGE plpgsql VOLATILE ROWS 10
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now bigint := forge.store_now_v1(p_now);
BEGIN
    RETURN QUERY
    -- Index: jobs_due, jobs_track. (The planner might answer an EXISTS per queue by reading all queues.)
    WITH wants AS MATERIALIZED (
        SELECT w.queue, w.free, w.free + least(w.prefetch, 1) AS max_claims,
            (SELECT j.run_at FROM forge.jobs j
                WHERE j.queue = w.queue AND j.status IN ('scheduled', 'failed', 'suspended')
                ORDER BY j.run_at LIMIT 1) AS due,
            (SELECT j.id FROM forge.jobs j
                WHERE j.queue = w.queue AND j.status = 'pending' AND j.track IS NOT NULL
                LIMIT 1) IS NOT NULL AS tracked,
            (SELECT q.paused FROM forge.queues q WHERE q.name = w.queue) AS paused
        FROM unnest(p_queues, p_free, p_prefetch) AS w(queue, free, prefetch)
    ),
    -- Index: jobs_held and the primary keys.
    checks AS MATERIALIZED (
        SELECT (SELECT version FROM forge.control WHERE id = 1) AS control, w.next_due, w.least,
            pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass) AS walked
        FROM (
            SELECT min(due) AS next_due, min(free) FILTER (WHERE free > 0) AS least,
                bool_or(tracked OR paused) AS irregular
            FROM wants
        ) AS w
        WHERE w.irregular IS NOT TRUE AND (w.next_due <= v_now) IS NOT TRUE
            AND EXISTS (
                SELECT 1 FROM forge.processes p
                WHERE p.id = p_owner AND NOT p.dead
                    AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > v_now)
            AND NOT EXISTS (SELECT 1 FROM forge.jobs j
                WHERE j.status = 'held' AND j.limit_bucket >= 'new:' AND j.limit_bucket < 'new<')
            AND NOT EXISTS (SELECT 1 FROM forge.limits)
            AND NOT EXISTS (SELECT 1 FROM forge.gates)
            AND NOT EXISTS (SELECT 1 FROM forge.events e WHERE e.open)
            AND NOT EXISTS (SELECT 1 FROM forge.cancel_requests c WHERE c.owner = p_owner)
    ),
    -- Index: jobs_claim, in its order.
    picked AS MATERIALIZED (
        SELECT l.*, w.free FROM checks CROSS JOIN wants w CROSS JOIN LATERAL (
            SELECT j.id, j.unique_waiting FROM forge.jobs j
            WHERE j.queue = w.queue AND j.status = 'pending' AND j.track IS NULL
                AND (j.expires_at IS NULL OR j.expires_at > v_now)
            ORDER BY j.priority, j.run_at, j.id
            LIMIT w.max_claims
            FOR UPDATE SKIP LOCKED
        ) AS l
    ),
    -- Whether all of them can start; as a safe bound, no more than the fewest free slots of any queue.
    plain AS MATERIALIZED (
        SELECT h.* FROM checks h
        WHERE (SELECT count(*) <= COALESCE(h.least, 0)
                AND bool_or(l.unique_waiting OR l.free = 0) IS NOT TRUE
            FROM picked l)
    ),
    -- By id and not by ctid: the row may have moved since this statement began. What follows reads
    -- the updated rows, for the same reason.
    taken AS (
        UPDATE forge.jobs j
        SET status = 'running', owner = p_owner, exchange = p_number, epoch = j.epoch + 1,
            attempts = j.attempts + 1, started_at = v_now
        FROM plain CROSS JOIN picked l WHERE j.id BETWEEN l.id AND l.id
        RETURNING j.id, j.epoch, j.kind, j.queue, j.payload, j.attempts, j.max_attempts, j.enqueued_at,
            j.run_at, j.priority, j.crashes, j.timeout_s, j.throttled_since, j.missing_since, j.tags,
            j.limit_key, j.lane, j.lane_order, j.trace, j.options, j.steps, j.failed_runs
    ),
    -- One entry per job: grouping what is mostly one row would only cost.
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT v_now - v_now % 60000000, t.queue, t.kind, 'pending', 'running', 1 FROM taken t
    )
    SELECT t.id, t.epoch, t.kind, t.queue,
        CASE WHEN t.payload IS NULL
            THEN (SELECT b.payload FROM forge.large_payloads b WHERE b.job = t.id) ELSE t.payload END,
        t.attempts, t.max_attempts, t.enqueued_at, t.run_at, true, t.priority, t.crashes,
        t.timeout_s, t.throttled_since, t.missing_since, t.tags,
        COALESCE(t.limit_key, forge.first_limit_bucket_v1(t.queue, t.lane, t.lane_order, NULL)), t.trace,
        t.options, CASE WHEN t.steps THEN forge.claimed_steps_v1(t.id, t.failed_runs) END
    FROM taken t
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL,
        jsonb_build_object('now', v_now, 'alive', true, 'control', h.control,
            'next_due', h.next_due, 'cancels', NULL, 'missed', NULL, 'queues', NULL,
            'walked', pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass) - h.walked)
    FROM plain h;
    IF NOT FOUND THEN
        RETURN QUERY SELECT * FROM forge.exchange_v1(
            v_now, p_owner, p_number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, p_queues, p_free, p_prefetch, NULL, NULL);
    END IF;
END
$$;
