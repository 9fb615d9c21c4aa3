-- The hot call and the insert of jobs.

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

-- What may be claimed under a task's or queue's limit, of p_asked jobs; see core.limits. opens: when a
-- rate or a closed scope lets one more start, NULL when it does by now. The limit is locked.
CREATE FUNCTION forge.room(
    p_now bigint, p_name text, p_asked integer, OUT room integer, OUT ahead boolean,
    OUT opens bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_limit forge.limits;
    v_tokens double precision;
    v_until bigint;
BEGIN
    room := 1000000000;
    ahead := true;
    SELECT * INTO v_limit FROM forge.limits WHERE name = p_name;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_limit.concurrency IS NOT NULL AND v_limit.per IS NULL THEN
        -- Running jobs are as few as there are slots. Index: jobs_owner.
        room := greatest(v_limit.concurrency - (
            SELECT count(*) FROM forge.jobs j WHERE j.status = 'running' AND j.owner > 0
                AND p_name IN ('queue:' || j.queue, 'task:' || j.kind)), 0);
        ahead := false;
    END IF;
    IF v_limit.rate_per_s IS NOT NULL THEN
        v_tokens := forge.tokens(v_limit, p_now);
        room := least(room, floor(v_tokens + 1e-6)::integer);
        ahead := ahead AND floor(v_tokens + 1e-6) >= p_asked;
        IF v_tokens < 1 - 1e-6 THEN
            opens := greatest(p_now, v_limit.at)
                + ceil((1 - 1e-6 - v_tokens) / v_limit.rate_per_s * 1000000)::bigint;
        END IF;
    END IF;
    IF v_limit.scopes <> '{}' THEN
        SELECT max(g.until) INTO v_until FROM forge.gates g
        WHERE g.queue IN (SELECT 'scope:' || s FROM unnest(v_limit.scopes) AS s)
            AND g.until > p_now;
        IF v_until IS NOT NULL THEN
            room := 0;
            opens := greatest(opens, v_until);
        END IF;
    END IF;
END
$$;

-- The starts a rate has saved up by now; time that runs backwards adds nothing.
CREATE FUNCTION forge.tokens(p_limit forge.limits, p_now bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT least(p_limit.burst, p_limit.tokens
        + greatest(p_now - p_limit.at, 0) / 1000000.0 * p_limit.rate_per_s)
$$;

-- Lock the limits that claims from these queues may need, in one order. Index: jobs_track.
CREATE FUNCTION forge.lock_limits(p_queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    PERFORM 1 FROM forge.limits l
    WHERE (l.rate_per_s IS NOT NULL OR (l.concurrency IS NOT NULL AND l.per IS NULL))
        AND (l.name IN (SELECT 'queue:' || q FROM unnest(p_queues) AS q)
            OR (l.name LIKE 'task:%' AND EXISTS (
                SELECT 1 FROM unnest(p_queues) AS q
                WHERE EXISTS (SELECT 1 FROM forge.jobs j
                    WHERE j.queue = q AND j.status = 'pending' AND j.track IS NOT NULL
                        AND j.track = substr(l.name, 6)))))
    ORDER BY l.name
    FOR UPDATE;
END
$$;

-- The next jobs of a queue where limits may be in the way: its own line and the tracks of limited
-- tasks, merged by priority, due time and key, as far as each has room. Takes the starts of what it
-- picks. Jobs of limited tasks that stand in the queue's own line, because they were stored before
-- the limit, move to their track, a thousand of the line at a time. Index: jobs_claim, jobs_track.
CREATE FUNCTION forge.pick_limited(
    p_now bigint, p_queue text, p_free integer, p_prefetch integer, p_kinds text[],
    OUT picked bigint[], OUT opens bigint, OUT waiting boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_whole record;
    v_asked integer;
    v_tracked text[];
    v_stray boolean;
    v_plain bigint[];
    v_ids bigint[];
    v_aheads boolean[] := '{}';
    v_names text[] := '{}';
    v_more bigint[];
    v_track text := '';
    v_room record;
    v_row record;
BEGIN
    picked := '{}';
    SELECT * INTO v_whole FROM forge.room(p_now, 'queue:' || p_queue, p_free + p_prefetch);
    v_asked := least(p_free + CASE WHEN v_whole.ahead THEN p_prefetch ELSE 0 END, v_whole.room);
    v_tracked := ARRAY(SELECT substr(l.name, 6) FROM forge.limits l
        WHERE l.name LIKE 'task:%' AND (l.rate_per_s IS NOT NULL OR l.scopes <> '{}'
            OR (l.concurrency IS NOT NULL AND l.per IS NULL)));
    IF v_asked > 0 THEN
        FOR v_round IN 1 .. 8 LOOP
            SELECT array_agg(l.id) FILTER (WHERE l.kind <> ALL (v_tracked)),
                bool_or(l.kind = ANY (v_tracked)), bool_or(l.unique_waiting)
            INTO v_plain, v_stray, waiting FROM (
                SELECT j.id, j.kind, j.unique_waiting FROM forge.jobs j
                WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                    AND (j.expires_at IS NULL OR j.expires_at > p_now)
                    AND (p_kinds IS NULL OR j.kind = ANY (p_kinds))
                ORDER BY j.priority, j.run_at, j.id
                LIMIT v_asked
                FOR UPDATE SKIP LOCKED
            ) AS l;
            EXIT WHEN v_stray IS NOT TRUE;
            UPDATE forge.jobs SET track = kind WHERE kind = ANY (v_tracked) AND id = ANY (ARRAY(
                SELECT j.id FROM forge.jobs j
                WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                ORDER BY j.priority, j.run_at, j.id
                LIMIT 1000
                FOR UPDATE SKIP LOCKED));
        END LOOP;
        v_ids := COALESCE(v_plain, '{}');
        v_aheads := array_fill(true, ARRAY[cardinality(v_ids)]);
        v_names := array_fill(''::text, ARRAY[cardinality(v_ids)]);
        LOOP
            SELECT j.track INTO v_track FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NOT NULL
                AND j.track > v_track
            ORDER BY j.track LIMIT 1;
            EXIT WHEN NOT FOUND;
            CONTINUE WHEN v_track <> ALL (p_kinds);
            PERFORM 1 FROM forge.limits l WHERE l.name = 'task:' || v_track
                AND (l.rate_per_s IS NOT NULL OR (l.concurrency IS NOT NULL AND l.per IS NULL))
            FOR UPDATE;
            SELECT * INTO v_room FROM forge.room(p_now, 'task:' || v_track, v_asked);
            CONTINUE WHEN v_room.room <= 0;
            v_more := ARRAY(
                SELECT j.id FROM forge.jobs j
                WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NOT NULL
                    AND j.track = v_track AND (j.expires_at IS NULL OR j.expires_at > p_now)
                ORDER BY j.priority, j.run_at, j.id
                LIMIT least(v_room.room, v_asked)
                FOR UPDATE SKIP LOCKED);
            v_ids := v_ids || v_more;
            v_aheads := v_aheads || array_fill(v_room.ahead, ARRAY[cardinality(v_more)]);
            v_names := v_names || array_fill('task:' || v_track, ARRAY[cardinality(v_more)]);
        END LOOP;
        IF cardinality(v_ids) = cardinality(COALESCE(v_plain, '{}')) THEN
            picked := v_ids;
            v_names := '{}';
        ELSE
            waiting := true;
            FOR v_row IN
                SELECT u.id, u.ahead, u.name FROM unnest(v_ids, v_aheads, v_names)
                    AS u(id, ahead, name)
                JOIN forge.jobs j ON j.id = u.id
                ORDER BY j.priority, j.run_at, j.id
            LOOP
                EXIT WHEN cardinality(picked) >= v_asked;
                CONTINUE WHEN cardinality(picked) >= p_free AND NOT v_row.ahead;
                picked := picked || v_row.id;
                v_names[cardinality(picked)] := v_row.name;
            END LOOP;
            v_names := v_names[1:cardinality(picked)];
        END IF;
        IF picked <> '{}' THEN
            UPDATE forge.limits l
            SET tokens = greatest(forge.tokens(l, p_now) - u.starts, 0), at = greatest(l.at, p_now)
            FROM (
                SELECT n AS name, count(*) AS starts FROM unnest(v_names) AS n GROUP BY n
                UNION ALL SELECT 'queue:' || p_queue, cardinality(picked)
            ) AS u
            WHERE l.name = u.name AND l.rate_per_s IS NOT NULL;
        END IF;
    END IF;
    IF cardinality(picked) < p_free + p_prefetch THEN
        SELECT * INTO v_whole FROM forge.room(p_now, 'queue:' || p_queue, 1);
        IF v_whole.opens IS NOT NULL AND EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                AND j.id <> ALL (picked))
        THEN
            opens := v_whole.opens;
        END IF;
        v_track := '';
        LOOP
            SELECT j.track INTO v_track FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NOT NULL
                AND j.track > v_track
            ORDER BY j.track LIMIT 1;
            EXIT WHEN NOT FOUND;
            SELECT * INTO v_room FROM forge.room(p_now, 'task:' || v_track, 1);
            opens := least(opens, greatest(v_room.opens, v_whole.opens));
        END LOOP;
    END IF;
    picked := NULLIF(picked, '{}');
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
