-- The hot call of a worker that is at work.

-- One round of a worker process, in one transaction and one round trip: notes, ends, hand-backs and
-- started marks of what it holds, then claims for the room it has. See forge_jobs.store.jobs.
--
-- Arrays of keys come sorted, so that rows are locked in the order of their ids. The answer is one
-- row per claim and a last row with a NULL key whose head holds the rest:
--   now, alive, control, next_due, cancels: as in Exchanged
--   missed: [[key, epoch, already?], …] for ends that were not applied
--   queues: queues that have more to do because of hand-backs
--   walked: over how many entries of the queues' lines the search for jobs went (see floors)
-- p_floors: {queue: [[priority, run_at, id], …]}: where to begin looking in a queue whose line has a
-- long tail of dead index entries that vacuum may not remove yet.
-- p_done_waited: how long each was due before it ran, as a JSON array, which is read only if a line has
-- to be made here; NULL keeps all times out of the books.
-- p_line_…: what the books shall say of these ends, one line per queue and kind, made by the worker:
-- it has the time. It holds if every end was applied, else the line is made here from the rows.
-- p_kinds: per queue the only kinds wanted, joined by commas, or NULL; such a queue has no floors.
CREATE FUNCTION forge.exchange(
    p_now bigint, p_owner bigint, p_number bigint,
    p_done_keys bigint[], p_done_epochs integer[], p_done_results bytea[],
    p_done_ran double precision[], p_done_waited text,
    p_line_queues text[], p_line_kinds text[], p_line_jobs integer[],
    p_line_waited_s double precision[], p_line_ran_s double precision[],
    p_line_waited bytea[], p_line_ran bytea[], p_line_enqueued bytea[],
    p_ends jsonb,
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
    v_rows tid[];
    v_kinds text[];
    v_asked integer;
    v_due bigint;
    v_next bigint;
    v_bound boolean;
    v_new boolean;
    v_limited boolean;
    v_capped boolean;
    v_gated boolean;
    v_control bigint;
    v_cancels jsonb;
    v_served text[] := '{}';
    v_opens bigint;
    v_walked bigint := 0;
BEGIN
    IF p_notes IS NOT NULL OR p_lines IS NOT NULL THEN
        PERFORM forge.take_notes(p_owner, p_notes, p_lines);
    END IF;

    -- Done: guarded by a join with the claims, straight into history. Index: the primary key.
    IF p_done_keys IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM forge.jobs j
            USING unnest(p_done_keys) WITH ORDINALITY AS f(key, place)
            WHERE j.id = f.key AND j.epoch = p_done_epochs[f.place]
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            RETURNING j.*, f.place
        ),
        kept AS (
            INSERT INTO forge.history (
                id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes,
                throttles, unique_waiting, status, queue, kind, payload, owner, exchange,
                started_at, finished_at, expires_at, dedupe_key, limit_key, lane, lane_order,
                throttled_since, missing_since, timeout_s, dedupe_for_s, progress, tags, on_dead,
                trace, last_error, errors, progress_note, result)
            SELECT
                id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes,
                throttles, unique_waiting, 'done', queue, kind, payload, owner, exchange,
                COALESCE(started_at, v_now - round(p_done_ran[place] * 1000000)::bigint), v_now,
                expires_at,
                dedupe_key, limit_key, lane, lane_order, throttled_since, missing_since, timeout_s,
                dedupe_for_s, progress, tags, on_dead, trace, last_error, errors, progress_note,
                p_done_results[place]
            FROM gone
            RETURNING id, dedupe_key IS NOT NULL AS keyed,
                limit_key IS NOT NULL OR lane_order IS NOT NULL AS bound
        )
        SELECT array_agg(id), bool_or(keyed), bool_or(bound) INTO v_done, v_keyed, v_bound
        FROM kept;
        IF cardinality(v_done) = cardinality(p_done_keys) THEN
            INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs, waited_s, ran_s,
                waited, ran, ended_at, enqueued)
            SELECT v_minute, l.queue, l.kind, 'running', 'done', l.jobs, l.waited_s, l.ran_s,
                l.waited, l.ran, v_now, l.enqueued
            FROM unnest(p_line_queues, p_line_kinds, p_line_jobs, p_line_waited_s, p_line_ran_s,
                p_line_waited, p_line_ran, p_line_enqueued)
                AS l(queue, kind, jobs, waited_s, ran_s, waited, ran, enqueued);
        ELSIF v_done IS NOT NULL THEN
            INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs, waited_s, ran_s,
                waited, ran, ended_at, enqueued)
            SELECT v_minute, h.queue, h.kind, 'running', 'done', count(*),
                COALESCE(sum(f.waited_s), 0),
                COALESCE(sum(f.ran_s) FILTER (WHERE f.waited_s IS NOT NULL), 0),
                string_agg(forge.bucket(f.waited_s), ''),
                string_agg(forge.bucket(f.ran_s), '') FILTER (WHERE f.waited_s IS NOT NULL),
                v_now,
                string_agg(int8send(h.enqueued_at), '') FILTER (WHERE f.waited_s IS NOT NULL)
            FROM (
                SELECT d.key, p_done_epochs[d.place] AS epoch, p_done_ran[d.place] AS ran_s,
                    (p_done_waited::jsonb ->> (d.place - 1)::integer)::double precision AS waited_s
                FROM unnest(p_done_keys) WITH ORDINALITY AS d(key, place)
            ) AS f
            JOIN forge.history h ON h.id = f.key AND h.epoch = f.epoch
            WHERE f.key = ANY (v_done)
            GROUP BY h.queue, h.kind;
        END IF;
        IF v_keyed THEN
            PERFORM forge.keys_ended(v_done, v_now, true);
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

    -- Whoever waited for what has ended goes on, and may be claimed below.
    IF v_bound OR v_ends IS NOT NULL THEN
        v_released := v_released || forge.settle_jobs(
            v_now, CASE WHEN v_bound THEN v_done ELSE '{}' END || v_ends);
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

    -- All small questions at once: a statement costs more than an answer. What others change from
    -- here on is seen in the next round. Index: jobs_held and the primary keys.
    SELECT EXISTS (
            SELECT 1 FROM forge.processes p
            WHERE p.id = p_owner AND NOT p.dead
                AND p.beat_at + round(p.lease_s * 1000000)::bigint > v_now),
        EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.status = 'held' AND j.lot >= 'new:' AND j.lot < 'new<'),
        EXISTS (SELECT 1 FROM forge.limits),
        EXISTS (SELECT 1 FROM forge.limits WHERE concurrency IS NOT NULL AND per IS NULL),
        EXISTS (SELECT 1 FROM forge.gates),
        (SELECT version FROM forge.control WHERE id = 1),
        (SELECT jsonb_agg(c.job) FROM forge.cancels c WHERE c.owner = p_owner)
    INTO v_alive, v_new, v_limited, v_capped, v_gated, v_control, v_cancels;

    -- A success forgets a throttle that is two quiet minutes past.
    IF v_gated AND v_done IS NOT NULL THEN
        DELETE FROM forge.gates g
        WHERE g.until <= v_now - 120000000 AND g.queue IN (
            SELECT h.queue FROM forge.history h WHERE h.id = ANY (v_done)
            UNION ALL
            SELECT 'scope:' || s FROM forge.history h
            JOIN forge.limits l ON l.name = 'task:' || h.kind
            CROSS JOIN LATERAL unnest(l.scopes) AS s
            WHERE h.id = ANY (v_done));
    END IF;

    IF v_alive AND p_queues IS NOT NULL THEN
        IF v_new THEN
            v_released := v_released || forge.admit_new(v_now, 100);
        END IF;
        IF v_limited THEN
            PERFORM forge.lock_limits(p_queues);
        END IF;
        FOR v_want IN
            SELECT w.queue, greatest(w.free, 0) AS free, greatest(w.prefetch, 0) AS prefetch,
                COALESCE(q.paused, false) AS paused,
                CASE WHEN g.until > v_now THEN g.until END AS closed_until,
                string_to_array(w.kinds, ',') AS kinds,
                EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = w.queue
                    AND j.status IN ('scheduled', 'failed') AND j.run_at <= v_now) AS due,
                EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = w.queue
                    AND j.status = 'pending' AND j.track IS NOT NULL) AS tracked
            FROM unnest(p_queues, p_free, p_prefetch, p_kinds) WITH ORDINALITY
                AS w(queue, free, prefetch, kinds, place)
            LEFT JOIN forge.queues q ON q.name = w.queue
            LEFT JOIN forge.gates g ON g.queue = w.queue
            ORDER BY w.place
        LOOP
            IF v_want.due THEN
                PERFORM forge.promote_queue(v_now, v_want.queue, 1000);
            END IF;
            CONTINUE WHEN v_want.paused;
            v_asked := v_want.free + v_want.prefetch;
            v_picked := NULL;
            v_rows := NULL;
            IF v_want.closed_until IS NULL AND v_asked > 0 THEN
                -- The server's own count, which goes on over several transactions.
                v_walked := v_walked
                    - pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass);
                IF v_limited OR v_want.tracked OR (v_want.due AND EXISTS (
                    SELECT 1 FROM forge.jobs j WHERE j.queue = v_want.queue
                        AND j.status = 'pending' AND j.track IS NOT NULL))
                THEN
                    SELECT l.picked, l.opens, l.waiting INTO v_picked, v_opens, v_waiting
                    FROM forge.pick_limited(
                        v_now, v_want.queue, v_want.free, v_want.prefetch, v_want.kinds) AS l;
                    v_next := least(v_next, v_opens);
                ELSIF p_floors ? v_want.queue AND NOT v_want.due THEN
                    v_picked := forge.pick_above(
                        v_now, v_want.queue, v_asked, p_floors -> v_want.queue);
                    v_waiting := true;
                ELSE
                    -- Index: jobs_claim, in the order it gives.
                    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.kind),
                        bool_or(l.unique_waiting)
                    INTO v_picked, v_rows, v_kinds, v_waiting
                    FROM (
                        SELECT j.id, j.ctid, j.kind, j.unique_waiting FROM forge.jobs j
                        WHERE j.queue = v_want.queue AND j.status = 'pending' AND j.track IS NULL
                            AND (j.expires_at IS NULL OR j.expires_at > v_now)
                            AND (v_want.kinds IS NULL OR j.kind = ANY (v_want.kinds))
                        ORDER BY j.priority, j.run_at, j.id
                        LIMIT v_asked
                        FOR UPDATE SKIP LOCKED
                    ) AS l;
                END IF;
                v_walked := v_walked
                    + pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass);
                IF v_picked IS NOT NULL THEN
                    v_served := v_served || v_want.queue;
                    -- A row that is locked stays where it is: nobody has to look for it again.
                    IF v_rows IS NULL THEN
                        SELECT array_agg(j.ctid ORDER BY c.place), array_agg(j.kind)
                        INTO v_rows, v_kinds
                        FROM unnest(v_picked) WITH ORDINALITY AS c(id, place)
                        JOIN forge.jobs j ON j.id = c.id;
                    END IF;
                    RETURN QUERY
                    UPDATE forge.jobs j
                    SET status = 'running', owner = p_owner, exchange = p_number,
                        epoch = j.epoch + 1, attempts = j.attempts + 1,
                        started_at = CASE WHEN c.place <= v_want.free THEN v_now END
                    FROM unnest(v_rows) WITH ORDINALITY AS c(place_of_row, place)
                    WHERE j.ctid = c.place_of_row
                    RETURNING j.id, j.epoch, j.kind, j.queue,
                        CASE WHEN j.payload IS NULL
                            THEN (SELECT b.payload FROM forge.bodies b WHERE b.job = j.id)
                            ELSE j.payload END,
                        j.attempts, j.max_attempts, j.enqueued_at, j.run_at,
                        j.started_at IS NOT NULL, j.priority, j.crashes, j.timeout_s,
                        j.throttled_since, j.missing_since, j.tags,
                        COALESCE(j.limit_key, forge.first_lot(j.queue, j.lane, j.lane_order, NULL),
                            CASE WHEN v_capped THEN (
                                SELECT l.name FROM forge.limits l
                                WHERE l.name IN ('queue:' || j.queue, 'task:' || j.kind)
                                    AND l.concurrency IS NOT NULL AND l.per IS NULL
                                ORDER BY l.name DESC LIMIT 1) END),
                        j.trace, NULL::jsonb;
                    INSERT INTO forge.ledger (minute, queue, kind, source, target, jobs)
                    SELECT v_minute, v_want.queue, k.kind, 'pending', 'running', count(*)
                    FROM unnest(v_kinds) AS k(kind) GROUP BY k.kind;
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
                        WHERE j.queue = v_want.queue AND j.status = 'pending' AND j.track IS NULL)
                        OR EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = v_want.queue
                            AND j.status = 'pending' AND j.track IS NOT NULL)
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

    -- Ends under a cap made room: if this process did not use it, others may.
    IF v_capped AND (v_done IS NOT NULL OR v_ends IS NOT NULL) THEN
        v_released := v_released || ARRAY(
            SELECT DISTINCT e.queue FROM (
                SELECT h.queue, h.kind FROM forge.history h WHERE h.id = ANY (v_done || v_ends)
                UNION ALL
                SELECT j.queue, j.kind FROM forge.jobs j WHERE j.id = ANY (v_ends)
            ) AS e
            JOIN forge.limits l ON l.name IN ('queue:' || e.queue, 'task:' || e.kind)
            WHERE l.concurrency IS NOT NULL AND l.per IS NULL AND e.queue <> ALL (v_served));
    END IF;

    c_key := NULL;
    head := jsonb_build_object(
        'now', v_now,
        'alive', v_alive,
        'control', v_control,
        'next_due', v_next,
        'cancels', v_cancels,
        'missed', v_missed,
        'queues', to_jsonb(v_released),
        'walked', v_walked);
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
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
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
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                AND j.priority = v_floor.priority
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
