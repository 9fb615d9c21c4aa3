-- The hot call and the insert of jobs.

-- One round of a worker process, in one transaction and one round trip: notes, ends, hand-backs and
-- started marks of what it holds, then claims for the room it has. See forge_jobs.store.jobs.
--
-- Arrays of keys come sorted, so that rows are locked in the order of their ids. The answer is one
-- row per claim and a last row with a NULL key whose head holds the rest:
--   now, alive, control, next_due, cancels: as in Exchanged
--   missed: [[key, epoch, already?], …] for ends that were not applied
--   queues: queues that have more to do because of hand-backs
--   pick_us: how long looking for jobs took (see floors)
-- p_floors: {queue: [[priority, run_at, id], …]}: where to begin looking in a queue whose line has a
-- long tail of dead index entries that vacuum may not remove yet.
-- p_done_waited: how long each was due before it ran; NULL keeps all times out of the books.
-- p_kinds: per queue the only kinds wanted, joined by commas, or NULL; such a queue has no floors.
CREATE FUNCTION forge.exchange(
    p_now bigint, p_owner bigint, p_number bigint,
    p_done_keys bigint[], p_done_epochs integer[], p_done_results bytea[],
    p_done_ran double precision[], p_done_waited double precision[], p_ends jsonb,
    p_release_keys bigint[], p_release_epochs integer[],
    p_started_keys bigint[], p_started_epochs integer[],
    p_notes jsonb, p_lines jsonb,
    p_queues text[], p_free integer[], p_prefetch integer[], p_floors jsonb, p_kinds text[]
) RETURNS TABLE (
    c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer,
    c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean,
    c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint,
    c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, head jsonb
)
LANGUAGE plpgsql VOLATILE ROWS 100
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now bigint := forge.present(p_now);
    v_minute bigint := v_now - v_now % 60000000;
    v_done bigint[];
    v_ends bigint[];
    v_keyed boolean;
    v_waiting boolean;
    v_missed jsonb;
    v_released text[];
    v_alive boolean;
    v_want record;
    v_picked bigint[];
    v_asked integer;
    v_due bigint;
    v_next bigint;
    v_since timestamptz;
    v_pick interval := '0';
