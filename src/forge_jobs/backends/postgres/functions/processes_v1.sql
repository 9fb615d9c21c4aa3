-- set: processes_v1
-- revision: 4
-- requires: primitives_v1, limit_buckets_v1, steps_v1

-- Reaping jobs of dead processes, and dividing slots among the living ones.

-- Declares processes dead whose lease ran out, and takes running jobs from owners that are dead or unknown: to
-- pending, to dead when no attempt is left, to cancelled if that was requested. Owners are found one by one in the
-- index jobs_owner, so that no row of a living one is read. An owner that is storing steps right now is left for the
-- next time, as is a job whose row is locked (steps_v1). p_group and p_heading: the error group of p_note.
CREATE OR REPLACE FUNCTION forge.reap_v1(p_now bigint, p_note text, p_limit integer, p_group text, p_heading text,
    OUT pending integer, OUT dead integer, OUT cancelled integer, OUT more boolean,
    OUT died bigint[], OUT queues text[])
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_owners bigint[];
    v_jobs bigint[];
    v_terminal bigint[];
    v_keyed boolean;
    v_limited boolean;
BEGIN
    UPDATE forge.processes SET dead = true
    WHERE NOT processes.dead AND heartbeat_at + round(lease_s * 1000000)::bigint <= p_now;
    WITH RECURSIVE owners(owner) AS (
        (SELECT owner FROM forge.jobs WHERE status = 'running' ORDER BY owner LIMIT 1)
        UNION ALL
        SELECT (SELECT j.owner FROM forge.jobs j WHERE j.status = 'running' AND j.owner > o.owner
                ORDER BY j.owner LIMIT 1)
        FROM owners o WHERE o.owner IS NOT NULL
    )
    SELECT array_agg(o.owner) INTO v_owners FROM owners o
    WHERE o.owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM forge.processes p WHERE p.id = o.owner AND NOT p.dead);
    v_owners := ARRAY(SELECT o FROM unnest(v_owners) AS o WHERE pg_try_advisory_xact_lock(forge.owner_lock_v1(o)));
    SELECT array_agg(l.id) INTO v_jobs FROM (
        SELECT j.id
        FROM unnest(v_owners) AS o(owner) JOIN forge.jobs j ON j.owner = o.owner AND j.status = 'running'
        ORDER BY j.id + 0
        LIMIT p_limit + 1
        FOR UPDATE OF j SKIP LOCKED
    ) AS l;
    more := COALESCE(cardinality(v_jobs) > p_limit, false);
    v_jobs := v_jobs[1:p_limit];
    WITH changed AS (
        UPDATE forge.jobs j
        SET status = t.target,
            attempts = t.kept,
            epoch = j.epoch + 1,
            owner = NULL,
            crashes = j.crashes + t.started::integer,
            steps = CASE WHEN t.stepped THEN true ELSE j.steps END,
            expires_at = CASE WHEN t.stepped THEN NULL ELSE j.expires_at END,
            finished_at = CASE WHEN t.target = 'pending' THEN NULL ELSE p_now END,
            errors = CASE WHEN t.started
                THEN forge.append_error_v1(j.errors, p_now, j.attempts, p_note, j.started_at, j.run_at, j.owner,
                    CASE WHEN t.target <> 'cancelled' THEN p_group END) ELSE j.errors END,
            error_group = CASE WHEN t.started AND t.target <> 'cancelled' THEN p_group ELSE j.error_group END,
            last_error = CASE WHEN t.target = 'cancelled' THEN t.reason
                WHEN t.started THEN p_note ELSE j.last_error END
        FROM (
            SELECT r.id, r.owner, c.reason, r.started_at IS NOT NULL AS started,
                EXISTS (SELECT 1 FROM forge.steps s WHERE s.job BETWEEN r.id AND r.id) AS stepped,
                r.attempts - (r.started_at IS NULL AND r.attempts > 0)::integer AS kept,
                CASE WHEN c.job IS NOT NULL THEN 'cancelled'
                    WHEN r.attempts - (r.started_at IS NULL AND r.attempts > 0)::integer
                        >= r.max_attempts THEN 'dead'
                    ELSE 'pending' END AS target
            FROM forge.jobs r LEFT JOIN forge.cancel_requests c ON c.job = r.id
            WHERE r.id = ANY (v_jobs)
        ) AS t
        WHERE j.id BETWEEN t.id AND t.id
        RETURNING j.id, j.queue, j.kind, j.status, j.dedupe_key, j.limit_key, j.enqueued_at, t.started, t.owner,
            j.on_dead
    ),
    failed AS (
        INSERT INTO forge.error_entries (at, failures, error_group, kind, queue, worker, version, heading, latest,
            jobs, enqueued)
        SELECT p_now, count(*), p_group, c.kind, c.queue,
            (SELECT p.label FROM forge.processes p WHERE p.id = c.owner),
            (SELECT p.version FROM forge.processes p WHERE p.id = c.owner),
            p_heading, p_note, (array_agg(c.id ORDER BY c.id DESC))[1:5],
            (array_agg(c.enqueued_at ORDER BY c.id DESC))[1:5]
        FROM changed c WHERE c.started AND c.status <> 'cancelled' GROUP BY c.kind, c.queue, c.owner
    ),
    counted AS (
        INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs, retried)
        SELECT p_now - p_now % 60000000, queue, kind, 'running', status, count(*),
            count(*) FILTER (WHERE status = 'pending' AND started)
        FROM changed GROUP BY queue, kind, status
    )
    SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'dead'),
        count(*) FILTER (WHERE status = 'cancelled'),
        array_agg(id) FILTER (WHERE status <> 'pending'), bool_or(dedupe_key IS NOT NULL),
        array_agg(id) FILTER (WHERE status = 'dead' AND on_dead IS NOT NULL),
        array_agg(DISTINCT queue) FILTER (WHERE status = 'pending'),
        bool_or(limit_key IS NOT NULL AND status = 'pending')
    INTO pending, dead, cancelled, v_terminal, v_keyed, died, queues, v_limited FROM changed;
    IF v_limited THEN
        PERFORM forge.hold_over_limits_v1(p_now, v_jobs);
    END IF;
    IF v_terminal IS NOT NULL THEN
        DELETE FROM forge.cancel_requests WHERE job = ANY (v_terminal);
        PERFORM forge.archive_v1(v_terminal);
        IF v_keyed THEN
            PERFORM forge.free_keys_at_end_v1(v_terminal, p_now, false);
        END IF;
        queues := queues || forge.admit_buckets_of_jobs_v1(p_now, v_terminal);
    END IF;
