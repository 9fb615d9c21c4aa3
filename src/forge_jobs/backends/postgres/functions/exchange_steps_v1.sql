-- set: exchange_steps_v1
-- revision: 1
-- requires: primitives_v1, exchange_v1, steps_v1, events_v1

-- The exchange of a worker whose running jobs store steps or wait for events.

-- What exchange_v1 does, in the same round trip, after it has stored steps and looked for events. Finishes that end a
-- run with steps come this way too. p_ends: the exchange ends claims of such runs, otherwise than by done;
-- p_done_stepped: which of the done jobs have steps.
-- p_waits: [{key, epoch, step, began_at, topics: [{topic, after, since}, …], suspends}, …]. Topics of all waits and of finishes
-- that suspend are in p_topics. The head of the last row also has steps and waits: what store_steps_v1 and
-- take_events_v1 return.
CREATE OR REPLACE FUNCTION forge.exchange_steps_v1(
    p_topics text[], p_ends boolean, p_done_stepped bigint[],
    p_step_keys bigint[], p_step_epochs integer[], p_step_names text[], p_step_kinds text[], p_step_began bigint[],
    p_step_ended bigint[], p_step_values bytea[], p_step_fingerprints bigint[],
    p_waits jsonb,
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
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    v_steps jsonb;
    v_waits jsonb;
    v_now bigint;
BEGIN
    PERFORM forge.lock_for_steps_v1(p_topics, p_owner, p_ends OR p_release_keys IS NOT NULL);
    v_now := forge.store_now_v1(p_now);
    IF p_step_keys IS NOT NULL THEN
        v_steps := forge.store_steps_v1(p_owner, p_step_keys, p_step_epochs, p_step_names, p_step_kinds, p_step_began,
            p_step_ended, p_step_values, p_step_fingerprints);
    END IF;
    IF p_waits IS NOT NULL THEN
        v_waits := forge.take_events_v1(v_now, p_owner, p_topics, p_waits);
    END IF;
    -- Index: the primary key.
    IF p_done_stepped IS NOT NULL THEN
        UPDATE forge.jobs j SET steps = true, expires_at = NULL
        WHERE j.id = ANY (p_done_stepped) AND j.epoch = p_done_epochs[width_bucket(j.id, p_done_keys)]
            AND (j.owner = p_owner AND j.status = 'running') IS TRUE AND j.steps IS NULL;
    END IF;
    RETURN QUERY
    SELECT e.c_key, e.c_epoch, e.c_kind, e.c_queue, e.c_payload, e.c_attempts, e.c_max_attempts, e.c_enqueued_at,
        e.c_run_at, e.c_started, e.c_priority, e.c_crashes, e.c_timeout_s, e.c_throttled_since, e.c_missing_since,
        e.c_tags, e.c_limit_key, e.c_trace, e.c_options,
        CASE WHEN e.c_key IS NULL THEN e.head || jsonb_build_object('steps', v_steps, 'waits', v_waits)
            ELSE e.head END
    FROM forge.exchange_v1(
        v_now, p_owner, p_number, p_done_keys, p_done_epochs, p_done_results, p_done_ran, p_done_waited,
        p_entry_queues, p_entry_kinds, p_entry_jobs, p_entry_waited_s, p_entry_ran_s, p_entry_waited, p_entry_ran,
        p_entry_enqueued, p_finishes, p_release_keys, p_release_epochs, p_started_keys, p_started_epochs, p_notes,
        p_lines, p_queues, p_free, p_prefetch, p_watermarks, p_kinds) AS e;
END
$$;

-- The locks of an exchange with steps, before all others: topics, then the owner. p_ends: it ends claims, so that no
-- earlier call of this owner may still store steps, and so that it may have to wait for a user's own transaction that
-- stored one: a second at most, because all other jobs of the owner wait with it.
CREATE OR REPLACE FUNCTION forge.lock_for_steps_v1(p_topics text[], p_owner bigint, p_ends boolean) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_topics IS NOT NULL THEN
        PERFORM forge.lock_topics_v1(p_topics);
    END IF;
    IF p_ends THEN
        PERFORM pg_advisory_xact_lock(forge.owner_lock_v1(p_owner));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(forge.owner_lock_v1(p_owner));
    END IF;
    PERFORM set_config('lock_timeout', '1s', true);
END
$$;
