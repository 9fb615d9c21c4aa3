-- set: events_v1
-- revision: 2
-- requires: primitives_v1, limit_buckets_v1, steps_v1

-- Events, and the suspended jobs that wait for them.
--
-- A transaction that sends an event, or suspends a job that waits for one, holds the lock of the topic until its
-- commit: one of the two sees what the other wrote. Locks of topics are taken before all others, in one order. What
-- holds rows of jobs already (an exchange that delivers or promotes) takes them only if they are free, and leaves the
-- rest to the next exchange. Rows of suspended jobs are taken with SKIP LOCKED: an event that did not reach all jobs
-- stays open.

-- The advisory lock of a topic. Topics share 512 locks, so that a transaction with many topics needs no more than that.
CREATE OR REPLACE FUNCTION forge.topic_lock_v1(p_topic text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('forge-jobs:forge.topics', 0) # (hashtextextended(p_topic, 0) & 511)
$$;

CREATE OR REPLACE FUNCTION forge.lock_topics_v1(p_topics text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '10s' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(o.lock) FROM (
        SELECT DISTINCT forge.topic_lock_v1(t) AS lock FROM unnest(p_topics) AS t ORDER BY 1) AS o;
END
$$;

-- Gives the events of users' own transactions their places. The locks of the topics are held. Index: events_open.
CREATE OR REPLACE FUNCTION forge.number_events_v1(p_topics text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH late AS MATERIALIZED (
        SELECT o.seq, nextval('forge.events_seq_seq') AS place FROM (
            SELECT e.seq FROM forge.events e WHERE e.topic = ANY (p_topics) AND e.open AND e.seq < 0
            ORDER BY e.seq DESC) AS o
    )
    UPDATE forge.events e SET seq = late.place FROM late WHERE e.seq BETWEEN late.seq AND late.seq
$$;

-- The oldest event that a topic of a wait takes: one that was kept when the wait began, and that was sent no later than
-- p_until. A plain query, so that the planner can inline it. Index: events_topic.
CREATE OR REPLACE FUNCTION forge.first_event_v1(
    p_topic text, p_after bigint, p_since bigint, p_began_at bigint, p_until bigint) RETURNS SETOF forge.events
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT * FROM forge.events e
    WHERE e.topic BETWEEN p_topic AND p_topic AND e.seq > p_after AND e.at >= p_since AND e.ends_at >= p_began_at
        AND (p_until IS NULL OR e.at <= p_until)
    ORDER BY e.topic, e.seq LIMIT 1
$$;

-- The value of a step that took an event: core.events.TakenEvent as JSON.
CREATE OR REPLACE FUNCTION forge.taken_event_v1(p_topic text, p_at bigint, p_seq bigint, p_payload bytea)
RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT convert_to('{"name":' || to_json(split_part(p_topic, E'\x1f', 1))::text
        || ',"key":' || to_json(split_part(p_topic, E'\x1f', 2))::text
        || ',"sent_at":' || p_at || ',"seq":' || p_seq
        || ',"payload":' || convert_from(p_payload, 'UTF8') || '}', 'UTF8')
$$;

-- Running handlers ask for an event: the oldest one is stored as a step of their job. A job that is to be suspended but
-- will be cancelled instead takes none. Returns [[position, step or NULL
-- if the claim is not current], …]; waits that find no event are left out. The locks of the topics and of the owner are
-- held. Index: the primary keys, events_topic.
CREATE OR REPLACE FUNCTION forge.take_events_v1(p_now bigint, p_owner bigint, p_topics text[], p_waits jsonb)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM forge.number_events_v1(p_topics);
    INSERT INTO forge.steps (job, began_at, ended_at, epoch, kind, name, value)
    SELECT w.key, w.began_at, p_now, w.epoch, 'event', w.step, forge.taken_event_v1(e.topic, e.at, e.seq, e.payload)
    FROM jsonb_to_recordset(p_waits)
        AS w(key bigint, epoch integer, step text, began_at bigint, topics jsonb, suspends boolean)
    JOIN forge.jobs j ON j.id BETWEEN w.key AND w.key AND j.epoch = w.epoch
    CROSS JOIN LATERAL (
        SELECT e.* FROM jsonb_to_recordset(w.topics) AS t(topic text, after bigint, since bigint)
        CROSS JOIN LATERAL forge.first_event_v1(t.topic, t.after, t.since, w.began_at, NULL) AS e
        ORDER BY e.seq LIMIT 1
    ) AS e
    WHERE (j.owner = p_owner AND j.status = 'running') IS TRUE
        AND (w.suspends IS NOT TRUE OR NOT EXISTS (SELECT 1 FROM forge.cancel_requests c WHERE c.job = w.key))
    ON CONFLICT DO NOTHING;
    RETURN (
        SELECT jsonb_agg(jsonb_build_array(w.ordinal - 1, s.step))
        FROM ROWS FROM (jsonb_to_recordset(p_waits) AS (key bigint, epoch integer, step text))
            WITH ORDINALITY AS w(key, epoch, step, ordinal)
        LEFT JOIN LATERAL (
            SELECT true AS current FROM forge.jobs j
            WHERE j.id BETWEEN w.key AND w.key AND j.epoch = w.epoch AND (j.owner = p_owner AND j.status = 'running') IS TRUE
        ) AS c ON true
        LEFT JOIN LATERAL (
            SELECT forge.step_json_v1(s) AS step FROM forge.steps s
            WHERE c.current AND (s.job, s.name) BETWEEN (w.key, w.step) AND (w.key, w.step)
        ) AS s ON true
        WHERE c.current IS NULL OR s.step IS NOT NULL);
END
$$;

-- Resumes suspended jobs, whose rows are locked: those with an event take it; with p_due the time of all of them has
-- come, and a wait whose deadline has passed takes an event that was sent by then, else ends without one. Other jobs
-- stay suspended. Like promoted jobs, bound ones wait in their limit bucket first. The locks of all topics are held.
-- Returns the resumed jobs, the event that each took, and their queues. Index: waits_job, events_topic.
CREATE OR REPLACE FUNCTION forge.resume_jobs_v1(
    p_now bigint, p_jobs bigint[], p_due boolean, OUT jobs bigint[], OUT seqs bigint[], OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_bound boolean;
BEGIN
    WITH decided AS MATERIALIZED (
        SELECT k.id, w.* FROM unnest(p_jobs) AS k(id)
        LEFT JOIN LATERAL (
            SELECT w.step, w.epoch, w.began_at, w.deadline, e.seq, e.topic, e.at, e.payload FROM forge.waits w
            LEFT JOIN LATERAL forge.first_event_v1(
                w.topic, w.after, w.since, w.began_at, CASE WHEN p_due THEN w.deadline END) AS e ON true
            WHERE w.job BETWEEN k.id AND k.id ORDER BY e.seq LIMIT 1
        ) AS w ON true
        WHERE p_due OR w.seq IS NOT NULL
    ),
    stored AS (
        INSERT INTO forge.steps (job, began_at, ended_at, epoch, kind, name, value)
        SELECT d.id, d.began_at, p_now, d.epoch, CASE WHEN d.seq IS NULL THEN 'timeout' ELSE 'event' END, d.step,
            forge.taken_event_v1(d.topic, d.at, d.seq, d.payload)
        FROM decided d WHERE NOT p_due OR d.deadline <= p_now
        ON CONFLICT DO NOTHING
    ),
    gone AS (DELETE FROM forge.waits w USING decided d WHERE w.job BETWEEN d.id AND d.id),
    changed AS (
        UPDATE forge.jobs j
        SET status = CASE WHEN j.lane_order IS NULL AND j.limit_key IS NULL THEN 'pending' ELSE 'held' END,
            limit_bucket = 'new:' || forge.first_limit_bucket_v1(j.queue, j.lane, j.lane_order, j.limit_key),
            run_at = CASE WHEN p_due THEN j.run_at ELSE p_now END
        FROM decided d WHERE j.id BETWEEN d.id AND d.id
        RETURNING j.id, j.queue, j.kind, j.status, d.seq
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
        SELECT p_now - p_now % 60000000, queue, kind, 'suspended', status, count(*)
        FROM changed GROUP BY queue, kind, status
    )
    SELECT array_agg(c.id), array_agg(c.seq), array_agg(DISTINCT c.queue), bool_or(c.status = 'held')
    INTO jobs, seqs, queues, v_bound FROM changed c;
    IF v_bound THEN
        PERFORM forge.admit_unchecked_v1(p_now, 1000);
    END IF;
END
$$;

-- Resumes jobs that wait for events of these topics, at most p_limit. The locks of the topics are held. Index: the
-- primary keys, events_topic.
CREATE OR REPLACE FUNCTION forge.resume_topics_v1(
    p_now bigint, p_topics text[], p_limit integer, OUT jobs bigint[], OUT seqs bigint[], OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    SELECT array_agg(l.id) INTO jobs FROM (
        SELECT j.id FROM (
            SELECT DISTINCT w.job, w.epoch FROM unnest(p_topics) AS t(topic)
            CROSS JOIN LATERAL (
                SELECT w.job, w.epoch FROM forge.waits w
                WHERE w.topic BETWEEN t.topic AND t.topic AND EXISTS (
                    SELECT 1 FROM forge.first_event_v1(w.topic, w.after, w.since, w.began_at, NULL))
                ORDER BY w.topic, w.job LIMIT p_limit
            ) AS w
        ) AS w
        JOIN forge.jobs j ON j.id BETWEEN w.job AND w.job AND j.epoch = w.epoch
        WHERE (j.status = 'suspended') IS TRUE
        ORDER BY j.id + 0
        LIMIT p_limit
        FOR UPDATE OF j SKIP LOCKED
    ) AS l;
    IF jobs IS NOT NULL THEN
        SELECT r.jobs, r.seqs, r.queues INTO jobs, seqs, queues FROM forge.resume_jobs_v1(p_now, jobs, false) AS r;
    END IF;
END
$$;

-- Takes the dedupe keys of events until their end; returns the positions of those whose key was taken before. Keys are
-- taken in their own order, before all other locks; a wait for another transaction's key ends with the lock timeout.
CREATE OR REPLACE FUNCTION forge.take_event_keys_v1(
    p_now bigint, p_kinds text[], p_keys text[], p_keeps double precision[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '5s' AS $$
DECLARE
    v_duplicates bigint[];
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT DISTINCT ON (u.kind COLLATE "C", u.key COLLATE "C") u.kind, u.key, u.keep_s, u.ordinal
        FROM unnest(p_kinds, p_keys, p_keeps) WITH ORDINALITY AS u(kind, key, keep_s, ordinal)
        WHERE u.key IS NOT NULL ORDER BY u.kind COLLATE "C", u.key COLLATE "C", u.ordinal
    ),
    taken AS (
        INSERT INTO forge.dedupe_keys AS d (kind, key, job, until)
        SELECT w.kind, w.key, 0, p_now + round(w.keep_s * 1000000)::bigint FROM wanted w
        ON CONFLICT (kind, key) DO UPDATE SET until = EXCLUDED.until WHERE d.until <= p_now
        RETURNING d.kind, d.key
    )
    SELECT array_agg(u.ordinal) INTO v_duplicates
    FROM unnest(p_kinds, p_keys) WITH ORDINALITY AS u(kind, key, ordinal)
    WHERE u.key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM wanted w JOIN taken t ON t.kind = w.kind AND t.key = w.key WHERE w.ordinal = u.ordinal);
    RETURN COALESCE(v_duplicates, '{}');
END
$$;

-- Stores events and resumes the jobs that wait for them, at most p_limit; the rest is left to deliver_open_v1. Arrays are
-- parallel. Returns the positions of duplicates, the event that each resumed job took, by position, and the queues of
-- these jobs.
CREATE OR REPLACE FUNCTION forge.send_v1(
    p_now bigint, p_topics text[], p_payloads bytea[], p_keeps double precision[], p_kinds text[], p_keys text[],
    p_limit integer, OUT duplicates bigint[], OUT taken bigint[], OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_now bigint;
    v_new bigint[];
    v_ordinals bigint[];
    v_seqs bigint[];
BEGIN
    duplicates := '{}';
    IF p_keys IS NOT NULL THEN
        duplicates := forge.take_event_keys_v1(forge.store_now_v1(p_now), p_kinds, p_keys, p_keeps);
        IF cardinality(duplicates) = cardinality(p_topics) THEN
            RETURN;
        END IF;
    END IF;
    PERFORM forge.lock_topics_v1(p_topics);
    -- Read with the locks: whoever promotes a job by its deadline must not miss an event sent before that.
    v_now := forge.store_now_v1(p_now);
    PERFORM forge.number_events_v1(p_topics);
    WITH stored AS (
        INSERT INTO forge.events (seq, topic, at, ends_at, payload)
        SELECT nextval('forge.events_seq_seq'), e.topic, v_now, v_now + round(e.keep_s * 1000000)::bigint, e.payload
        FROM unnest(p_topics, p_payloads, p_keeps) WITH ORDINALITY AS e(topic, payload, keep_s, ordinal)
        WHERE e.ordinal <> ALL (duplicates)
        ORDER BY e.ordinal
        RETURNING seq
    )
    SELECT array_agg(s.seq ORDER BY s.seq) INTO v_new FROM stored s;
    SELECT r.seqs, r.queues INTO v_seqs, queues FROM forge.resume_topics_v1(v_now, p_topics, p_limit) AS r;
    UPDATE forge.events e SET open = true
    WHERE e.seq = ANY (v_new) AND EXISTS (
        SELECT 1 FROM forge.waits w WHERE w.topic BETWEEN e.topic AND e.topic AND w.after < e.seq AND w.since <= e.at);
    v_ordinals := ARRAY(SELECT o FROM generate_series(1, cardinality(p_topics)) AS o
        WHERE o <> ALL (duplicates) ORDER BY o);
    taken := ARRAY(SELECT v_ordinals[array_position(v_new, s)] FROM unnest(v_seqs) AS s);
END
$$;

-- The same in a user's own transaction, over any driver: it may be long, so that it takes no lock of a topic. Its events
-- are open and have no place until the next exchange delivers them; the queues of jobs that wait now are notified with
-- the commit. Refuses a database whose tag is not the caller's. Returns the positions of duplicates.
CREATE OR REPLACE FUNCTION forge.send_json_v1(p_now bigint, p_tag text, p_channel text, p_events json)
RETURNS TABLE (e_duplicates bigint[])
LANGUAGE plpgsql VOLATILE ROWS 1 AS $$
DECLARE
    v_now bigint := forge.store_now_v1(p_now);
    v_kinds text[];
    v_keys text[];
    v_keeps double precision[];
    v_queues text;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM forge.meta WHERE name = 'tag' AND value = p_tag) THEN
        RAISE EXCEPTION 'these are not the jobs of this store' USING ERRCODE = 'FJ001';
    END IF;
    e_duplicates := '{}';
    SELECT array_agg(e.kind ORDER BY e.ordinal), array_agg(e.dedupe_key ORDER BY e.ordinal),
        array_agg(e.keep_s ORDER BY e.ordinal)
    INTO v_kinds, v_keys, v_keeps
    FROM ROWS FROM (json_to_recordset(p_events) AS (kind text, dedupe_key text, keep_s double precision))
        WITH ORDINALITY AS e(kind, dedupe_key, keep_s, ordinal);
    IF cardinality(array_remove(v_keys, NULL)) > 0 THEN
        e_duplicates := forge.take_event_keys_v1(v_now, v_kinds, v_keys, v_keeps);
    END IF;
    INSERT INTO forge.events (seq, topic, at, ends_at, open, payload)
    SELECT -nextval('forge.events_seq_seq'), e.topic, v_now, v_now + round(e.keep_s * 1000000)::bigint, true,
        convert_to(e.payload, 'UTF8')
    FROM ROWS FROM (json_to_recordset(p_events) AS (topic text, keep_s double precision, payload text))
        WITH ORDINALITY AS e(topic, keep_s, payload, ordinal)
    WHERE e.ordinal <> ALL (e_duplicates)
    ORDER BY e.ordinal;
    SELECT string_agg(DISTINCT j.queue, ',') INTO v_queues FROM (
        SELECT DISTINCT e.topic FROM json_to_recordset(p_events) AS e(topic text)) AS e
    CROSS JOIN LATERAL (SELECT w.job FROM forge.waits w WHERE w.topic BETWEEN e.topic AND e.topic LIMIT 100) AS w
    JOIN forge.jobs j ON j.id BETWEEN w.job AND w.job;
    IF v_queues IS NOT NULL THEN
        PERFORM pg_notify(p_channel, CASE WHEN length(v_queues) > 7900 THEN '*' ELSE v_queues END);
    END IF;
    RETURN NEXT;
END
$$;

-- Delivers open events: of topics whose lock is free, to at most p_limit jobs. Index: events_open.
CREATE OR REPLACE FUNCTION forge.deliver_open_v1(p_now bigint, p_limit integer, OUT resumed integer, OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_topics text[];
BEGIN
    WITH open AS MATERIALIZED (
        SELECT DISTINCT o.topic FROM (
            SELECT e.topic FROM forge.events e WHERE e.open ORDER BY e.topic, e.seq LIMIT 1000) AS o
    )
    SELECT array_agg(o.topic) INTO v_topics FROM open o
    WHERE pg_try_advisory_xact_lock(forge.topic_lock_v1(o.topic));
    resumed := 0;
    IF v_topics IS NULL THEN
        RETURN;
    END IF;
    PERFORM forge.number_events_v1(v_topics);
    SELECT COALESCE(cardinality(r.jobs), 0), r.queues INTO resumed, queues
    FROM forge.resume_topics_v1(p_now, v_topics, p_limit) AS r;
    IF resumed = 0 THEN
        -- What an older release or a person left: no job is suspended for it.
        DELETE FROM forge.waits w WHERE w.topic = ANY (v_topics) AND NOT EXISTS (
            SELECT 1 FROM forge.jobs j WHERE j.id BETWEEN w.job AND w.job AND j.epoch = w.epoch AND (j.status = 'suspended') IS TRUE);
    END IF;
    UPDATE forge.events e SET open = NULL
    WHERE e.topic = ANY (v_topics) AND e.open AND NOT EXISTS (
        SELECT 1 FROM forge.waits w WHERE w.topic BETWEEN e.topic AND e.topic AND w.after < e.seq AND w.since <= e.at);
END
$$;

-- The safety net: opens events again for which jobs wait, of the p_limit waits behind the position (p_topic, p_job).
-- Returns the position to continue from; NULL at the end. Index: the primary key.
CREATE OR REPLACE FUNCTION forge.sweep_waits_v1(
    p_topic text, p_job bigint, p_limit integer, OUT last_topic text, OUT last_job bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    SELECT w.topic, w.job INTO last_topic, last_job FROM forge.waits w
    WHERE (w.topic, w.job) > (p_topic COLLATE "C", p_job)
    ORDER BY w.topic, w.job OFFSET p_limit - 1 LIMIT 1;
    UPDATE forge.events e SET open = true
    WHERE e.open IS NOT TRUE AND e.seq = ANY (ARRAY(
        SELECT DISTINCT f.seq FROM (
            SELECT * FROM forge.waits w WHERE (w.topic, w.job) > (p_topic COLLATE "C", p_job)
            ORDER BY w.topic, w.job LIMIT p_limit) AS w
        CROSS JOIN LATERAL forge.first_event_v1(w.topic, w.after, w.since, w.began_at, NULL) AS f));
END
$$;

-- Suspended jobs whose time has come, and whose rows are locked, become pending. Jobs with a topic that is busy are left
-- for later: perhaps their event is being sent. Returns how many became pending. Index: waits_job.
CREATE OR REPLACE FUNCTION forge.promote_suspended_v1(p_now bigint, p_jobs bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_jobs bigint[] := p_jobs;
    v_topics text[];
    v_busy text[];
BEGIN
    SELECT array_agg(DISTINCT w.topic) INTO v_topics FROM forge.waits w WHERE w.job = ANY (v_jobs);
    SELECT array_agg(t.topic) INTO v_busy FROM unnest(v_topics) AS t(topic)
    WHERE NOT pg_try_advisory_xact_lock(forge.topic_lock_v1(t.topic));
    IF v_busy IS NOT NULL THEN
        v_jobs := ARRAY(SELECT k FROM unnest(v_jobs) AS k WHERE NOT EXISTS (
            SELECT 1 FROM forge.waits w WHERE w.job BETWEEN k AND k AND w.topic = ANY (v_busy)));
        v_topics := ARRAY(SELECT t FROM unnest(v_topics) AS t WHERE t <> ALL (v_busy));
    END IF;
    PERFORM forge.number_events_v1(v_topics);
    RETURN (SELECT COALESCE(cardinality(r.jobs), 0) FROM forge.resume_jobs_v1(p_now, v_jobs, true) AS r);
END
$$;
