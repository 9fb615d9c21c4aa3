-- set: enqueue_v1
-- revision: 2
-- requires: primitives_v1, limit_buckets_v1

-- Storing jobs.

-- Stores jobs. The arrays have one element per job; an array that is NULL stands for NULLs. Tags are joined by
-- commas.
-- A job whose dedupe key is taken is not stored: the reply names the job that holds the key. Keys are taken in
-- their own order, and a wait for another transaction's key ends with the lock timeout.
CREATE OR REPLACE FUNCTION forge.enqueue_v1(
    p_now bigint, p_kinds text[], p_queues text[], p_payloads bytea[], p_priorities integer[],
    p_max_attempts integer[], p_delays double precision[], p_run_ats bigint[],
    p_expires_s double precision[], p_expires_ats bigint[], p_timeouts double precision[],
    p_dedupe_keys text[], p_dedupe_fors double precision[], p_waiting boolean[], p_tags text[],
    p_limit_keys text[], p_lanes text[], p_orders text[], p_holds boolean[], p_on_deads text[],
    p_traces text[], p_tracks boolean[], p_options text[], p_wait boolean, p_shared boolean DEFAULT false
) RETURNS TABLE (e_ordinal bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
LANGUAGE plpgsql VOLATILE ROWS 100
SET lock_timeout = '5s' AS $$
DECLARE
    v_now bigint := forge.store_now_v1(p_now);
    v_wanted record;
    v_holder record;
    v_job bigint;
    v_jobs bigint[];
    v_taken bigint[] := '{}';
    v_buckets text[];
    v_ordinals bigint[];
    v_ids bigint[];
    v_statuses text[];
BEGIN
    IF p_shared THEN
        -- Calls of several callers: one that has to wait for a key must not delay the others. The setting
        -- ends with the function, as the one above does.
        PERFORM set_config('lock_timeout', '200ms', true);
    END IF;
    -- Jobs that are due and bound start in their first limit bucket. The locks are held until the commit,
    -- except in a user's own transaction, which may be long: its jobs start as unchecked.
    IF p_limit_keys IS NOT NULL OR p_orders IS NOT NULL THEN
        SELECT array_agg(DISTINCT forge.first_limit_bucket_v1(u.queue, u.lane, u.lane_order, u.limit_key))
            FILTER (WHERE u.lane_order IS NOT NULL OR u.limit_key IS NOT NULL)
        INTO v_buckets
        FROM unnest(p_queues, p_lanes, p_orders, p_limit_keys, p_holds)
            AS u(queue, lane, lane_order, limit_key, hold)
        WHERE u.hold IS NOT TRUE;
    END IF;
    IF p_dedupe_keys IS NOT NULL THEN
        FOR v_wanted IN
            SELECT u.kind, u.key, u.ordinal
            FROM unnest(p_kinds, p_dedupe_keys) WITH ORDINALITY AS u(kind, key, ordinal)
            WHERE u.key IS NOT NULL ORDER BY u.kind, u.key, u.ordinal
        LOOP
            LOOP
                SELECT d.job, d.until INTO v_holder FROM forge.dedupe_keys d
                WHERE d.kind = v_wanted.kind AND d.key = v_wanted.key;
                IF NOT FOUND THEN
                    -- Waits here for a transaction that is taking the same key.
                    INSERT INTO forge.dedupe_keys (kind, key, job)
                    VALUES (v_wanted.kind, v_wanted.key, nextval('forge.jobs_id_seq'))
                    ON CONFLICT DO NOTHING RETURNING job INTO v_job;
                    CONTINUE WHEN NOT FOUND;
                ELSIF v_holder.until <= v_now THEN
                    UPDATE forge.dedupe_keys d SET job = nextval('forge.jobs_id_seq'), until = NULL
                    WHERE d.kind = v_wanted.kind AND d.key = v_wanted.key AND d.until <= v_now
                    RETURNING job INTO v_job;
                    CONTINUE WHEN NOT FOUND;
                ELSE
                    v_job := v_holder.job;
                    v_taken := v_taken || v_wanted.ordinal;
                END IF;
                v_jobs[v_wanted.ordinal] := v_job;
                EXIT;
            END LOOP;
        END LOOP;
    END IF;
    WITH numbered AS MATERIALIZED (
        SELECT COALESCE(v_jobs[u.ordinal], nextval('forge.jobs_id_seq')) AS id,
            COALESCE(u.run_at, v_now + round(COALESCE(u.delay_s, 0) * 1000000)::bigint) AS due_at,
            COALESCE(u.expires_at, v_now + round(u.expires_s * 1000000)::bigint) AS dies_at, u.*
        FROM unnest(p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts, p_delays,
            p_run_ats, p_expires_s, p_expires_ats, p_timeouts, p_dedupe_keys, p_dedupe_fors,
            p_waiting, p_tags, p_limit_keys, p_lanes, p_orders, p_holds, p_on_deads, p_traces,
            p_tracks, p_options)
            WITH ORDINALITY AS u(kind, queue, payload, priority, max_attempts, delay_s, run_at,
                expires_s, expires_at, timeout_s, dedupe_key, dedupe_for_s, waiting, tags,
                limit_key, lane, lane_order, hold, on_dead, trace, track, options, ordinal)
        WHERE u.ordinal <> ALL (v_taken)
    ),
    asked AS MATERIALIZED (
        SELECT n.*, o.limit_bucket, CASE WHEN n.due_at > v_now THEN 'scheduled'
            WHEN n.hold OR o.limit_bucket IS NOT NULL THEN 'held' ELSE 'pending' END AS first_status
        FROM numbered n
        CROSS JOIN LATERAL (
            SELECT forge.first_limit_bucket_v1(n.queue, n.lane, n.lane_order, n.limit_key) AS limit_bucket) AS o
    ),
    stored AS (
        INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, expires_at,
            max_attempts, timeout_s, payload, dedupe_key, dedupe_for_s, unique_waiting, tags,
            limit_key, lane, lane_order, on_dead, trace, options, track, limit_bucket)
        SELECT a.id, a.first_status,
            a.queue, a.kind, a.priority, a.due_at, v_now, a.dies_at, a.max_attempts, a.timeout_s,
            CASE WHEN length(a.payload) <= 2048 THEN a.payload END, a.dedupe_key, a.dedupe_for_s,
            COALESCE(a.waiting, false), string_to_array(a.tags, ','), a.limit_key, a.lane,
            a.lane_order, a.on_dead, a.trace, a.options, CASE WHEN a.track THEN a.kind END,
            CASE WHEN a.first_status = 'held' THEN CASE WHEN a.hold
                THEN COALESCE(a.limit_key, a.limit_bucket, '')
                ELSE CASE WHEN p_wait THEN '' ELSE 'new:' END || a.limit_bucket END END
        FROM asked a
        RETURNING jobs.id, jobs.queue, jobs.kind, jobs.status
    ),
    bodies AS (
        INSERT INTO forge.large_payloads (job, payload)
        SELECT a.id, a.payload FROM asked a WHERE length(a.payload) > 2048
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
        SELECT v_now - v_now % 60000000, s.queue, s.kind, s.status, count(*)
        FROM stored s GROUP BY s.queue, s.kind, s.status
    )
    SELECT array_agg(a.ordinal), array_agg(a.id), array_agg(a.first_status)
    INTO v_ordinals, v_ids, v_statuses FROM asked a;
    IF v_buckets IS NULL THEN
        RETURN QUERY SELECT u.ordinal, u.id, v_now, u.first_status, false
        FROM unnest(v_ordinals, v_ids, v_statuses) AS u(ordinal, id, first_status);
    ELSE
        IF p_wait THEN
            PERFORM forge.admit_buckets_v1(v_now, v_buckets);
        END IF;
        RETURN QUERY SELECT u.ordinal, u.id, v_now, j.status, false
        FROM unnest(v_ordinals, v_ids) AS u(ordinal, id)
        JOIN forge.jobs j ON j.id BETWEEN u.id AND u.id;
    END IF;
    IF v_taken <> '{}' THEN
        RETURN QUERY
        SELECT t.ordinal, v_jobs[t.ordinal], COALESCE(j.enqueued_at, h.enqueued_at),
            COALESCE(j.status, h.status), true
        FROM unnest(v_taken) AS t(ordinal)
        LEFT JOIN forge.jobs j ON j.id = v_jobs[t.ordinal]
        LEFT JOIN forge.history h ON h.id = v_jobs[t.ordinal];
    END IF;