BEGIN
    IF p_notes IS NOT NULL OR p_lines IS NOT NULL THEN
        PERFORM forge.take_notes(p_owner, p_notes, p_lines);
    END IF;

    -- Done: guarded by a join with the claims, straight into history. Index: the primary key.
    IF p_done_keys IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM forge.jobs j
            USING unnest(p_done_keys, p_done_epochs, p_done_results, p_done_ran, p_done_waited)
                AS f(key, epoch, result, ran_s, waited_s)
            WHERE j.id = f.key AND j.epoch = f.epoch
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            RETURNING j.*, f.result AS outcome, f.ran_s, f.waited_s
        ),
        kept AS (
            INSERT INTO forge.history (
                id, run_at, enqueued_at, owner, exchange, started_at, finished_at, expires_at,
                throttled_since, missing_since, timeout_s, dedupe_for_s, progress, priority, epoch,
                attempts, max_attempts, crashes, throttles, unique_waiting, status, queue, kind,
                payload, dedupe_key, limit_key, lane, lane_order, tags, on_dead, trace, last_error,
                errors, progress_note, result)
            SELECT
                id, run_at, enqueued_at, owner, exchange,
                COALESCE(started_at, v_now - round(ran_s * 1000000)::bigint), v_now, expires_at,
                throttled_since, missing_since, timeout_s, dedupe_for_s, progress, priority, epoch,
                attempts, max_attempts, crashes, throttles, unique_waiting, 'done', queue, kind,
                payload, dedupe_key, limit_key, lane, lane_order, tags, on_dead, trace, last_error,
                errors, progress_note, outcome
            FROM gone
        ),
        booked AS (
            INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs, waited_s, ran_s,
                took_s, waited, ran, took)
            SELECT v_minute, queue, kind, 'running', 'done', count(*),
                COALESCE(sum(waited_s), 0),
                COALESCE(sum(ran_s) FILTER (WHERE waited_s IS NOT NULL), 0),
                COALESCE(sum((v_now - enqueued_at)::double precision / 1000000)
                    FILTER (WHERE waited_s IS NOT NULL), 0),
                string_agg(forge.bucket(waited_s), ''),
                string_agg(forge.bucket(ran_s), '') FILTER (WHERE waited_s IS NOT NULL),
                string_agg(forge.bucket((v_now - enqueued_at)::double precision / 1000000), '')
                    FILTER (WHERE waited_s IS NOT NULL)
            FROM gone GROUP BY queue, kind
        )
        SELECT array_agg(id), bool_or(dedupe_key IS NOT NULL) INTO v_done, v_keyed FROM gone;
        IF v_keyed THEN
            PERFORM forge.keys_ended(v_done, v_now, true);
        END IF;
        -- A success forgets a throttle that is two quiet minutes past.
        IF v_done IS NOT NULL AND EXISTS (SELECT 1 FROM forge.gates) THEN
            DELETE FROM forge.gates g
            WHERE g.until <= v_now - 120000000 AND g.queue IN (
                SELECT h.queue FROM forge.history h WHERE h.id = ANY (v_done));
        END IF;
    END IF;

    IF p_ends IS NOT NULL THEN
        v_ends := forge.end_claims(v_now, p_owner, p_ends);
    END IF;

    -- A finish that was not applied was written before by the same claim, or is stale.
    IF COALESCE(cardinality(v_done), 0) < COALESCE(cardinality(p_done_keys), 0)
        OR COALESCE(cardinality(v_ends), 0) < COALESCE(jsonb_array_length(p_ends), 0)
    THEN
        SELECT jsonb_agg(jsonb_build_array(f.key, f.epoch,
            EXISTS (SELECT 1 FROM forge.history h
                WHERE h.id = f.key AND h.epoch = f.epoch AND h.owner = p_owner)
            OR EXISTS (SELECT 1 FROM forge.jobs j WHERE j.id = f.key AND j.epoch = f.epoch
                AND j.owner = p_owner AND j.status <> 'running')))
        INTO v_missed
        FROM (
            SELECT key, epoch FROM unnest(p_done_keys, p_done_epochs) AS d(key, epoch)
            UNION ALL
            SELECT key, epoch FROM jsonb_to_recordset(p_ends) AS e(key bigint, epoch integer)
        ) AS f
        WHERE NOT EXISTS (
            SELECT 1 FROM unnest(v_done || v_ends) AS a(key)
            WHERE a.key = f.key AND (
                EXISTS (SELECT 1 FROM forge.history h WHERE h.id = f.key AND h.epoch = f.epoch)
                OR EXISTS (SELECT 1 FROM forge.jobs j WHERE j.id = f.key AND j.epoch = f.epoch)));
    END IF;

    IF p_release_keys IS NOT NULL THEN
        v_released := forge.release(v_now, p_owner, p_release_keys, p_release_epochs);
    END IF;

    IF p_started_keys IS NOT NULL THEN
        WITH marked AS (
            UPDATE forge.jobs j SET started_at = v_now
            FROM unnest(p_started_keys, p_started_epochs) AS s(key, epoch)
            WHERE j.id = s.key AND j.epoch = s.epoch
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE AND j.started_at IS NULL
            RETURNING j.unique_waiting
        )
        SELECT bool_or(unique_waiting) INTO v_waiting FROM marked;
        IF v_waiting THEN
            PERFORM forge.keys_started(p_started_keys);
        END IF;
    END IF;

    SELECT EXISTS (
        SELECT 1 FROM forge.processes p
        WHERE p.id = p_owner AND NOT p.dead
            AND p.beat_at + round(p.lease_s * 1000000)::bigint > v_now
    ) INTO v_alive;

    IF v_alive AND p_queues IS NOT NULL THEN
        FOR v_want IN
            SELECT w.queue, greatest(w.free, 0) AS free, greatest(w.prefetch, 0) AS prefetch,
                COALESCE(q.paused, false) AS paused,
                CASE WHEN g.until > v_now THEN g.until END AS closed_until,
                string_to_array(w.kinds, ',') AS kinds
            FROM unnest(p_queues, p_free, p_prefetch, p_kinds) WITH ORDINALITY
                AS w(queue, free, prefetch, kinds, place)
            LEFT JOIN forge.queues q ON q.name = w.queue
            LEFT JOIN forge.gates g ON g.queue = w.queue
            ORDER BY w.place
        LOOP
            -- Index: jobs_due. Nearly always one look.
            IF EXISTS (
                SELECT 1 FROM forge.jobs j WHERE j.queue = v_want.queue
                    AND j.status IN ('scheduled', 'failed') AND j.run_at <= v_now
            ) THEN
                PERFORM forge.promote_queue(v_now, v_want.queue, 1000);
            END IF;
            CONTINUE WHEN v_want.paused;
            v_asked := v_want.free + v_want.prefetch;
            v_picked := NULL;
            IF v_want.closed_until IS NULL AND v_asked > 0 THEN
                v_since := clock_timestamp();
                IF p_floors ? v_want.queue THEN
                    v_picked := forge.pick_above(
                        v_now, v_want.queue, v_asked, p_floors -> v_want.queue);
                    v_waiting := true;
                ELSE
                    -- Index: jobs_claim, in the order it gives.
                    SELECT array_agg(l.id), bool_or(l.unique_waiting) INTO v_picked, v_waiting
                    FROM (
                        SELECT j.id, j.unique_waiting FROM forge.jobs j
                        WHERE j.queue = v_want.queue AND j.status = 'pending'
                            AND (j.expires_at IS NULL OR j.expires_at > v_now)
                            AND (v_want.kinds IS NULL OR j.kind = ANY (v_want.kinds))
                        ORDER BY j.priority, j.run_at, j.id
                        LIMIT v_asked
                        FOR UPDATE SKIP LOCKED
                    ) AS l;
                END IF;
                v_pick := v_pick + (clock_timestamp() - v_since);
                IF v_picked IS NOT NULL THEN
                    RETURN QUERY
                    WITH taken AS (
                        UPDATE forge.jobs j
                        SET status = 'running', owner = p_owner, exchange = p_number,
                            epoch = j.epoch + 1, attempts = j.attempts + 1,
                            started_at = CASE WHEN c.place <= v_want.free THEN v_now END
                        FROM unnest(v_picked) WITH ORDINALITY AS c(id, place)
                        WHERE j.id = c.id
                        RETURNING j.id, j.epoch, j.kind, j.queue, j.payload, j.attempts,
                            j.max_attempts, j.enqueued_at, j.run_at, j.started_at, j.priority,
                            j.crashes, j.timeout_s, j.throttled_since, j.missing_since, j.tags,
                            j.limit_key, j.trace
                    ),
                    booked AS (
                        INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
                        SELECT v_minute, t.queue, t.kind, 'pending', 'running', count(*)
                        FROM taken t GROUP BY t.queue, t.kind
                    )
                    SELECT t.id, t.epoch, t.kind, t.queue,
                        CASE WHEN t.payload IS NULL
                            THEN (SELECT b.payload FROM forge.bodies b WHERE b.job = t.id)
                            ELSE t.payload END,
                        t.attempts, t.max_attempts, t.enqueued_at, t.run_at,
                        t.started_at IS NOT NULL, t.priority, t.crashes, t.timeout_s,
                        t.throttled_since, t.missing_since, t.tags, t.limit_key, t.trace,
                        NULL::jsonb
                    FROM taken t;
                    IF v_waiting THEN
                        PERFORM forge.keys_started(v_picked[1:v_want.free]);
                    END IF;
                END IF;
            END IF;
            -- When a queue that had too little may have more. Index: jobs_due, jobs_claim.
            IF COALESCE(cardinality(v_picked), 0) < v_asked THEN
                SELECT j.run_at INTO v_due FROM forge.jobs j
                WHERE j.queue = v_want.queue AND j.status IN ('scheduled', 'failed')
                ORDER BY j.run_at LIMIT 1;
                IF v_want.closed_until IS NOT NULL THEN
                    IF EXISTS (SELECT 1 FROM forge.jobs j
                        WHERE j.queue = v_want.queue AND j.status = 'pending')
                    THEN
                        v_due := v_want.closed_until;
                    ELSIF v_due IS NOT NULL THEN
                        v_due := greatest(v_due, v_want.closed_until);
                    END IF;
                END IF;
                v_next := least(v_next, v_due);
            END IF;
        END LOOP;
    END IF;

    c_key := NULL;
    head := jsonb_build_object(
        'now', v_now,
        'alive', v_alive,
        'control', (SELECT version FROM forge.control WHERE id = 1),
        'next_due', v_next,
        'cancels', (SELECT jsonb_agg(c.job) FROM forge.cancels c WHERE c.owner = p_owner),
        'missed', v_missed,
        'queues', to_jsonb(v_released),
        'pick_us', (extract(epoch FROM v_pick) * 1000000)::bigint);
    RETURN NEXT;
