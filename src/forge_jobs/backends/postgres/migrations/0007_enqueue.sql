-- Storing jobs.

-- Store jobs. The arrays line up; an array that is NULL stands for NULLs. Tags are joined by commas.
-- A job whose dedupe key is taken is not stored: the answer is the job that holds the key. Keys are
-- taken in their own order, and whoever waits for another transaction's key waits no longer than
-- the lock time limit.
CREATE FUNCTION forge.enqueue(
    p_now bigint, p_kinds text[], p_queues text[], p_payloads bytea[], p_priorities integer[],
    p_max_attempts integer[], p_delays double precision[], p_run_ats bigint[],
    p_expires_s double precision[], p_expires_ats bigint[], p_timeouts double precision[],
    p_dedupe_keys text[], p_dedupe_fors double precision[], p_waiting boolean[], p_tags text[],
    p_limit_keys text[], p_lanes text[], p_orders text[], p_holds boolean[], p_on_deads text[],
    p_traces text[], p_tracks boolean[], p_wait boolean, p_shared boolean DEFAULT false
) RETURNS TABLE (e_place bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
LANGUAGE plpgsql VOLATILE ROWS 100
SET lock_timeout = '5s' AS $$
DECLARE
    v_now bigint := forge.present(p_now);
    v_asked record;
    v_hold record;
    v_job bigint;
    v_jobs bigint[];
    v_taken bigint[] := '{}';
    v_lots text[];
    v_places bigint[];
    v_ids bigint[];
    v_begins text[];
BEGIN
    IF p_shared THEN
        -- Calls of several people: whoever has to wait for a key shall do so alone. This holds within the
        -- function, as the setting above does.
        PERFORM set_config('lock_timeout', '200ms', true);
    END IF;
    -- Jobs that are due and bound begin in their first lot. Whoever stores them holds the locks until
    -- the commit, but for a user's own transaction, which may take its time: its jobs begin as new.
    IF p_limit_keys IS NOT NULL OR p_orders IS NOT NULL THEN
        SELECT array_agg(DISTINCT forge.first_lot(u.queue, u.lane, u.lane_order, u.limit_key))
            FILTER (WHERE u.lane_order IS NOT NULL OR u.limit_key IS NOT NULL)
        INTO v_lots
        FROM unnest(p_queues, p_lanes, p_orders, p_limit_keys, p_holds)
            AS u(queue, lane, lane_order, limit_key, hold)
        WHERE u.hold IS NOT TRUE;
    END IF;
    IF p_dedupe_keys IS NOT NULL THEN
        FOR v_asked IN
            SELECT u.kind, u.key, u.place
            FROM unnest(p_kinds, p_dedupe_keys) WITH ORDINALITY AS u(kind, key, place)
            WHERE u.key IS NOT NULL ORDER BY u.kind, u.key, u.place
        LOOP
            LOOP
                SELECT d.job, d.until INTO v_hold FROM forge.dedupe d
                WHERE d.kind = v_asked.kind AND d.key = v_asked.key;
                IF NOT FOUND THEN
                    -- Waits here for a transaction that is just taking the same key.
                    INSERT INTO forge.dedupe (kind, key, job)
                    VALUES (v_asked.kind, v_asked.key, nextval('forge.jobs_id_seq'))
                    ON CONFLICT DO NOTHING RETURNING job INTO v_job;
                    CONTINUE WHEN NOT FOUND;
                ELSIF v_hold.until <= v_now THEN
                    UPDATE forge.dedupe d SET job = nextval('forge.jobs_id_seq'), until = NULL
                    WHERE d.kind = v_asked.kind AND d.key = v_asked.key AND d.until <= v_now
                    RETURNING job INTO v_job;
                    CONTINUE WHEN NOT FOUND;
                ELSE
                    v_job := v_hold.job;
                    v_taken := v_taken || v_asked.place;
                END IF;
                v_jobs[v_asked.place] := v_job;
                EXIT;
            END LOOP;
        END LOOP;
    END IF;
    WITH numbered AS MATERIALIZED (
        SELECT COALESCE(v_jobs[u.place], nextval('forge.jobs_id_seq')) AS id,
            COALESCE(u.run_at, v_now + round(COALESCE(u.delay_s, 0) * 1000000)::bigint) AS due_at,
            COALESCE(u.expires_at, v_now + round(u.expires_s * 1000000)::bigint) AS dies_at, u.*
        FROM unnest(p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts, p_delays,
            p_run_ats, p_expires_s, p_expires_ats, p_timeouts, p_dedupe_keys, p_dedupe_fors,
            p_waiting, p_tags, p_limit_keys, p_lanes, p_orders, p_holds, p_on_deads, p_traces,
            p_tracks)
            WITH ORDINALITY AS u(kind, queue, payload, priority, max_attempts, delay_s, run_at,
                expires_s, expires_at, timeout_s, dedupe_key, dedupe_for_s, waiting, tags,
                limit_key, lane, lane_order, hold, on_dead, trace, track, place)
        WHERE u.place <> ALL (v_taken)
    ),
    asked AS MATERIALIZED (
        SELECT n.*, o.lot, CASE WHEN n.due_at > v_now THEN 'scheduled'
            WHEN n.hold OR o.lot IS NOT NULL THEN 'held' ELSE 'pending' END AS begins
        FROM numbered n
        CROSS JOIN LATERAL (
            SELECT forge.first_lot(n.queue, n.lane, n.lane_order, n.limit_key) AS lot) AS o
    ),
    stored AS (
        INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, expires_at,
            max_attempts, timeout_s, payload, dedupe_key, dedupe_for_s, unique_waiting, tags,
            limit_key, lane, lane_order, on_dead, trace, track, lot)
        SELECT a.id, a.begins,
            a.queue, a.kind, a.priority, a.due_at, v_now, a.dies_at, a.max_attempts, a.timeout_s,
            CASE WHEN length(a.payload) <= 2048 THEN a.payload END, a.dedupe_key, a.dedupe_for_s,
            COALESCE(a.waiting, false), string_to_array(a.tags, ','), a.limit_key, a.lane,
            a.lane_order, a.on_dead, a.trace, CASE WHEN a.track THEN a.kind END,
            CASE WHEN a.begins = 'held' THEN CASE WHEN a.hold
                THEN COALESCE(a.limit_key, a.lot, '')
                ELSE CASE WHEN p_wait THEN '' ELSE 'new:' END || a.lot END END
        FROM asked a
        RETURNING jobs.id, jobs.queue, jobs.kind, jobs.status
    ),
    bodies AS (
        INSERT INTO forge.bodies (job, payload)
        SELECT a.id, a.payload FROM asked a WHERE length(a.payload) > 2048
    ),
    booked AS (
        INSERT INTO forge.ledger (minute, queue, kind, target, jobs)
        SELECT v_now - v_now % 60000000, s.queue, s.kind, s.status, count(*)
        FROM stored s GROUP BY s.queue, s.kind, s.status
    )
    SELECT array_agg(a.place), array_agg(a.id), array_agg(a.begins)
    INTO v_places, v_ids, v_begins FROM asked a;
    IF v_lots IS NULL THEN
        RETURN QUERY SELECT u.place, u.id, v_now, u.begins, false
        FROM unnest(v_places, v_ids, v_begins) AS u(place, id, begins);
    ELSE
        IF p_wait THEN
            PERFORM forge.settle(v_now, v_lots);
        END IF;
        RETURN QUERY SELECT u.place, u.id, v_now, j.status, false
        FROM unnest(v_places, v_ids) AS u(place, id) JOIN forge.jobs j ON j.id = u.id;
    END IF;
    IF v_taken <> '{}' THEN
        RETURN QUERY
        SELECT t.place, v_jobs[t.place], COALESCE(j.enqueued_at, h.enqueued_at),
            COALESCE(j.status, h.status), true
        FROM unnest(v_taken) AS t(place)
        LEFT JOIN forge.jobs j ON j.id = v_jobs[t.place]
        LEFT JOIN forge.history h ON h.id = v_jobs[t.place];
    END IF;
