-- set: claim_search_v1
-- revision: 2
-- requires: primitives_v1

-- The search for claimable jobs where the plain one does not do: under rate and concurrency limits, and in queues
-- whose claim index begins with many dead entries.

-- How many of p_wanted jobs may be claimed under a task's or queue's limit; see core.limits. opens: when a rate or
-- a closed scope allows one more start, NULL when it does now. The limit is locked.
CREATE OR REPLACE FUNCTION forge.limit_room_v1(
    p_now bigint, p_name text, p_wanted integer, OUT room integer, OUT may_prefetch boolean,
    OUT opens bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_limit forge.limits;
    v_tokens double precision;
    v_until bigint;
BEGIN
    room := 1000000000;
    may_prefetch := true;
    SELECT * INTO v_limit FROM forge.limits WHERE name = p_name;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_limit.concurrency IS NOT NULL AND v_limit.per IS NULL THEN
        -- There are at most as many running jobs as slots. Index: jobs_owner.
        room := greatest(v_limit.concurrency - (
            SELECT count(*) FROM forge.jobs j WHERE j.status = 'running' AND j.owner > 0
                AND p_name IN ('queue:' || j.queue, 'task:' || j.kind)), 0);
        may_prefetch := false;
    END IF;
    IF v_limit.rate_per_s IS NOT NULL THEN
        v_tokens := forge.refilled_tokens_v1(v_limit, p_now);
        room := least(room, floor(v_tokens + 1e-6)::integer);
        may_prefetch := may_prefetch AND floor(v_tokens + 1e-6) >= p_wanted;
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

-- The permits a rate limit has by now; a clock that runs backwards adds nothing.
CREATE OR REPLACE FUNCTION forge.refilled_tokens_v1(p_limit forge.limits, p_now bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT least(p_limit.burst, p_limit.tokens
        + greatest(p_now - p_limit.at, 0) / 1000000.0 * p_limit.rate_per_s)
$$;

-- Locks the limits that claims from these queues may need, in one order. Index: jobs_track.
CREATE OR REPLACE FUNCTION forge.lock_limits_v1(p_queues text[]) RETURNS void
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

-- The next jobs of a queue where limits may apply: unlimited jobs and the tracks of limited tasks, merged by
-- priority, due time and id, as far as each has room. Takes the permits of what it picks. Jobs of limited tasks
-- without a track, stored before the limit existed, are moved to their track, a thousand at a time. Index:
-- jobs_claim, jobs_track.
CREATE OR REPLACE FUNCTION forge.pick_limited_v1(
    p_now bigint, p_queue text, p_free integer, p_prefetch integer, p_kinds text[],
    OUT picked bigint[], OUT opens bigint, OUT waiting boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_queue_room record;
    v_wanted integer;
    v_tracked text[];
    v_stray boolean;
    v_plain bigint[];
    v_ids bigint[];
    v_may_prefetch boolean[] := '{}';
    v_names text[] := '{}';
    v_more bigint[];
    v_track text := '';
    v_room record;
    v_row record;
BEGIN
    picked := '{}';
    SELECT * INTO v_queue_room FROM forge.limit_room_v1(p_now, 'queue:' || p_queue, p_free + p_prefetch);
    v_wanted := least(p_free + CASE WHEN v_queue_room.may_prefetch THEN p_prefetch ELSE 0 END, v_queue_room.room);
    v_tracked := ARRAY(SELECT substr(l.name, 6) FROM forge.limits l
        WHERE l.name LIKE 'task:%' AND (l.rate_per_s IS NOT NULL OR l.scopes <> '{}'
            OR (l.concurrency IS NOT NULL AND l.per IS NULL)));
    IF v_wanted > 0 THEN
        FOR v_round IN 1 .. 8 LOOP
            SELECT array_agg(l.id) FILTER (WHERE l.kind <> ALL (v_tracked)),
                bool_or(l.kind = ANY (v_tracked)), bool_or(l.unique_waiting)
            INTO v_plain, v_stray, waiting FROM (
                SELECT j.id, j.kind, j.unique_waiting FROM forge.jobs j
                WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                    AND (j.expires_at IS NULL OR j.expires_at > p_now)
                    AND (p_kinds IS NULL OR j.kind = ANY (p_kinds))
                ORDER BY j.priority, j.run_at, j.id
                LIMIT v_wanted
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
        v_may_prefetch := array_fill(true, ARRAY[cardinality(v_ids)]);
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
            SELECT * INTO v_room FROM forge.limit_room_v1(p_now, 'task:' || v_track, v_wanted);
            CONTINUE WHEN v_room.room <= 0;
            v_more := ARRAY(
                SELECT j.id FROM forge.jobs j
                WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NOT NULL
                    AND j.track = v_track AND (j.expires_at IS NULL OR j.expires_at > p_now)
                ORDER BY j.priority, j.run_at, j.id
                LIMIT least(v_room.room, v_wanted)
                FOR UPDATE SKIP LOCKED);
            v_ids := v_ids || v_more;
            v_may_prefetch := v_may_prefetch || array_fill(v_room.may_prefetch, ARRAY[cardinality(v_more)]);
            v_names := v_names || array_fill('task:' || v_track, ARRAY[cardinality(v_more)]);
        END LOOP;
        IF cardinality(v_ids) = cardinality(COALESCE(v_plain, '{}')) THEN
            picked := v_ids;
            v_names := '{}';
        ELSE
            waiting := true;
            FOR v_row IN
                SELECT u.id, u.may_prefetch, u.name FROM unnest(v_ids, v_may_prefetch, v_names)
                    AS u(id, may_prefetch, name)
                JOIN forge.jobs j ON j.id BETWEEN u.id AND u.id
                ORDER BY j.priority, j.run_at, j.id
            LOOP
                EXIT WHEN cardinality(picked) >= v_wanted;
                CONTINUE WHEN cardinality(picked) >= p_free AND NOT v_row.may_prefetch;
                picked := picked || v_row.id;
                v_names[cardinality(picked)] := v_row.name;
            END LOOP;
            v_names := v_names[1:cardinality(picked)];
        END IF;
        IF picked <> '{}' THEN
            UPDATE forge.limits l
            SET tokens = greatest(forge.refilled_tokens_v1(l, p_now) - u.starts, 0), at = greatest(l.at, p_now)
            FROM (
                SELECT n AS name, count(*) AS starts FROM unnest(v_names) AS n GROUP BY n
                UNION ALL SELECT 'queue:' || p_queue, cardinality(picked)
            ) AS u
            WHERE l.name = u.name AND l.rate_per_s IS NOT NULL;
        END IF;
    END IF;
    IF cardinality(picked) < p_free + p_prefetch THEN
        SELECT * INTO v_queue_room FROM forge.limit_room_v1(p_now, 'queue:' || p_queue, 1);
        IF v_queue_room.opens IS NOT NULL AND EXISTS (SELECT 1 FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                AND j.id <> ALL (picked))
        THEN
            opens := v_queue_room.opens;
        END IF;
        v_track := '';
        LOOP
            SELECT j.track INTO v_track FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NOT NULL
                AND j.track > v_track
            ORDER BY j.track LIMIT 1;
            EXIT WHEN NOT FOUND;
            SELECT * INTO v_room FROM forge.limit_room_v1(p_now, 'task:' || v_track, 1);
            opens := least(opens, greatest(v_room.opens, v_queue_room.opens));
        END LOOP;
    END IF;
    picked := NULLIF(picked, '{}');
END
$$;

-- The next jobs of a queue without limits, starting at the watermarks: one position per priority, by rising
-- priority. More urgent priorities are searched in full. Index: jobs_claim.
CREATE OR REPLACE FUNCTION forge.pick_above_watermark_v1(p_now bigint, p_queue text, p_limit integer, p_watermarks jsonb)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_picked bigint[] := '{}';
    v_found bigint[];
    v_lowest bigint := -2147483648;
    v_watermark record;
BEGIN
    FOR v_watermark IN
        SELECT (f ->> 0)::integer AS priority, (f ->> 1)::bigint AS run_at, (f ->> 2)::bigint AS id
        FROM jsonb_array_elements(p_watermarks) AS f
        UNION ALL SELECT NULL, NULL, NULL
        ORDER BY priority NULLS LAST
    LOOP
        SELECT array_agg(l.id) INTO v_found FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                AND j.priority >= v_lowest AND j.priority < COALESCE(v_watermark.priority, 2147483648)
                AND (j.expires_at IS NULL OR j.expires_at > p_now)
            ORDER BY j.priority, j.run_at, j.id
            LIMIT p_limit - cardinality(v_picked)
            FOR UPDATE SKIP LOCKED
        ) AS l;
        v_picked := v_picked || v_found;
        EXIT WHEN v_watermark.priority IS NULL;
        SELECT array_agg(l.id) INTO v_found FROM (
            SELECT j.id FROM forge.jobs j
            WHERE j.queue = p_queue AND j.status = 'pending' AND j.track IS NULL
                AND j.priority = v_watermark.priority
                AND (j.run_at, j.id) >= (v_watermark.run_at, v_watermark.id)
                AND (j.expires_at IS NULL OR j.expires_at > p_now)
            ORDER BY j.run_at, j.id
            LIMIT p_limit - cardinality(v_picked)
            FOR UPDATE SKIP LOCKED
        ) AS l;
        v_picked := v_picked || v_found;
        v_lowest := v_watermark.priority + 1;
    END LOOP;
    RETURN NULLIF(v_picked, '{}');
END
$$;