END
$$;

-- The same search for jobs, beginning above given positions: one per priority, by rising priority.
-- Everything more urgent than a position's priority is looked at in full. Index: jobs_claim.
CREATE FUNCTION forge.pick_above(p_now bigint, p_queue text, p_limit integer, p_floors jsonb)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_picked bigint[] := '{}';
    v_found bigint[];
    v_lowest bigint := -2147483648;
    v_floor record;
BEGIN
    FOR v_floor IN
        SELECT (f ->> 0)::integer AS priority, (f ->> 1)::bigint AS run_at, (f ->> 2)::bigint AS id
        FROM jsonb_array_elements(p_floors) AS f
        UNION ALL SELECT NULL, NULL, NULL
        ORDER BY priority NULLS LAST
    LOOP
        SELECT array_agg(l.id) INTO v_found FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending'
                AND j.priority >= v_lowest AND j.priority < COALESCE(v_floor.priority, 2147483648)
                AND (j.expires_at IS NULL OR j.expires_at > p_now)
            ORDER BY j.priority, j.run_at, j.id
            LIMIT p_limit - cardinality(v_picked)
            FOR UPDATE SKIP LOCKED
        ) AS l;
        v_picked := v_picked || v_found;
        EXIT WHEN v_floor.priority IS NULL;
        SELECT array_agg(l.id) INTO v_found FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.priority = v_floor.priority
                AND (j.run_at, j.id) >= (v_floor.run_at, v_floor.id)
                AND (j.expires_at IS NULL OR j.expires_at > p_now)
            ORDER BY j.run_at, j.id
            LIMIT p_limit - cardinality(v_picked)
            FOR UPDATE SKIP LOCKED
        ) AS l;
        v_picked := v_picked || v_found;
        v_lowest := v_floor.priority + 1;
    END LOOP;
    RETURN NULLIF(v_picked, '{}');
