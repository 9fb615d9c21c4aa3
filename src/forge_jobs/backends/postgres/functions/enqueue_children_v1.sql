-- set: enqueue_children_v1
-- revision: 1
-- requires: primitives_v1

-- Storing the jobs that a handler enqueues: what enqueue_alike_v1 does for jobs without options, with the link to their
-- parent as their only option, so that a fan-out in a handler costs what it costs elsewhere.

-- Stores jobs that differ only in their payloads and have the same link.
CREATE OR REPLACE FUNCTION forge.enqueue_children_v1(
    p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer,
    p_payloads text, p_link text, OUT key bigint, OUT at bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_jobs integer;
BEGIN
    at := forge.store_now_v1(p_now);
    key := nextval('forge.jobs_id_seq');
    INSERT INTO forge.jobs (id, status, queue, kind, priority, run_at, enqueued_at, max_attempts,
        payload, options)
    SELECT key + u.ordinal - 1, 'pending', p_queue, p_kind, p_priority, at, at, p_max_attempts,
        convert_to(u.payload, 'UTF8'), p_link
    FROM unnest(string_to_array(p_payloads, E'\x1e')) WITH ORDINALITY AS u(payload, ordinal);
    GET DIAGNOSTICS v_jobs = ROW_COUNT;
    IF v_jobs > 2048 THEN
        RAISE EXCEPTION '% jobs in one call, more than a block has keys', v_jobs;
    END IF;
    INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
    VALUES (at - at % 60000000, p_queue, p_kind, 'pending', v_jobs);
END
$$;

-- The same with the notification, in one round trip: three transactions, as in enqueue_and_notify_v1.
CREATE OR REPLACE PROCEDURE forge.enqueue_children_and_notify_v1(
    p_channel text, p_queues text, p_now bigint, p_kind text, p_queue text, p_priority integer,
    p_max_attempts integer, p_payloads text, p_link text, INOUT key bigint, INOUT at bigint)
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    SELECT s.key, s.at INTO key, at FROM forge.enqueue_children_v1(
        p_now, p_kind, p_queue, p_priority, p_max_attempts, p_payloads, p_link) AS s;
    COMMIT;
    PERFORM pg_notify(p_channel, p_queues);
    COMMIT;
    PERFORM pg_logical_emit_message(true, 'forge', '');
END
$$;
