-- What happens to jobs on the server, so that a round of a worker is one round trip and every
-- statement in it sees what the one before did. Each function is part of the caller's transaction.
--
-- Settings on the functions: a plan made while a table was empty must not outlive that moment, so
-- the planner may only choose index scans and nested loops, which are right for every batch here.
-- The guard of a claim is written as (owner = … AND status = …) IS TRUE to keep it out of the
-- choice of an index: a job is found by its key, never by its owner.

-- The present: the clock of the server, or the instant a test binds.
CREATE FUNCTION forge.present(p_now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT COALESCE(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The bucket of a span as one byte. The bounds are those of core.histogram and must never differ; a
-- plain expression, so that it becomes part of the statement that uses it.
CREATE FUNCTION forge.bucket(p_s double precision) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT set_byte('\x00'::bytea, 0, width_bucket(p_s, '{
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

-- Two histograms as one; either may be NULL.
CREATE FUNCTION forge.merged(p_one jsonb, p_other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_one IS NULL THEN p_other WHEN p_other IS NULL THEN p_one ELSE
        jsonb_build_object(
            'sum_s', COALESCE((p_one ->> 'sum_s')::double precision, 0)
                + COALESCE((p_other ->> 'sum_s')::double precision, 0),
            'buckets', (
                SELECT jsonb_object_agg(n.key, n.samples) FROM (
                    SELECT b.key, sum(b.value::bigint) AS samples FROM (
                        SELECT * FROM jsonb_each_text(p_one -> 'buckets')
                        UNION ALL
                        SELECT * FROM jsonb_each_text(p_other -> 'buckets')
                    ) AS b
                    GROUP BY b.key
                ) AS n
            )) END
$$;

-- Rows that were given their last state leave for history. Both tables have the same columns in the
-- same order.
CREATE FUNCTION forge.move_ended(p_jobs bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH gone AS (DELETE FROM forge.jobs WHERE id = ANY (p_jobs) RETURNING *)
    INSERT INTO forge.history SELECT * FROM gone
$$;

-- A job that is unique only while it waits gives its key up at its start. Rows are locked in the
-- order of the keys, as everybody does.
CREATE FUNCTION forge.keys_started(p_jobs bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH own AS MATERIALIZED (
        SELECT d.kind, d.key
        FROM forge.jobs j
        JOIN forge.dedupe d ON d.kind = j.kind AND d.key = j.dedupe_key AND d.job = j.id
        WHERE j.id = ANY (p_jobs) AND j.unique_waiting
        ORDER BY d.kind, d.key
        FOR UPDATE OF d
    )
    DELETE FROM forge.dedupe d USING own WHERE d.kind = own.kind AND d.key = own.key
$$;

-- The keys of jobs that have just gone to history are free, or held for dedupe_for_s more.
-- p_ran: they ended by the word of their worker, so they had started.
CREATE FUNCTION forge.keys_ended(p_jobs bigint[], p_now bigint, p_ran boolean) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH own AS MATERIALIZED (
        SELECT d.kind, d.key,
            CASE WHEN NOT (p_ran AND h.unique_waiting) AND h.dedupe_for_s > 0
                THEN p_now + round(h.dedupe_for_s * 1000000)::bigint END AS until
        FROM forge.history h
        JOIN forge.dedupe d ON d.kind = h.kind AND d.key = h.dedupe_key AND d.job = h.id
        WHERE h.id = ANY (p_jobs) AND h.dedupe_key IS NOT NULL
        ORDER BY d.kind, d.key
        FOR UPDATE OF d
    ),
    kept AS (
        UPDATE forge.dedupe d SET until = own.until FROM own
        WHERE d.kind = own.kind AND d.key = own.key AND own.until IS NOT NULL
    )
    DELETE FROM forge.dedupe d USING own
    WHERE d.kind = own.kind AND d.key = own.key AND own.until IS NULL
$$;

-- Progress and log lines of claims that still are this owner's; the newest 1,000 lines are kept.
CREATE FUNCTION forge.take_notes(p_owner bigint, p_notes jsonb, p_lines jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_job bigint;
BEGIN
    UPDATE forge.jobs j
    SET progress = COALESCE(n.progress, j.progress),
        progress_note = COALESCE(n.note, j.progress_note)
    FROM jsonb_to_recordset(p_notes)
        AS n(key bigint, epoch integer, progress double precision, note text)
    WHERE j.id = n.key AND j.epoch = n.epoch
        AND (j.owner = p_owner AND j.status = 'running') IS TRUE;
    FOR v_job IN
        WITH said AS (
            INSERT INTO forge.logs (job, at, level, message)
            SELECT l.key, l.at, l.level, l.message
            FROM ROWS FROM (jsonb_to_recordset(p_lines)
                AS (key bigint, epoch integer, at bigint, level text, message text))
                WITH ORDINALITY AS l(key, epoch, at, level, message, place)
            JOIN forge.jobs j ON j.id = l.key AND j.epoch = l.epoch
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            ORDER BY l.place
            RETURNING job
        )
        SELECT DISTINCT job FROM said
    LOOP
        DELETE FROM forge.logs WHERE job = v_job AND id <= (
            SELECT id FROM forge.logs WHERE job = v_job ORDER BY id DESC OFFSET 1000 LIMIT 1);
    END LOOP;
END
$$;

-- Every end of a claim but Done: failed, scheduled again, dead; cancelled if that was asked for.
-- The answer is the keys of the claims that were valid. Rows are locked before the requests to
-- cancel are read: a request that came first is always seen.
CREATE FUNCTION forge.end_claims(p_now bigint, p_owner bigint, p_ends jsonb) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_ended bigint[];
    v_keyed boolean;
BEGIN
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT j.id
        FROM jsonb_to_recordset(p_ends) AS e(key bigint, epoch integer)
        JOIN forge.jobs j ON j.id = e.key AND j.epoch = e.epoch
        WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        ORDER BY j.id
        FOR UPDATE OF j
    ) AS l;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH moved AS (
        UPDATE forge.jobs j
        SET status = t.target,
            run_at = CASE WHEN t.target IN ('scheduled', 'failed')
                THEN p_now + round(COALESCE(e.delay_s, 0) * 1000000)::bigint ELSE j.run_at END,
            -- Only what hands its attempt back leads to scheduled.
            attempts = j.attempts - (t.target = 'scheduled')::integer,
            crashes = j.crashes + (e.event = 'crash')::integer,
            throttles = j.throttles + (e.event = 'throttle')::integer,
            throttled_since = CASE WHEN e.event = 'throttle'
                THEN COALESCE(j.throttled_since, p_now) ELSE j.throttled_since END,
            missing_since = CASE WHEN e.event = 'missing'
                THEN COALESCE(j.missing_since, p_now) ELSE j.missing_since END,
            started_at = COALESCE(j.started_at, p_now - round(e.ran_s * 1000000)::bigint),
            finished_at = CASE WHEN t.target IN ('dead', 'cancelled') THEN p_now END,
            -- A missing handler comes every few seconds during a deployment and would push the
            -- real errors out.
            errors = CASE WHEN e.error IS NULL OR (e.event = 'missing' AND e.status = 'scheduled')
                THEN j.errors
                ELSE forge.with_error(j.errors, p_now, j.attempts, e.error) END,
            last_error = CASE WHEN t.target = 'cancelled' THEN c.reason
                ELSE COALESCE(e.error, j.last_error) END
        FROM jsonb_to_recordset(p_ends) AS e(key bigint, epoch integer, event text, status text,
                delay_s double precision, error text, ran_s double precision,
                waited_s double precision)
        LEFT JOIN forge.cancels c ON c.job = e.key
        CROSS JOIN LATERAL (
            SELECT CASE WHEN c.job IS NULL THEN e.status ELSE 'cancelled' END AS target) AS t
        WHERE j.id = e.key AND j.epoch = e.epoch AND j.id = ANY (v_jobs)
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key, e.event, e.ran_s, e.waited_s
    ),
    booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs, retried, throttled,
            waited_s, ran_s, waited, ran)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*),
            count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status = 'scheduled' AND event = 'throttle'),
            COALESCE(sum(waited_s), 0), COALESCE(sum(ran_s) FILTER (WHERE waited_s IS NOT NULL), 0),
            string_agg(forge.bucket(waited_s), ''),
            string_agg(forge.bucket(ran_s), '') FILTER (WHERE waited_s IS NOT NULL)
        FROM moved GROUP BY queue, kind, status
    )
    SELECT array_agg(id) FILTER (WHERE status IN ('dead', 'cancelled')),
        bool_or(dedupe_key IS NOT NULL)
    INTO v_ended, v_keyed FROM moved;
    DELETE FROM forge.cancels WHERE job = ANY (v_jobs);
    IF v_keyed THEN
        PERFORM forge.keys_started(v_jobs);
    END IF;
    IF v_ended IS NOT NULL THEN
        PERFORM forge.move_ended(v_ended);
        IF v_keyed THEN
            PERFORM forge.keys_ended(v_ended, p_now, true);
        END IF;
    END IF;
    RETURN v_jobs;
END
$$;

-- One more error in a history that keeps the newest 32.
CREATE FUNCTION forge.with_error(p_errors jsonb, p_at bigint, p_attempt integer, p_message text)
RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_array_length(p_errors) >= 32 THEN p_errors - 0
            ELSE COALESCE(p_errors, '[]') END
        || jsonb_build_array(jsonb_build_array(p_at, p_attempt, p_message))
$$;

-- Claims handed back: to pending with the attempt given back, to cancelled if that was asked for.
-- The epoch rises either way, so that a late finish is stale. The answer is the queues that have
-- more to do now.
CREATE FUNCTION forge.release(p_now bigint, p_owner bigint, p_keys bigint[], p_epochs integer[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_ended bigint[];
    v_keyed boolean;
    v_queues text[];
BEGIN
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT j.id
        FROM unnest(p_keys, p_epochs) AS r(key, epoch)
        JOIN forge.jobs j ON j.id = r.key AND j.epoch = r.epoch
        WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        ORDER BY j.id
        FOR UPDATE OF j
    ) AS l;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH moved AS (
        UPDATE forge.jobs j
        SET status = CASE WHEN c.job IS NULL THEN 'pending' ELSE 'cancelled' END,
            attempts = j.attempts - (c.job IS NULL)::integer,
            epoch = j.epoch + 1,
            owner = NULL,
            finished_at = CASE WHEN c.job IS NULL THEN NULL ELSE p_now END,
            last_error = CASE WHEN c.job IS NULL THEN j.last_error ELSE c.reason END
        FROM unnest(v_jobs) AS r(key) LEFT JOIN forge.cancels c ON c.job = r.key
        WHERE j.id = r.key
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key
    ),
    booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*)
        FROM moved GROUP BY queue, kind, status
    )
    SELECT array_agg(id) FILTER (WHERE status = 'cancelled'), bool_or(dedupe_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'pending')
    INTO v_ended, v_keyed, v_queues FROM moved;
    IF v_ended IS NOT NULL THEN
        DELETE FROM forge.cancels WHERE job = ANY (v_ended);
        PERFORM forge.move_ended(v_ended);
        IF v_keyed THEN
            PERFORM forge.keys_ended(v_ended, p_now, false);
        END IF;
        v_queues := v_queues || forge.settle_jobs(p_now, v_ended);
    END IF;
    RETURN COALESCE(v_queues, '{}');
END
$$;

-- Due jobs of one queue become pending, at most p_limit; those that expired are cancelled instead.
-- Index: jobs_due.
CREATE FUNCTION forge.promote_queue(
    p_now bigint, p_queue text, p_limit integer, OUT promoted integer, OUT expired integer)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_ended bigint[];
    v_lots text[];
    v_bound boolean;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT j.id, j.status, COALESCE(j.expires_at <= p_now, false) AS late,
            forge.first_lot(j.queue, j.lane, j.lane_order, j.limit_key) AS lot
        FROM forge.jobs j
        WHERE j.queue = p_queue AND j.status IN ('scheduled', 'failed') AND j.run_at <= p_now
        ORDER BY j.run_at, j.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ),
    moved AS (
        UPDATE forge.jobs j
        SET status = CASE WHEN due.late THEN 'cancelled'
                WHEN due.lot IS NOT NULL THEN 'held' ELSE 'pending' END,
            lot = CASE WHEN NOT due.late THEN 'new:' || due.lot END,
            finished_at = CASE WHEN due.late THEN p_now END,
            last_error = CASE WHEN due.late THEN forge.expired_note() ELSE j.last_error END
        FROM due WHERE j.id = due.id
        RETURNING j.id, j.queue, j.kind, due.status AS source, j.status AS target, due.lot
    ),
    booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, source, target, count(*)
        FROM moved GROUP BY queue, kind, source, target
    )
    SELECT count(*) FILTER (WHERE target <> 'cancelled'),
        count(*) FILTER (WHERE target = 'cancelled'),
        array_agg(id) FILTER (WHERE target = 'cancelled'),
        array_agg(DISTINCT lot) FILTER (WHERE target = 'cancelled'), bool_or(target = 'held')
    INTO promoted, expired, v_ended, v_lots, v_bound FROM moved;
    IF v_ended IS NOT NULL THEN
        PERFORM forge.move_ended(v_ended);
        PERFORM forge.keys_ended(v_ended, p_now, false);
        PERFORM forge.renew_lots(v_lots);
    END IF;
    IF v_bound OR v_lots IS NOT NULL THEN
        PERFORM forge.admit_new(p_now, 1000);
    END IF;
END
$$;

CREATE FUNCTION forge.expired_note() RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'expired before it could start'
$$;

-- Waiting jobs become cancelled for a reason, whatever kind of waiting it is. The rows are locked
-- already.
CREATE FUNCTION forge.cancel_waiting(p_now bigint, p_jobs bigint[], p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
    SELECT p_now - p_now % 60000000, queue, kind, status, 'cancelled', count(*)
    FROM forge.jobs WHERE id = ANY (p_jobs) GROUP BY queue, kind, status;
    UPDATE forge.jobs
    SET status = 'cancelled', finished_at = p_now, last_error = p_reason, lot = NULL
    WHERE id = ANY (p_jobs);
    PERFORM forge.move_ended(p_jobs);
    PERFORM forge.keys_ended(p_jobs, p_now, false);
    PERFORM forge.settle_jobs(p_now, p_jobs);
END
$$;

-- Waiting jobs of all queues whose expiry has passed become cancelled. Index: jobs_expiry.
CREATE FUNCTION forge.expire(p_now bigint, p_limit integer) RETURNS integer
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
    PERFORM forge.cancel_waiting(p_now, v_jobs, forge.expired_note());
    RETURN cardinality(v_jobs);
END
$$;