END
$$;

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
    p_traces text[]
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
BEGIN
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
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT COALESCE(v_jobs[u.place], nextval('forge.jobs_id_seq')) AS id,
            COALESCE(u.run_at, v_now + round(COALESCE(u.delay_s, 0) * 1000000)::bigint) AS due_at,
            COALESCE(u.expires_at, v_now + round(u.expires_s * 1000000)::bigint) AS dies_at, u.*
        FROM unnest(p_kinds, p_queues, p_payloads, p_priorities, p_max_attempts, p_delays,
            p_run_ats, p_expires_s, p_expires_ats, p_timeouts, p_dedupe_keys, p_dedupe_fors,
            p_waiting, p_tags, p_limit_keys, p_lanes, p_orders, p_holds, p_on_deads, p_traces)
            WITH ORDINALITY AS u(kind, queue, payload, priority, max_attempts, delay_s, run_at,
                expires_s, expires_at, timeout_s, dedupe_key, dedupe_for_s, waiting, tags,
                limit_key, lane, lane_order, hold, on_dead, trace, place)
        WHERE u.place <> ALL (v_taken)
    ),
    stored AS (
        INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, expires_at,
            max_attempts, timeout_s, payload, dedupe_key, dedupe_for_s, unique_waiting, tags,
            limit_key, lane, lane_order, on_dead, trace)
        SELECT a.id,
            CASE WHEN a.due_at > v_now THEN 'scheduled' WHEN a.hold THEN 'held' ELSE 'pending' END,
            a.queue, a.kind, a.priority, a.due_at, v_now, a.dies_at, a.max_attempts, a.timeout_s,
            CASE WHEN length(a.payload) <= 2048 THEN a.payload END, a.dedupe_key, a.dedupe_for_s,
            COALESCE(a.waiting, false), string_to_array(a.tags, ','), a.limit_key, a.lane,
            a.lane_order, a.on_dead, a.trace
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
    SELECT a.place, a.id, v_now,
        CASE WHEN a.due_at > v_now THEN 'scheduled' WHEN a.hold THEN 'held' ELSE 'pending' END,
        false
    FROM asked a;
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
-- the common case, alone or by the thousand. Keys rise in the order of the payloads. Text alone goes
-- in and out: the driver asks the server about other arrays on every new connection, and a script that
-- enqueues one job should not wait for that.
CREATE FUNCTION forge.enqueue_alike(
    p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer,
    p_payloads text[], OUT keys text, OUT at bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    at := forge.present(p_now);
    WITH stored AS (
        INSERT INTO forge.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts,
            payload)
        SELECT 'pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
            convert_to(u.payload, 'UTF8')
        FROM unnest(p_payloads) AS u(payload)
        RETURNING id
    )
    SELECT string_agg(id::text, ',') INTO keys FROM stored;
    INSERT INTO forge.ledger (minute, queue, kind, target, jobs)
    VALUES (at - at % 60000000, p_queue, p_kind, 'pending', cardinality(p_payloads));
