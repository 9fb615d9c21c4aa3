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

-- Processes whose lease ran out are declared dead, and running jobs are taken from owners that are
-- dead or unknown: to pending, to dead when no attempt is left, to cancelled if that was asked for.
-- Owners are found one by one in the index jobs_owner, so that nothing is read of living ones.
CREATE FUNCTION forge.reap(p_now bigint, p_note text, p_limit integer,
    OUT pending integer, OUT dead integer, OUT cancelled integer, OUT more boolean,
    OUT died bigint[], OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_ended bigint[];
    v_keyed boolean;
BEGIN
    UPDATE forge.processes SET dead = true
    WHERE NOT processes.dead AND beat_at + round(lease_s * 1000000)::bigint <= p_now;
    WITH RECURSIVE owners(owner) AS (
        (SELECT owner FROM forge.jobs WHERE status = 'running' ORDER BY owner LIMIT 1)
        UNION ALL
        SELECT (SELECT j.owner FROM forge.jobs j WHERE j.status = 'running' AND j.owner > o.owner
                ORDER BY j.owner LIMIT 1)
        FROM owners o WHERE o.owner IS NOT NULL
    )
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT j.id
        FROM owners o JOIN forge.jobs j ON j.owner = o.owner AND j.status = 'running'
        WHERE NOT EXISTS (SELECT 1 FROM forge.processes p WHERE p.id = o.owner AND NOT p.dead)
        ORDER BY j.id
        LIMIT p_limit + 1
        FOR UPDATE OF j SKIP LOCKED
    ) AS l;
    more := COALESCE(cardinality(v_jobs) > p_limit, false);
    v_jobs := v_jobs[1:p_limit];
    WITH moved AS (
        UPDATE forge.jobs j
        SET status = t.target,
            attempts = t.kept,
            epoch = j.epoch + 1,
            owner = NULL,
            crashes = j.crashes + t.started::integer,
            finished_at = CASE WHEN t.target = 'pending' THEN NULL ELSE p_now END,
            errors = CASE WHEN t.started
                THEN forge.with_error(j.errors, p_now, j.attempts, p_note) ELSE j.errors END,
            last_error = CASE WHEN t.target = 'cancelled' THEN t.reason
                WHEN t.started THEN p_note ELSE j.last_error END
        FROM (
            SELECT r.id, c.reason, r.started_at IS NOT NULL AS started,
                r.attempts - (r.started_at IS NULL AND r.attempts > 0)::integer AS kept,
                CASE WHEN c.job IS NOT NULL THEN 'cancelled'
                    WHEN r.attempts - (r.started_at IS NULL AND r.attempts > 0)::integer
                        >= r.max_attempts THEN 'dead'
                    ELSE 'pending' END AS target
            FROM forge.jobs r LEFT JOIN forge.cancels c ON c.job = r.id
            WHERE r.id = ANY (v_jobs)
        ) AS t
        WHERE j.id = t.id
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key, t.started, j.on_dead
    ),
    booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs, retried)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*),
            count(*) FILTER (WHERE status = 'pending' AND started)
        FROM moved GROUP BY queue, kind, status
    )
    SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'dead'),
        count(*) FILTER (WHERE status = 'cancelled'),
        array_agg(id) FILTER (WHERE status <> 'pending'), bool_or(dedupe_key IS NOT NULL),
        array_agg(id) FILTER (WHERE status = 'dead' AND on_dead IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'pending')
    INTO pending, dead, cancelled, v_ended, v_keyed, died, queues FROM moved;
    IF v_ended IS NOT NULL THEN
        DELETE FROM forge.cancels WHERE job = ANY (v_ended);
        PERFORM forge.move_ended(v_ended);
        IF v_keyed THEN
            PERFORM forge.keys_ended(v_ended, p_now, false);
        END IF;
        queues := queues || forge.settle_jobs(p_now, v_ended);
    END IF;
END
$$;

-- The shares that are not as they should be: core.shares.share_out as a query. A part is what one
-- process has of one queue; parts of dead processes count until their last running job is taken.
-- Few rows, so that reading them all costs nothing. Index: jobs_owner.
CREATE FUNCTION forge.share_changes(p_now bigint, p_most integer)
RETURNS TABLE (process bigint, queue text, slots integer)
LANGUAGE sql STABLE AS $$
    WITH standing AS MATERIALIZED (
        SELECT p.id, p.host_id, p.queues,
            NOT p.dead AND NOT p.quiet
                AND p.beat_at + round(p.lease_s * 1000000)::bigint > p_now AS able
        FROM forge.processes p
        WHERE NOT p.dead OR EXISTS (
            SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')
    ),
    parts AS (
        SELECT q.name AS queue, q.slots AS total, p.id AS process, p.host_id,
            p.able AND q.name = ANY (p.queues) AS wants,
            COALESCE(s.slots, 0) AS had, COALESCE(s.held, 0) AS held
        FROM forge.queues q
        CROSS JOIN standing p
        LEFT JOIN forge.shares s ON s.process = p.id AND s.queue = q.name
        WHERE s.process IS NOT NULL OR (p.able AND q.name = ANY (p.queues))
    ),
    ranked AS (
        SELECT parts.*,
            total - sum(held) OVER whole AS free,
            count(*) FILTER (WHERE wants) OVER whole AS sharers,
            count(*) FILTER (WHERE wants) OVER so_far AS place
        FROM parts
        WINDOW whole AS (PARTITION BY parts.queue),
            so_far AS (PARTITION BY parts.queue ORDER BY host_id, parts.process)
    ),
    fair AS (
        SELECT ranked.*, CASE WHEN wants
            THEN least(total / sharers + (place <= total % sharers)::integer, p_most)
            ELSE 0 END AS wanted
        FROM ranked
    ),
    grown AS (
        SELECT fair.*, least(
            greatest(wanted - held, 0),
            greatest(free - sum(greatest(wanted - held, 0)) OVER (
                PARTITION BY fair.queue ORDER BY host_id, fair.process
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
                + greatest(wanted - held, 0), 0)) AS more
        FROM fair
    )
    SELECT grown.process, grown.queue, least(wanted, held + more)::integer
    FROM grown WHERE had <> least(wanted, held + more)
    ORDER BY grown.process, grown.queue
$$;

-- Share all queues out, one caller at a time; how many shares changed. A process that gives up slots
-- meanwhile is not waited for: what it holds can only be less than what was read.
CREATE FUNCTION forge.share(p_now bigint, p_most integer, p_lock text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_changed integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_lock, 0));
    DELETE FROM forge.shares s WHERE NOT EXISTS (
        SELECT 1 FROM forge.processes p
        WHERE p.id = s.process AND (NOT p.dead OR EXISTS (
            SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')));
    INSERT INTO forge.shares AS s (process, queue, slots, held, version)
    SELECT c.process, c.queue, c.slots, c.slots, 1 FROM forge.share_changes(p_now, p_most) AS c
    ON CONFLICT (process, queue) DO UPDATE
    SET slots = EXCLUDED.slots, held = greatest(s.held, EXCLUDED.slots), version = s.version + 1;
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    IF v_changed > 0 THEN
        UPDATE forge.control SET version = version + 1 WHERE id = 1;
    END IF;
    RETURN v_changed;
END
$$;

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
