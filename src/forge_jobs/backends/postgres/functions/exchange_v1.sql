-- set: exchange_v1
-- revision: 6
-- requires: primitives_v1, limit_buckets_v1, due_jobs_v1, finish_v1, claim_search_v1, steps_v1, events_v1

-- The hot call of a worker that has something to write.

-- One exchange of a worker process, in one transaction and one round trip: writes notes, finishes, releases and
-- started marks, then claims jobs for the free slots. See forge_jobs.store.jobs.
--
-- Arrays of keys come sorted, by epoch where a key stands twice, so that rows are locked in the order of their ids and
-- width_bucket finds the epoch of an id. Returns one row per claim, with its steps as head if it has some, and a
-- last row with a NULL key whose head holds the rest:
--   now, alive, control, next_due, cancels: as in Exchanged
--   missed: [[key, epoch, already?], …] for finishes that were not applied
--   queues: queues that have more to do because of releases, admissions and events
--   unmarked: [[key, epoch], …] of started marks to send again
--   walked: how many index entries the search for jobs read (see p_watermarks)
-- p_watermarks: {queue: [[priority, run_at, id], …]}: where the search starts in a queue whose claim index begins
-- with many dead entries that vacuum may not remove yet.
-- p_done_waited: how long each job was due before it ran, as a JSON array that is read only if counter entries have
-- to be made here; NULL keeps all durations out of the metrics.
-- p_entry_…: the counter entries of these finishes, one per queue and kind, made by the worker to save processor
-- time of the server. They hold if every finish was applied, else they are made here from the rows.
-- p_kinds: per queue the only kinds wanted, joined by commas, or NULL; such a queue has no watermarks.
CREATE OR REPLACE FUNCTION forge.exchange_v1(
    p_now bigint, p_owner bigint, p_number bigint,
    p_done_keys bigint[], p_done_epochs integer[], p_done_results bytea[],
    p_done_ran double precision[], p_done_waited text,
    p_entry_queues text[], p_entry_kinds text[], p_entry_jobs integer[],
    p_entry_waited_s double precision[], p_entry_ran_s double precision[],
    p_entry_waited bytea[], p_entry_ran bytea[], p_entry_enqueued bytea[],
    p_finishes jsonb,
    p_release_keys bigint[], p_release_epochs integer[],
    p_started_keys bigint[], p_started_epochs integer[],
    p_notes jsonb, p_lines jsonb,
    p_queues text[], p_free integer[], p_prefetch integer[], p_watermarks jsonb, p_kinds text[]
) RETURNS TABLE (
    c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer,
    c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean,
    c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint,
    c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, c_options text,
    head jsonb
)
LANGUAGE plpgsql VOLATILE ROWS 100
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now bigint := forge.store_now_v1(p_now);
    v_minute bigint := v_now - v_now % 60000000;
    v_done bigint[];
    v_finished bigint[];
    v_keyed boolean;
    v_tagged boolean;
    v_waiting boolean;
    v_missed jsonb;
    v_unmarked jsonb;
    v_open boolean;
    v_released text[];
    v_alive boolean;
    v_queue record;
    v_picked bigint[];
    v_rows tid[];
    v_part tid[];
    v_started_at bigint;
    v_kinds text[];
    v_wanted integer;
    v_due bigint;
    v_next bigint;
    v_bound boolean;
    v_laned boolean;
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
    -- No earlier call of this owner may store steps of a job that is released: see steps_v1.
    IF p_release_keys IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(forge.owner_lock_v1(p_owner));
    END IF;
    IF p_notes IS NOT NULL OR p_lines IS NOT NULL THEN
        PERFORM forge.write_notes_v1(p_owner, p_notes, p_lines);
    END IF;

    -- Done: guarded by epoch and owner, moved to history at once. width_bucket finds the position of an id in the
    -- sorted array; a join with the claims could be turned round to read all of jobs. (SELECT p_done_keys) is the
    -- array as one piece of memory, made once: the parameter itself would be copied for every row. Index: the
    -- primary key.
    IF p_done_keys IS NOT NULL THEN
        WITH deleted AS (
            DELETE FROM forge.jobs j
            WHERE j.id = ANY (p_done_keys) AND j.epoch = p_done_epochs[width_bucket(j.id, (SELECT p_done_keys))]
                AND (j.owner = p_owner AND j.status = 'running') IS TRUE
            RETURNING j.*, width_bucket(j.id, (SELECT p_done_keys)) AS ordinal
        ),
        kept AS (
            INSERT INTO forge.history (
                id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes,
                throttles, unique_waiting, status, queue, kind, payload, owner, exchange,
                started_at, finished_at, expires_at, dedupe_key, limit_key, lane, lane_order,
                throttled_since, missing_since, timeout_s, dedupe_for_s, progress, tags, on_dead,
                trace, options, steps, failed_runs, last_error, errors, error_group,
                progress_note, result)
            SELECT
                id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes,
                throttles, unique_waiting, 'done', queue, kind, payload, owner, exchange,
                COALESCE(started_at, v_now - round(p_done_ran[ordinal] * 1000000)::bigint), v_now,
                expires_at,
                dedupe_key, limit_key, lane, lane_order, throttled_since, missing_since, timeout_s,
                dedupe_for_s, progress, tags, on_dead, trace, options, steps, failed_runs, last_error, errors,
                error_group, progress_note, p_done_results[ordinal]
            FROM deleted
            RETURNING id, dedupe_key IS NOT NULL AS keyed,
                limit_key IS NOT NULL OR lane_order IS NOT NULL AS bound, lane_order IS NOT NULL AS laned,
                tags IS NOT NULL AS tagged
        )
        SELECT array_agg(id), bool_or(keyed), bool_or(bound), bool_or(laned), bool_or(tagged)
        INTO v_done, v_keyed, v_bound, v_laned, v_tagged FROM kept;
        IF cardinality(v_done) = cardinality(p_done_keys) THEN
            INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs, waited_s, ran_s,
                waited, ran, ended_at, enqueued)
            SELECT v_minute, l.queue, l.kind, 'running', 'done', l.jobs, l.waited_s, l.ran_s,
                l.waited, l.ran, v_now, l.enqueued
            FROM unnest(p_entry_queues, p_entry_kinds, p_entry_jobs, p_entry_waited_s, p_entry_ran_s,
                p_entry_waited, p_entry_ran, p_entry_enqueued)
                AS l(queue, kind, jobs, waited_s, ran_s, waited, ran, enqueued);
        ELSIF v_done IS NOT NULL THEN
            INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs, waited_s, ran_s,
                waited, ran, ended_at, enqueued)
            SELECT v_minute, h.queue, h.kind, 'running', 'done', count(*),
                COALESCE(sum(f.waited_s), 0),
                COALESCE(sum(f.ran_s) FILTER (WHERE f.waited_s IS NOT NULL), 0),
                string_agg(forge.histogram_bucket_v1(f.waited_s), ''),
                string_agg(forge.histogram_bucket_v1(f.ran_s), '') FILTER (WHERE f.waited_s IS NOT NULL),
                v_now,
                string_agg(int8send(h.enqueued_at), '') FILTER (WHERE f.waited_s IS NOT NULL)
            FROM (
                SELECT d.key, p_done_epochs[d.ordinal] AS epoch, p_done_ran[d.ordinal] AS ran_s,
                    (p_done_waited::jsonb ->> (d.ordinal - 1)::integer)::double precision AS waited_s
                FROM unnest(p_done_keys) WITH ORDINALITY AS d(key, ordinal)
            ) AS f
            JOIN forge.history h ON h.id BETWEEN f.key AND f.key AND h.epoch = f.epoch
            WHERE f.key = ANY (v_done)
            GROUP BY h.queue, h.kind;
        END IF;
        -- Index: the primary key.
        IF v_tagged THEN
            INSERT INTO forge.tag_entries (minute, tag, queue, kind, runs, done, retried, dead, ran_s, waited_s)
            SELECT v_minute, t.tag, h.queue, h.kind, count(*), count(*), 0, 0,
                COALESCE(sum(f.ran_s) FILTER (WHERE f.waited_s IS NOT NULL), 0), COALESCE(sum(f.waited_s), 0)
            FROM (
                SELECT d.key, d.epoch, d.ran_s, d.waited::double precision AS waited_s
                FROM ROWS FROM (unnest(p_done_keys), unnest(p_done_epochs), unnest(p_done_ran),
                    jsonb_array_elements_text(p_done_waited::jsonb)) AS d(key, epoch, ran_s, waited)
            ) AS f
            JOIN forge.history h ON h.id BETWEEN f.key AND f.key AND h.epoch = f.epoch
            CROSS JOIN LATERAL unnest(h.tags) AS t(tag)
            WHERE f.key = ANY (v_done)
            GROUP BY t.tag, h.queue, h.kind;
        END IF;
        IF v_keyed THEN
            PERFORM forge.free_keys_at_end_v1(v_done, v_now, true);
        END IF;
    END IF;

    IF p_finishes IS NOT NULL THEN
        v_finished := forge.finish_claims_v1(v_now, p_owner, p_finishes);
    END IF;

    -- A finish that was not applied was written earlier by the same claim, or is stale.
    IF COALESCE(cardinality(v_done), 0) < COALESCE(cardinality(p_done_keys), 0)
        OR COALESCE(cardinality(v_finished), 0) < COALESCE(jsonb_array_length(p_finishes), 0)
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
            SELECT key, epoch FROM jsonb_to_recordset(p_finishes) AS e(key bigint, epoch integer)
        ) AS f
        WHERE NOT EXISTS (
            SELECT 1 FROM unnest(v_done || v_finished) AS a(key)
            WHERE a.key = f.key AND (
                EXISTS (SELECT 1 FROM forge.history h WHERE h.id = f.key AND h.epoch = f.epoch)
                OR EXISTS (SELECT 1 FROM forge.jobs j WHERE j.id = f.key AND j.epoch = f.epoch)));
    END IF;

    IF p_release_keys IS NOT NULL THEN
        v_released := forge.release_claims_v1(v_now, p_owner, p_release_keys, p_release_epochs);
    END IF;

    -- Jobs that are due by now take their turn in their lanes. Index: jobs_due.
    IF p_queues IS NOT NULL AND (v_laned OR v_finished IS NOT NULL) THEN
        PERFORM forge.promote_queue_v1(v_now, w.queue, 1000) FROM unnest(p_queues) AS w(queue)
        WHERE EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = w.queue
            AND j.status IN ('scheduled', 'failed', 'suspended') AND j.run_at <= v_now);
    END IF;

    -- Jobs that waited for these are admitted and may be claimed below.
    IF v_bound OR v_finished IS NOT NULL THEN
        v_released := v_released || forge.admit_buckets_of_jobs_v1(
            v_now, CASE WHEN v_bound THEN v_done ELSE '{}' END || v_finished);
    END IF;

    IF p_started_keys IS NOT NULL THEN
        -- Else a user's own transaction has locked a row.
        IF pg_try_advisory_xact_lock(forge.open_steps_lock_v1(p_owner)) THEN
            WITH marked AS (
                UPDATE forge.jobs j SET started_at = v_now
                WHERE j.id = ANY (p_started_keys)
                    AND j.epoch = p_started_epochs[width_bucket(j.id, p_started_keys)]
                    AND (j.owner = p_owner AND j.status = 'running') IS TRUE AND j.started_at IS NULL
                RETURNING j.unique_waiting
            )
            SELECT bool_or(unique_waiting) INTO v_waiting FROM marked;
        ELSE
            SELECT m.waiting, m.unmarked INTO v_waiting, v_unmarked
            FROM forge.mark_started_v1(v_now, p_owner, p_started_keys, p_started_epochs) AS m;
        END IF;
        IF v_waiting THEN
            PERFORM forge.free_keys_at_start_v1(p_started_keys);
        END IF;
    END IF;

    -- All checks in one statement: a statement costs more than a check. What others change from
    -- here on is seen by the next exchange. Index: jobs_held, events_open and the primary keys.
    SELECT EXISTS (
            SELECT 1 FROM forge.processes p
            WHERE p.id = p_owner AND NOT p.dead
                AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > v_now),
        EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.status = 'held' AND j.limit_bucket >= 'new:' AND j.limit_bucket < 'new<'),
        EXISTS (SELECT 1 FROM forge.limits),
        EXISTS (SELECT 1 FROM forge.limits WHERE concurrency IS NOT NULL AND per IS NULL),
        EXISTS (SELECT 1 FROM forge.gates),
        EXISTS (SELECT 1 FROM forge.events e WHERE e.open),
        (SELECT version FROM forge.control WHERE id = 1),
        (SELECT jsonb_agg(c.job) FROM forge.cancel_requests c WHERE c.owner = p_owner)
    INTO v_alive, v_new, v_limited, v_capped, v_gated, v_open, v_control, v_cancels;

    -- Done stands although a cancel was requested, and nothing is left to cancel. Index: the primary key and
    -- cancel_requests_owner.
    IF v_cancels IS NOT NULL AND v_done IS NOT NULL THEN
        DELETE FROM forge.cancel_requests WHERE job = ANY (v_done);
        SELECT jsonb_agg(c.job) INTO v_cancels FROM forge.cancel_requests c WHERE c.owner = p_owner;
    END IF;

    -- A success removes a gate that closed more than two minutes ago.
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

    IF v_open AND v_alive THEN
        v_released := v_released || (SELECT d.queues FROM forge.deliver_open_v1(v_now, 500) AS d);
    END IF;

    IF v_alive AND p_queues IS NOT NULL THEN
        IF v_new THEN
            v_released := v_released || forge.admit_unchecked_v1(v_now, 100);
        END IF;
        IF v_limited THEN
            PERFORM forge.lock_limits_v1(p_queues);
        END IF;
        FOR v_queue IN
            SELECT w.queue, greatest(w.free, 0) AS free, greatest(w.prefetch, 0) AS prefetch,
                COALESCE(q.paused, false) AS paused,
                CASE WHEN g.until > v_now THEN g.until END AS closed_until,
                string_to_array(w.kinds, ',') AS kinds,
                EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = w.queue
                    AND j.status IN ('scheduled', 'failed', 'suspended') AND j.run_at <= v_now) AS due,
                EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = w.queue
                    AND j.status = 'pending' AND j.track IS NOT NULL) AS tracked
            FROM unnest(p_queues, p_free, p_prefetch, p_kinds) WITH ORDINALITY
                AS w(queue, free, prefetch, kinds, ordinal)
            LEFT JOIN forge.queues q ON q.name = w.queue
            LEFT JOIN forge.gates g ON g.queue = w.queue
            ORDER BY w.ordinal
        LOOP
            IF v_queue.due THEN
                PERFORM forge.promote_queue_v1(v_now, v_queue.queue, 1000);
            END IF;
            CONTINUE WHEN v_queue.paused;
            v_wanted := v_queue.free + v_queue.prefetch;
            v_picked := NULL;
            v_rows := NULL;
            IF v_queue.closed_until IS NULL AND v_wanted > 0 THEN
                -- The server's own counter, which accumulates over several transactions.
                v_walked := v_walked
                    - pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass);
                IF v_limited OR v_queue.tracked OR (v_queue.due AND EXISTS (
                    SELECT 1 FROM forge.jobs j WHERE j.queue = v_queue.queue
                        AND j.status = 'pending' AND j.track IS NOT NULL))
                THEN
                    SELECT l.picked, l.opens, l.waiting INTO v_picked, v_opens, v_waiting
                    FROM forge.pick_limited_v1(
                        v_now, v_queue.queue, v_queue.free, v_queue.prefetch, v_queue.kinds) AS l;
                    v_next := least(v_next, v_opens);
                ELSIF p_watermarks ? v_queue.queue AND NOT v_queue.due THEN
                    v_picked := forge.pick_above_watermark_v1(
                        v_now, v_queue.queue, v_wanted, p_watermarks -> v_queue.queue);
                    v_waiting := true;
                ELSE
                    -- Index: jobs_claim, in its order.
                    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(l.kind),
                        bool_or(l.unique_waiting)
                    INTO v_picked, v_rows, v_kinds, v_waiting
                    FROM (
                        SELECT j.id, j.ctid, j.kind, j.unique_waiting FROM forge.jobs j
                        WHERE j.queue = v_queue.queue AND j.status = 'pending' AND j.track IS NULL
                            AND (j.expires_at IS NULL OR j.expires_at > v_now)
                            AND (v_queue.kinds IS NULL OR j.kind = ANY (v_queue.kinds))
                        ORDER BY j.priority, j.run_at, j.id
                        LIMIT v_wanted
                        FOR UPDATE SKIP LOCKED
                    ) AS l;
                END IF;
                v_walked := v_walked
                    + pg_stat_get_xact_tuples_returned('forge.jobs_claim'::regclass);
                IF v_picked IS NOT NULL THEN
                    v_served := v_served || v_queue.queue;
                    -- A locked row keeps its ctid: no second search by id.
                    IF v_rows IS NULL THEN
                        SELECT array_agg(j.ctid ORDER BY c.ordinal), array_agg(j.kind)
                        INTO v_rows, v_kinds
                        FROM unnest(v_picked) WITH ORDINALITY AS c(id, ordinal)
                        JOIN forge.jobs j ON j.id BETWEEN c.id AND c.id;
                    END IF;
                    -- First those that start at once, then the prefetched ones: two scans by ctid, no join.
                    FOREACH v_started_at IN ARRAY ARRAY[v_now, NULL] LOOP
                        v_part := CASE WHEN v_started_at IS NULL THEN v_rows[v_queue.free + 1:]
                            ELSE v_rows[:v_queue.free] END;
                        CONTINUE WHEN cardinality(v_part) = 0;
                        RETURN QUERY
                        UPDATE forge.jobs j
                        SET status = 'running', owner = p_owner, exchange = p_number,
                            epoch = j.epoch + 1, attempts = j.attempts + 1,
                            started_at = v_started_at
                        WHERE j.ctid = ANY (v_part)
                        RETURNING j.id, j.epoch, j.kind, j.queue,
                            CASE WHEN j.payload IS NULL
                                THEN (SELECT b.payload FROM forge.large_payloads b WHERE b.job = j.id)
                                ELSE j.payload END,
                            j.attempts, j.max_attempts, j.enqueued_at, j.run_at,
                            j.started_at IS NOT NULL, j.priority, j.crashes, j.timeout_s,
                            j.throttled_since, j.missing_since, j.tags,
                            COALESCE(j.limit_key, forge.first_limit_bucket_v1(j.queue, j.lane, j.lane_order, NULL),
                                CASE WHEN v_capped THEN (
                                    SELECT l.name FROM forge.limits l
                                    WHERE l.name IN ('queue:' || j.queue, 'task:' || j.kind)
                                        AND l.concurrency IS NOT NULL AND l.per IS NULL
                                    ORDER BY l.name DESC LIMIT 1) END),
                            j.trace, j.options,
                            CASE WHEN j.steps THEN forge.claimed_steps_v1(j.id, j.failed_runs) END;
                    END LOOP;
                    INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
                    SELECT v_minute, v_queue.queue, k.kind, 'pending', 'running', count(*)
                    FROM unnest(v_kinds) AS k(kind) GROUP BY k.kind;
                    IF v_waiting THEN
                        PERFORM forge.free_keys_at_start_v1(v_picked[1:v_queue.free]);
                    END IF;
                END IF;
            END IF;
            -- When a queue that had too few jobs may have more. Index: jobs_due, jobs_claim.
            IF COALESCE(cardinality(v_picked), 0) < v_wanted THEN
                SELECT j.run_at INTO v_due FROM forge.jobs j
                WHERE j.queue = v_queue.queue AND j.status IN ('scheduled', 'failed', 'suspended')
                ORDER BY j.run_at LIMIT 1;
                IF v_queue.closed_until IS NOT NULL THEN
                    IF EXISTS (SELECT 1 FROM forge.jobs j
                        WHERE j.queue = v_queue.queue AND j.status = 'pending' AND j.track IS NULL)
                        OR EXISTS (SELECT 1 FROM forge.jobs j WHERE j.queue = v_queue.queue
                            AND j.status = 'pending' AND j.track IS NOT NULL)
                    THEN
                        v_due := v_queue.closed_until;
                    ELSIF v_due IS NOT NULL THEN
                        v_due := greatest(v_due, v_queue.closed_until);
                    END IF;
                END IF;
                v_next := least(v_next, v_due);
            END IF;
        END LOOP;
    END IF;

    -- Finishes under a concurrency limit made room: if this process did not use it, others may.
    IF v_capped AND (v_done IS NOT NULL OR v_finished IS NOT NULL) THEN
        v_released := v_released || ARRAY(
            SELECT DISTINCT e.queue FROM (
                SELECT h.queue, h.kind FROM forge.history h WHERE h.id = ANY (v_done || v_finished)
                UNION ALL
                SELECT j.queue, j.kind FROM forge.jobs j WHERE j.id = ANY (v_finished)
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
        'unmarked', v_unmarked,
        'queues', to_jsonb(v_released),
        'walked', v_walked);
    RETURN NEXT;
END
$$;