END
$$;

-- Stores jobs that differ only in their payloads, which are small, and have no options: the common case, alone or
-- by the thousand. Payloads come in one text, separated by a character that no JSON text holds. Ids follow each
-- other from the first, which is returned. No arrays go in or out: the driver looks their types up on every new
-- connection, and a script that enqueues one job should not wait for that.
CREATE OR REPLACE FUNCTION forge.enqueue_alike_v1(
    p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer,
    p_payloads text, OUT key bigint, OUT at bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_jobs integer;
BEGIN
    at := forge.store_now_v1(p_now);
    key := nextval('forge.jobs_id_seq');
    INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts,
        payload)
    SELECT key + u.ordinal - 1, 'pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
        convert_to(u.payload, 'UTF8')
    FROM unnest(string_to_array(p_payloads, E'\x1e')) WITH ORDINALITY AS u(payload, ordinal);
    GET DIAGNOSTICS v_jobs = ROW_COUNT;
    IF v_jobs > 2048 THEN
        RAISE EXCEPTION '% jobs in one call, more than a block has keys', v_jobs;
    END IF;
    INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
    VALUES (at - at % 60000000, p_queue, p_kind, 'pending', v_jobs);
END
$$;

-- The same with the notification, in one round trip. The jobs are committed before NOTIFY, so that their commit
-- does not wait for the lock that commits with a notification share. Three transactions: the jobs, with
-- synchronous_commit off: visible at once, though not flushed yet; the notification; and an empty one whose commit
-- flushes the write-ahead log up to itself, and so the records of the jobs before it. A worker can claim while the
-- caller still waits for the flush. The claim's commit waits for the flush too: no job runs that could be lost. A
-- single job is stored here, without the cost of a function call.
CREATE OR REPLACE PROCEDURE forge.enqueue_and_notify_v1(
    p_channel text, p_queues text, p_now bigint, p_kind text, p_queue text, p_priority integer,
    p_max_attempts integer, p_payloads text, INOUT key bigint, INOUT at bigint)
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    IF strpos(p_payloads, E'\x1e') > 0 THEN
        SELECT s.key, s.at INTO key, at FROM forge.enqueue_alike_v1(
            p_now, p_kind, p_queue, p_priority, p_max_attempts, p_payloads) AS s;
    ELSE
        at := forge.store_now_v1(p_now);
        INSERT INTO forge.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts,
            payload)
        VALUES ('pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
            convert_to(p_payloads, 'UTF8'))
        RETURNING id INTO key;
        INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
        VALUES (at - at % 60000000, p_queue, p_kind, 'pending', 1);
    END IF;
    COMMIT;
    PERFORM pg_notify(p_channel, p_queues);
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'forge', '');
END
$$;

