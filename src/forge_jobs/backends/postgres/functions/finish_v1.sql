-- set: finish_v1
-- revision: 5
-- requires: primitives_v1, limit_buckets_v1, steps_v1

-- Writes of a worker about jobs it has claimed: notes, finishes other than done, releases.

-- Progress and log lines of claims that this owner still holds; the newest 1,000 lines of a job are kept. Progress of a
-- job whose row a user's own transaction has locked is left out: newer progress follows.
CREATE OR REPLACE FUNCTION forge.write_notes_v1(p_owner bigint, p_notes jsonb, p_lines jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_job bigint;
BEGIN
    WITH own AS MATERIALIZED (
        SELECT j.id, n.progress, n.note
        FROM jsonb_to_recordset(p_notes)
            AS n(key bigint, epoch integer, progress double precision, note text)
        JOIN forge.jobs j ON j.id BETWEEN n.key AND n.key AND j.epoch = n.epoch
        WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        ORDER BY j.id + 0
        FOR NO KEY UPDATE OF j SKIP LOCKED
    )
    UPDATE forge.jobs j
    SET progress = COALESCE(n.progress, j.progress),
        progress_note = COALESCE(n.note, j.progress_note)
    FROM own n WHERE j.id BETWEEN n.id AND n.id;
    FOR v_job IN
        WITH written AS (
            INSERT INTO forge.job_logs (job, at, level, message)
            SELECT l.key, l.at, l.level, l.message
            FROM ROWS FROM (jsonb_to_recordset(p_lines)
                AS (key bigint, epoch integer, at bigint, level text, message text))
                WITH ORDINALITY AS l(key, epoch, at, level, message, ordinal)
            JOIN forge.jobs j ON j.id BETWEEN l.key AND l.key AND j.epoch = l.epoch
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            ORDER BY l.ordinal
            RETURNING job
        )
        SELECT DISTINCT job FROM written
    LOOP
        DELETE FROM forge.job_logs WHERE job = v_job AND id <= (
            SELECT id FROM forge.job_logs WHERE job = v_job ORDER BY id DESC OFFSET 1000 LIMIT 1);
    END LOOP;
END
$$;

-- Stores tracebacks of finishes whose rows are locked and still in jobs; the newest 32 of a job are kept.
CREATE OR REPLACE FUNCTION forge.add_tracebacks_v1(p_now bigint, p_jobs bigint[], p_finishes jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    INSERT INTO forge.job_tracebacks (job, epoch, at, attempt, traceback)
    SELECT j.id, j.epoch, p_now, j.attempts, e.traceback
    FROM jsonb_to_recordset(p_finishes) AS e(key bigint, epoch integer, traceback text)
    JOIN forge.jobs j ON j.id = e.key AND j.epoch = e.epoch
    WHERE e.traceback IS NOT NULL AND e.key = ANY (p_jobs)
    ON CONFLICT (job, epoch) DO NOTHING;
    DELETE FROM forge.job_tracebacks t USING unnest(p_jobs) AS f(job)
    WHERE t.job = f.job AND t.epoch <= (
        SELECT o.epoch FROM forge.job_tracebacks o WHERE o.job = f.job ORDER BY o.epoch DESC OFFSET 32 LIMIT 1);
END
$$;

-- Restarts: deletes the steps of those that are pending now, with an older payload, then stores the steps of the
-- finishes. The rows are locked. Index: the primary keys.
CREATE OR REPLACE FUNCTION forge.restart_jobs_v1(p_jobs bigint[], p_pending bigint[], p_finishes jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_restarted bigint[] := ARRAY(
        SELECT e.key FROM jsonb_to_recordset(p_finishes) AS e(key bigint, payload text)
        WHERE e.payload IS NOT NULL AND e.key = ANY (p_pending));
BEGIN
    DELETE FROM forge.steps WHERE job = ANY (v_restarted);
    DELETE FROM forge.large_payloads WHERE job = ANY (v_restarted);
    INSERT INTO forge.large_payloads (job, payload)
    SELECT e.key, convert_to(e.payload, 'UTF8') FROM jsonb_to_recordset(p_finishes) AS e(key bigint, payload text)
    WHERE octet_length(e.payload) > 2048 AND e.key = ANY (v_restarted);
    INSERT INTO forge.steps (job, began_at, ended_at, epoch, kind, name, value, fingerprint)
    SELECT e.key, s.began_at, s.ended_at, e.epoch, s.kind, s.name, convert_to(s.value, 'UTF8'), s.fingerprint
    FROM jsonb_to_recordset(p_finishes) AS e(key bigint, epoch integer, steps jsonb)
    CROSS JOIN LATERAL jsonb_to_recordset(e.steps) AS s(began_at bigint, ended_at bigint, kind text, name text,
        value text, fingerprint bigint)
    WHERE e.key = ANY (p_jobs)
    ON CONFLICT DO NOTHING;
END
$$;

-- What suspended jobs wait for. Events up to now were looked at, so that none of them is looked at again. Index: the
-- primary key, events_topic.
CREATE OR REPLACE FUNCTION forge.add_waits_v1(p_jobs bigint[], p_finishes jsonb) RETURNS void
LANGUAGE sql VOLATILE AS $$
    INSERT INTO forge.waits (job, began_at, after, since, epoch, topic, step, deadline)
    SELECT e.key, e.began_at, greatest(t.after, (SELECT max(v.seq) FROM forge.events v WHERE v.topic = t.topic)), t.since,
        e.epoch, t.topic, e.step, e.deadline
    FROM jsonb_to_recordset(p_finishes)
        AS e(key bigint, epoch integer, began_at bigint, step text, deadline bigint, topics jsonb)
    CROSS JOIN LATERAL jsonb_to_recordset(e.topics) AS t(topic text, after bigint, since bigint)
    WHERE e.key = ANY (p_jobs)
    ON CONFLICT DO NOTHING
$$;

-- Every finish but Done: failed, scheduled again, suspended, restarted, dead; cancelled if that was requested. Returns
-- the ids of the claims that were valid. Rows are locked before the cancel requests are read, so that a request that
-- came first is always seen. A job that waits for an event becomes pending if its step is stored by now
-- (take_events_v1); the locks of its topics are held.
CREATE OR REPLACE FUNCTION forge.finish_claims_v1(p_now bigint, p_owner bigint, p_finishes jsonb) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_terminal bigint[];
    v_suspended bigint[];
    v_pending bigint[];
    v_keyed boolean;
BEGIN
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT j.id
        FROM jsonb_to_recordset(p_finishes) AS e(key bigint, epoch integer)
        JOIN forge.jobs j ON j.id BETWEEN e.key AND e.key AND j.epoch = e.epoch
        WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        ORDER BY j.id + 0
        FOR UPDATE OF j
    ) AS l;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH changed AS (
        UPDATE forge.jobs j
        SET status = t.target,
            run_at = CASE t.target
                WHEN 'scheduled' THEN COALESCE(e.run_at, p_now + round(COALESCE(e.delay_s, 0) * 1000000)::bigint)
                WHEN 'failed' THEN COALESCE(e.run_at, p_now + round(COALESCE(e.delay_s, 0) * 1000000)::bigint)
                -- Never: core.instant.NEVER.
                WHEN 'suspended' THEN COALESCE(e.run_at, 253402300799000000)
                WHEN 'pending' THEN p_now
                ELSE j.run_at END,
            -- Finishes that spend no attempt lead to these, or say so.
            attempts = j.attempts - (t.target IN ('scheduled', 'suspended', 'pending')
                OR (t.target = 'failed' AND e.returned IS TRUE))::integer,
            failed_runs = CASE WHEN t.target = 'failed' AND e.returned THEN COALESCE(j.failed_runs, 0) + 1
                WHEN t.target = 'pending' AND e.event = 'restart' THEN NULL ELSE j.failed_runs END,
            -- It has made progress: it does not expire any more.
            steps = COALESCE(e.stepped, j.steps),
            expires_at = CASE WHEN e.stepped THEN NULL ELSE j.expires_at END,
            payload = CASE WHEN t.target <> 'pending' OR e.payload IS NULL THEN j.payload
                WHEN octet_length(e.payload) <= 2048 THEN convert_to(e.payload, 'UTF8') END,
            crashes = j.crashes + (e.event = 'crash')::integer,
            throttles = j.throttles + (e.event = 'throttle')::integer,
            throttled_since = CASE WHEN e.event = 'throttle'
                THEN COALESCE(j.throttled_since, p_now) ELSE j.throttled_since END,
            -- After a run, the next search for a worker that can run it has the whole budget again.
            missing_since = CASE WHEN e.event = 'missing' THEN COALESCE(j.missing_since, p_now) END,
            started_at = COALESCE(j.started_at, p_now - round(e.ran_s * 1000000)::bigint),
            finished_at = CASE WHEN t.target IN ('dead', 'cancelled') THEN p_now END,
            -- A missing handler recurs every few seconds during a deployment and would push the
            -- real errors out.
            errors = CASE WHEN e.error IS NULL OR (e.event = 'missing' AND e.status = 'scheduled')
                THEN j.errors
                ELSE forge.append_error_v1(j.errors, p_now, j.attempts, e.error,
                    COALESCE(j.started_at, p_now - round(e.ran_s * 1000000)::bigint), j.run_at, p_owner,
                    CASE WHEN t.target <> 'cancelled' THEN e.error_group END) END,
            error_group = CASE WHEN t.target = 'cancelled' THEN j.error_group
                ELSE COALESCE(e.error_group, j.error_group) END,
            last_error = CASE WHEN t.target = 'cancelled' THEN c.reason
                ELSE COALESCE(e.error, j.last_error) END
        FROM jsonb_to_recordset(p_finishes) AS e(key bigint, epoch integer, event text, status text,
                delay_s double precision, error text, ran_s double precision,
                waited_s double precision, run_at bigint, stepped boolean, returned boolean, step text, payload text,
                error_group text, heading text)
        LEFT JOIN forge.cancel_requests c ON c.job = e.key
        CROSS JOIN LATERAL (
            SELECT CASE WHEN c.job IS NOT NULL THEN 'cancelled'
                WHEN e.status = 'suspended' AND EXISTS (
                    SELECT 1 FROM forge.steps s WHERE s.job BETWEEN e.key AND e.key AND s.name = e.step) THEN 'pending'
                ELSE e.status END AS target) AS t
        WHERE j.id BETWEEN e.key AND e.key AND j.epoch = e.epoch
            AND (j.owner = p_owner AND j.status = 'running') IS TRUE
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key, j.tags, j.enqueued_at, e.event, e.ran_s, e.waited_s,
            e.error, e.error_group, e.heading
    ),
    -- Merged into the error groups by the roll-up. Index: the primary key of processes.
    failed AS (
        INSERT INTO forge.error_entries (at, failures, error_group, kind, queue, worker, version, heading, latest,
            jobs, enqueued)
        SELECT p_now, count(*), error_group, kind, queue,
            (SELECT p.label FROM forge.processes p WHERE p.id = p_owner),
            (SELECT p.version FROM forge.processes p WHERE p.id = p_owner),
            max(heading), left((array_agg(error ORDER BY id DESC))[1], 1000),
            (array_agg(id ORDER BY id DESC))[1:5], (array_agg(enqueued_at ORDER BY id DESC))[1:5]
        FROM changed WHERE error_group IS NOT NULL AND status <> 'cancelled' GROUP BY error_group, kind, queue
    ),
    tagged AS (
        INSERT INTO forge.tag_entries (minute, tag, queue, kind, runs, done, retried, dead, ran_s, waited_s)
        SELECT p_now - p_now % 60000000, t.tag, r.queue, r.kind, count(*), 0, count(*) FILTER (WHERE r.status = 'failed'),
            count(*) FILTER (WHERE r.status = 'dead'),
            COALESCE(sum(r.ran_s) FILTER (WHERE r.waited_s IS NOT NULL), 0), COALESCE(sum(r.waited_s), 0)
        FROM changed r CROSS JOIN LATERAL unnest(r.tags) AS t(tag)
        WHERE r.event <> 'missing' GROUP BY t.tag, r.queue, r.kind
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs, retried, throttled,
            waited_s, ran_s, waited, ran)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*),
            count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status = 'scheduled' AND event = 'throttle'),
            COALESCE(sum(waited_s), 0), COALESCE(sum(ran_s) FILTER (WHERE waited_s IS NOT NULL), 0),
            string_agg(forge.histogram_bucket_v1(waited_s), ''),
            string_agg(forge.histogram_bucket_v1(ran_s), '') FILTER (WHERE waited_s IS NOT NULL)
        FROM changed GROUP BY queue, kind, status
    )
    SELECT array_agg(id) FILTER (WHERE status IN ('dead', 'cancelled')),
        bool_or(dedupe_key IS NOT NULL), array_agg(id) FILTER (WHERE status = 'suspended'),
        array_agg(id) FILTER (WHERE status = 'pending')
    INTO v_terminal, v_keyed, v_suspended, v_pending FROM changed;
    IF p_finishes @? '$[*].steps' OR v_pending IS NOT NULL THEN
        PERFORM forge.restart_jobs_v1(v_jobs, v_pending, p_finishes);
        PERFORM forge.hold_over_limits_v1(p_now, v_pending);
    END IF;
    IF v_suspended IS NOT NULL THEN
        PERFORM forge.add_waits_v1(v_suspended, p_finishes);
    END IF;
    -- Apart from the row: up to 16 KiB each. Index: the primary key.
    IF p_finishes @? '$[*].traceback' THEN
        PERFORM forge.add_tracebacks_v1(p_now, v_jobs, p_finishes);
    END IF;
    DELETE FROM forge.cancel_requests WHERE job = ANY (v_jobs);
    IF v_keyed THEN
        PERFORM forge.free_keys_at_start_v1(v_jobs);
    END IF;
    IF v_terminal IS NOT NULL THEN
        PERFORM forge.archive_v1(v_terminal);
        IF v_keyed THEN
            PERFORM forge.free_keys_at_end_v1(v_terminal, p_now, true);
        END IF;
    END IF;
    RETURN v_jobs;