END
$$;

-- The same for a few jobs of any kind, and for a user's own transaction over whichever driver they use:
-- one JSON text, with payloads as strings. Refuses a database that is not the one the caller thinks of.
-- With p_channel the hint is part of the transaction: it goes out if and when that commits.
CREATE FUNCTION forge.enqueue_json(p_now bigint, p_tag text, p_channel text, p_jobs json)
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
            array_agg(j.trace ORDER BY j.place) AS traces
        FROM ROWS FROM (json_to_recordset(p_jobs) AS (
            kind text, queue text, payload text, priority integer, max_attempts integer,
            delay_s double precision, run_at bigint, expires_s double precision,
            expires_at bigint, timeout_s double precision, dedupe_key text,
            dedupe_for_s double precision, waiting boolean, tags text, limit_key text, lane text,
            lane_order text, hold boolean, on_dead text, trace text)) WITH ORDINALITY AS j(
            kind, queue, payload, priority, max_attempts, delay_s, run_at, expires_s, expires_at,
            timeout_s, dedupe_key, dedupe_for_s, waiting, tags, limit_key, lane, lane_order, hold,
            on_dead, trace, place)
    ) AS a
    CROSS JOIN LATERAL forge.enqueue(p_now, a.kinds, a.queues, a.payloads, a.priorities,
        a.max_attempts, a.delays, a.run_ats, a.expires_s, a.expires_ats, a.timeouts, a.dedupe_keys,
        a.dedupe_fors, a.waiting, a.tags, a.limit_keys, a.lanes, a.orders, a.holds, a.on_deads,
        a.traces) AS e;
END
$$;