END
$$;

-- The same for jobs that differ in nothing but their payloads, all small, and want nothing but to run:
-- the common case, alone or by the thousand. Payloads come in one text, each behind a character that no
-- JSON text holds. Keys follow each other from the first, which is the answer. No arrays go in or out:
-- the driver asks the server about them on every new connection, and a script that enqueues one job
-- should not wait for that.
CREATE FUNCTION forge.enqueue_alike(
    p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer,
    p_payloads text, OUT key bigint, OUT at bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_jobs integer;
BEGIN
    at := forge.present(p_now);
    key := nextval('forge.jobs_id_seq');
    INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts,
        payload)
    SELECT key + u.place - 1, 'pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
        convert_to(u.payload, 'UTF8')
    FROM unnest(string_to_array(p_payloads, E'\x1e')) WITH ORDINALITY AS u(payload, place);
    GET DIAGNOSTICS v_jobs = ROW_COUNT;
    IF v_jobs > 2048 THEN
        RAISE EXCEPTION '% jobs in one call, more than a block has keys', v_jobs;
    END IF;
    INSERT INTO forge.ledger (minute, queue, kind, target, jobs)
    VALUES (at - at % 60000000, p_queue, p_kind, 'pending', v_jobs);
END
$$;

-- The same, and the hint behind it, in one round trip: the jobs are committed before the hint is given,
-- so that no commit waits for others that give one too. Three transactions: the jobs, which others see
-- at once, though they are not on the disk yet; the hint; and one that says nothing but waits for the
-- disk, and with its own record for those of the jobs, which lie before it. So a worker is on its way
-- while the caller still waits. Whoever claims a job waits for the disk too: nothing runs that could be
-- lost. A job alone is stored here, without the price of a function.
CREATE PROCEDURE forge.enqueue_and_tell(
    p_channel text, p_queues text, p_now bigint, p_kind text, p_queue text, p_priority integer,
    p_max_attempts integer, p_payloads text, INOUT key bigint, INOUT at bigint)
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    IF strpos(p_payloads, E'\x1e') > 0 THEN
        SELECT s.key, s.at INTO key, at FROM forge.enqueue_alike(
            p_now, p_kind, p_queue, p_priority, p_max_attempts, p_payloads) AS s;
    ELSE
        at := forge.present(p_now);
        INSERT INTO forge.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts,
            payload)
        VALUES ('pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
            convert_to(p_payloads, 'UTF8'))
        RETURNING id INTO key;
        INSERT INTO forge.ledger (minute, queue, kind, target, jobs)
        VALUES (at - at % 60000000, p_queue, p_kind, 'pending', 1);
    END IF;
    COMMIT;
    PERFORM pg_notify(p_channel, p_queues);
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'forge', '');
END
$$;