END
$$;

-- Releases claims: to pending without spending the attempt, to cancelled if that was requested. The epoch rises
-- either way, so that a late finish is stale. A row that a user's own transaction keeps locked for more than a second is
-- left out: it is reaped, or released again. The owner's lock is held or taken. Returns the queues that have more to do.
CREATE OR REPLACE FUNCTION forge.release_claims_v1(p_now bigint, p_owner bigint, p_keys bigint[], p_epochs integer[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[];
    v_terminal bigint[];
    v_keyed boolean;
    v_limited boolean;
    v_queues text[];
BEGIN
    PERFORM pg_advisory_xact_lock(forge.owner_lock_v1(p_owner));
    BEGIN
        PERFORM set_config('lock_timeout', '1s', true);
        SELECT array_agg(l.id) INTO v_jobs FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.id = ANY (p_keys) AND j.epoch = p_epochs[width_bucket(j.id, p_keys)]
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            ORDER BY j.id
            FOR UPDATE OF j
        ) AS l;
    EXCEPTION WHEN lock_not_available THEN
        SELECT array_agg(l.id) INTO v_jobs FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.id = ANY (p_keys) AND j.epoch = p_epochs[width_bucket(j.id, p_keys)]
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            ORDER BY j.id
            FOR UPDATE OF j SKIP LOCKED
        ) AS l;
    END;
    IF v_jobs IS NULL THEN
        RETURN '{}';
    END IF;
    WITH changed AS (
        UPDATE forge.jobs j
        SET status = CASE WHEN c.job IS NULL THEN 'pending' ELSE 'cancelled' END,
            attempts = j.attempts - (c.job IS NULL)::integer,
            epoch = j.epoch + 1,
            owner = NULL,
            steps = CASE WHEN s.found THEN true ELSE j.steps END,
            expires_at = CASE WHEN s.found THEN NULL ELSE j.expires_at END,
            finished_at = CASE WHEN c.job IS NULL THEN NULL ELSE p_now END,
            last_error = CASE WHEN c.job IS NULL THEN j.last_error ELSE c.reason END
        FROM unnest(v_jobs) AS r(key) LEFT JOIN forge.cancel_requests c ON c.job = r.key
        CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM forge.steps s WHERE s.job BETWEEN r.key AND r.key) AS found) AS s
        WHERE j.id BETWEEN r.key AND r.key
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key, j.limit_key
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*)
        FROM changed GROUP BY queue, kind, status
    )
    SELECT array_agg(id) FILTER (WHERE status = 'cancelled'), bool_or(dedupe_key IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'pending'),
        bool_or(limit_key IS NOT NULL AND status = 'pending')
    INTO v_terminal, v_keyed, v_queues, v_limited FROM changed;
    IF v_limited THEN
        PERFORM forge.hold_over_limits_v1(p_now, v_jobs);
    END IF;
    IF v_terminal IS NOT NULL THEN
        DELETE FROM forge.cancel_requests WHERE job = ANY (v_terminal);
        PERFORM forge.archive_v1(v_terminal);
        IF v_keyed THEN
            PERFORM forge.free_keys_at_end_v1(v_terminal, p_now, false);
        END IF;
        v_queues := v_queues || forge.admit_buckets_of_jobs_v1(p_now, v_terminal);
    END IF;
    RETURN COALESCE(v_queues, '{}');
END
$$;