END
$$;

-- The slot shares that differ from what they should be: core.shares.share_out as a query. A part is the share of
-- one process in one queue; parts of dead processes count until their last running job is reaped. Few rows, so that
-- reading them all costs nothing. Index: jobs_owner.
CREATE OR REPLACE FUNCTION forge.slot_share_changes_v1(p_now bigint, p_max integer)
RETURNS TABLE (process bigint, queue text, slots integer)
LANGUAGE sql STABLE AS $$
    WITH leases AS MATERIALIZED (
        SELECT p.id, p.host_id, p.queues,
            NOT p.dead AND NOT p.quiet
                AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > p_now AS able
        FROM forge.processes p
        WHERE NOT p.dead OR EXISTS (
            SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')
    ),
    parts AS (
        SELECT q.name AS queue, q.slots AS total, p.id AS process, p.host_id,
            p.able AND q.name = ANY (p.queues) AS wants,
            COALESCE(s.slots, 0) AS had, COALESCE(s.held, 0) AS held
        FROM forge.queues q
        CROSS JOIN leases p
        LEFT JOIN forge.slot_shares s ON s.process = p.id AND s.queue = q.name
        WHERE s.process IS NOT NULL OR (p.able AND q.name = ANY (p.queues))
    ),
    ranked AS (
        SELECT parts.*,
            total - sum(held) OVER whole AS free,
            count(*) FILTER (WHERE wants) OVER whole AS sharers,
            count(*) FILTER (WHERE wants) OVER so_far AS ordinal
        FROM parts
        WINDOW whole AS (PARTITION BY parts.queue),
            so_far AS (PARTITION BY parts.queue ORDER BY host_id, parts.process)
    ),
    fair AS (
        SELECT ranked.*, CASE WHEN wants
            THEN least(total / sharers + (ordinal <= total % sharers)::integer, p_max)
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

-- Divides the slots of all queues, one caller at a time; returns how many shares changed. A process that releases
-- slots meanwhile is not waited for: what it holds can only be less than what was read.
CREATE OR REPLACE FUNCTION forge.assign_slot_shares_v1(p_now bigint, p_max integer, p_lock text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_changed integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_lock, 0));
    DELETE FROM forge.slot_shares s WHERE NOT EXISTS (
        SELECT 1 FROM forge.processes p
        WHERE p.id = s.process AND (NOT p.dead OR EXISTS (
            SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')));
    INSERT INTO forge.slot_shares AS s (process, queue, slots, held, version)
    SELECT c.process, c.queue, c.slots, c.slots, 1 FROM forge.slot_share_changes_v1(p_now, p_max) AS c
    ON CONFLICT (process, queue) DO UPDATE
    SET slots = EXCLUDED.slots, held = greatest(s.held, EXCLUDED.slots), version = s.version + 1;
    GET DIAGNOSTICS v_changed = ROW_COUNT;
    IF v_changed > 0 THEN
        UPDATE forge.control SET version = version + 1 WHERE id = 1;
    END IF;
    RETURN v_changed;
END
$$;