-- The same for a few jobs of any kind, and for a user's own transaction over whichever driver they use:
-- one JSON text, with payloads as strings. Refuses a database that is not the one the caller thinks of.
-- With p_channel the hint is part of the transaction: it goes out if and when that commits.
CREATE FUNCTION forge.enqueue_json(
    p_now bigint, p_tag text, p_channel text, p_jobs json, p_shared boolean DEFAULT false)
RETURNS TABLE (e_place bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
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
        SELECT array_agg(j.kind ORDER BY j.place) AS kinds,
            array_agg(j.queue ORDER BY j.place) AS queues,
            array_agg(convert_to(j.payload, 'UTF8') ORDER BY j.place) AS payloads,
            array_agg(j.priority ORDER BY j.place) AS priorities,
            array_agg(j.max_attempts ORDER BY j.place) AS max_attempts,
            array_agg(j.delay_s ORDER BY j.place) AS delays,
            array_agg(j.run_at ORDER BY j.place) AS run_ats,
            array_agg(j.expires_s ORDER BY j.place) AS expires_s,
            array_agg(j.expires_at ORDER BY j.place) AS expires_ats,
            array_agg(j.timeout_s ORDER BY j.place) AS timeouts,
            array_agg(j.dedupe_key ORDER BY j.place) AS dedupe_keys,
            array_agg(j.dedupe_for_s ORDER BY j.place) AS dedupe_fors,
            array_agg(j.waiting ORDER BY j.place) AS waiting,
            array_agg(j.tags ORDER BY j.place) AS tags,
            array_agg(j.limit_key ORDER BY j.place) AS limit_keys,
            array_agg(j.lane ORDER BY j.place) AS lanes,
            array_agg(j.lane_order ORDER BY j.place) AS orders,
            array_agg(j.hold ORDER BY j.place) AS holds,
            array_agg(j.on_dead ORDER BY j.place) AS on_deads,
            array_agg(j.trace ORDER BY j.place) AS traces,
            array_agg(j.track ORDER BY j.place) AS tracks
        FROM ROWS FROM (json_to_recordset(p_jobs) AS (
            kind text, queue text, payload text, priority integer, max_attempts integer,
            delay_s double precision, run_at bigint, expires_s double precision,
            expires_at bigint, timeout_s double precision, dedupe_key text,
            dedupe_for_s double precision, waiting boolean, tags text, limit_key text, lane text,
            lane_order text, hold boolean, on_dead text, trace text, track boolean))
            WITH ORDINALITY AS j(
            kind, queue, payload, priority, max_attempts, delay_s, run_at, expires_s, expires_at,
            timeout_s, dedupe_key, dedupe_for_s, waiting, tags, limit_key, lane, lane_order, hold,
            on_dead, trace, track, place)
    ) AS a
    CROSS JOIN LATERAL forge.enqueue(p_now, a.kinds, a.queues, a.payloads, a.priorities,
        a.max_attempts, a.delays, a.run_ats, a.expires_s, a.expires_ats, a.timeouts, a.dedupe_keys,
        a.dedupe_fors, a.waiting, a.tags, a.limit_keys, a.lanes, a.orders, a.holds, a.on_deads,
        a.traces, a.tracks, p_channel IS NULL, p_shared) AS e;
END
$$;