-- The same for a few jobs with any options, and for a user's own transaction over any driver: one JSON text, with
-- payloads as strings. Refuses a database whose tag is not the caller's. With p_channel the notification is part of
-- the transaction: it is sent if and when that commits.
CREATE OR REPLACE FUNCTION forge.enqueue_json_v1(
    p_now bigint, p_tag text, p_channel text, p_jobs json, p_shared boolean DEFAULT false)
RETURNS TABLE (e_ordinal bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
LANGUAGE plpgsql VOLATILE ROWS 100 AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM forge.meta WHERE name = 'tag' AND value = p_tag) THEN
        RAISE EXCEPTION 'these are not the jobs of this store' USING ERRCODE = 'FJ001';
    END IF;
    IF p_channel IS NOT NULL THEN
        PERFORM pg_notify(p_channel, string_agg(DISTINCT j.queue, ','))
        FROM json_to_recordset(p_jobs) AS j(queue text);
    END IF;
    RETURN QUERY
    SELECT e.* FROM (
        SELECT array_agg(j.kind ORDER BY j.ordinal) AS kinds,
            array_agg(j.queue ORDER BY j.ordinal) AS queues,
            array_agg(convert_to(j.payload, 'UTF8') ORDER BY j.ordinal) AS payloads,
            array_agg(j.priority ORDER BY j.ordinal) AS priorities,
            array_agg(j.max_attempts ORDER BY j.ordinal) AS max_attempts,
            array_agg(j.delay_s ORDER BY j.ordinal) AS delays,
            array_agg(j.run_at ORDER BY j.ordinal) AS run_ats,
            array_agg(j.expires_s ORDER BY j.ordinal) AS expires_s,
            array_agg(j.expires_at ORDER BY j.ordinal) AS expires_ats,
            array_agg(j.timeout_s ORDER BY j.ordinal) AS timeouts,
            array_agg(j.dedupe_key ORDER BY j.ordinal) AS dedupe_keys,
            array_agg(j.dedupe_for_s ORDER BY j.ordinal) AS dedupe_fors,
            array_agg(j.waiting ORDER BY j.ordinal) AS waiting,
            array_agg(j.tags ORDER BY j.ordinal) AS tags,
            array_agg(j.limit_key ORDER BY j.ordinal) AS limit_keys,
            array_agg(j.lane ORDER BY j.ordinal) AS lanes,
            array_agg(j.lane_order ORDER BY j.ordinal) AS orders,
            array_agg(j.hold ORDER BY j.ordinal) AS holds,
            array_agg(j.on_dead ORDER BY j.ordinal) AS on_deads,
            array_agg(j.trace ORDER BY j.ordinal) AS traces,
            array_agg(j.track ORDER BY j.ordinal) AS tracks,
            array_agg(j.options ORDER BY j.ordinal) AS options
        FROM ROWS FROM (json_to_recordset(p_jobs) AS (
            kind text, queue text, payload text, priority integer, max_attempts integer,
            delay_s double precision, run_at bigint, expires_s double precision,
            expires_at bigint, timeout_s double precision, dedupe_key text,
            dedupe_for_s double precision, waiting boolean, tags text, limit_key text, lane text,
            lane_order text, hold boolean, on_dead text, trace text, track boolean, options text))
            WITH ORDINALITY AS j(
            kind, queue, payload, priority, max_attempts, delay_s, run_at, expires_s, expires_at,
            timeout_s, dedupe_key, dedupe_for_s, waiting, tags, limit_key, lane, lane_order, hold,
            on_dead, trace, track, options, ordinal)
    ) AS a
    CROSS JOIN LATERAL forge.enqueue_v1(p_now, a.kinds, a.queues, a.payloads, a.priorities,
        a.max_attempts, a.delays, a.run_ats, a.expires_s, a.expires_ats, a.timeouts, a.dedupe_keys,
        a.dedupe_fors, a.waiting, a.tags, a.limit_keys, a.lanes, a.orders, a.holds, a.on_deads,
        a.traces, a.tracks, a.options, p_channel IS NULL, p_shared) AS e;
END
$$;
