-- Made by `python -m scripts.schema_dump`; kept true by tests/repository/test_schema_dump.py.

CREATE TABLE forge.audit (
    id bigint GENERATED AS IDENTITY NOT NULL,
    at bigint NOT NULL,
    entry text NOT NULL
);

CREATE TABLE forge.cancel_requests (
    job bigint NOT NULL,
    owner bigint NOT NULL,
    at bigint NOT NULL,
    reason text NOT NULL
);

CREATE TABLE forge.control (
    id integer NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE forge.counter_entries (
    minute bigint NOT NULL,
    jobs integer NOT NULL,
    retried integer DEFAULT 0 NOT NULL,
    throttled integer DEFAULT 0 NOT NULL,
    waited_s double precision DEFAULT 0 NOT NULL,
    ran_s double precision DEFAULT 0 NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    source text,
    target text,
    waited bytea,
    ran bytea,
    ended_at bigint,
    enqueued bytea
);

CREATE TABLE forge.counters (
    queue text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    jobs bigint NOT NULL
);

CREATE TABLE forge.dedupe_keys (
    kind text NOT NULL,
    key text NOT NULL,
    job bigint NOT NULL,
    until bigint
);

CREATE TABLE forge.error_entries (
    at bigint NOT NULL,
    failures bigint NOT NULL,
    error_group text NOT NULL,
    kind text NOT NULL,
    queue text NOT NULL,
    worker text,
    version text,
    heading text NOT NULL,
    latest text NOT NULL,
    jobs bigint[] NOT NULL,
    enqueued bigint[] NOT NULL
);

CREATE TABLE forge.error_groups (
    id text NOT NULL,
    last_at bigint NOT NULL,
    record text NOT NULL
);

CREATE TABLE forge.events (
    seq bigint GENERATED AS IDENTITY NOT NULL,
    at bigint NOT NULL,
    ends_at bigint NOT NULL,
    open boolean,
    topic text NOT NULL,
    payload bytea NOT NULL
);

CREATE TABLE forge.fires (
    id bigint GENERATED AS IDENTITY NOT NULL,
    schedule text NOT NULL,
    tick bigint NOT NULL,
    at bigint NOT NULL,
    outcome text NOT NULL,
    job_id text,
    missed integer NOT NULL
);

CREATE TABLE forge.function_sets (
    name text NOT NULL,
    revision integer NOT NULL,
    functions text[] NOT NULL
);

CREATE TABLE forge.gates (
    queue text NOT NULL,
    until bigint NOT NULL,
    count integer NOT NULL
);

CREATE TABLE forge.history (
    id bigint NOT NULL,
    run_at bigint,
    enqueued_at bigint,
    priority integer,
    epoch integer DEFAULT 0,
    attempts integer DEFAULT 0,
    max_attempts integer,
    crashes integer DEFAULT 0,
    throttles integer DEFAULT 0,
    unique_waiting boolean DEFAULT false,
    status text,
    queue text,
    kind text,
    payload bytea,
    owner bigint,
    exchange bigint,
    started_at bigint,
    finished_at bigint,
    expires_at bigint,
    track text,
    limit_bucket text,
    dedupe_key text,
    limit_key text,
    lane text,
    lane_order text,
    throttled_since bigint,
    missing_since bigint,
    timeout_s double precision,
    dedupe_for_s double precision,
    progress double precision,
    tags text[],
    on_dead text,
    trace text,
    options text,
    last_error text,
    errors jsonb,
    progress_note text,
    result bytea,
    steps boolean,
    failed_runs integer,
    error_group text
);

CREATE TABLE forge.job_logs (
    job bigint NOT NULL,
    id bigint GENERATED AS IDENTITY NOT NULL,
    at bigint NOT NULL,
    level text NOT NULL,
    message text NOT NULL
);

CREATE TABLE forge.job_tracebacks (
    job bigint NOT NULL,
    epoch integer NOT NULL,
    at bigint NOT NULL,
    attempt integer NOT NULL,
    traceback text NOT NULL
);

CREATE TABLE forge.jobs (
    id bigint GENERATED AS IDENTITY NOT NULL,
    run_at bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    priority integer NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    throttles integer DEFAULT 0 NOT NULL,
    unique_waiting boolean DEFAULT false NOT NULL,
    status text NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    payload bytea,
    owner bigint,
    exchange bigint,
    started_at bigint,
    finished_at bigint,
    expires_at bigint,
    track text,
    limit_bucket text,
    dedupe_key text,
    limit_key text,
    lane text,
    lane_order text,
    throttled_since bigint,
    missing_since bigint,
    timeout_s double precision,
    dedupe_for_s double precision,
    progress double precision,
    tags text[],
    on_dead text,
    trace text,
    options text,
    last_error text,
    errors jsonb,
    progress_note text,
    result bytea,
    steps boolean,
    failed_runs integer,
    error_group text
);

CREATE TABLE forge.kinds (
    kind text NOT NULL,
    queue text NOT NULL
);

CREATE TABLE forge.large_payloads (
    job bigint NOT NULL,
    payload bytea NOT NULL
);

CREATE TABLE forge.leaderships (
    name text NOT NULL,
    process bigint NOT NULL,
    until bigint NOT NULL
);

CREATE TABLE forge.limits (
    name text NOT NULL,
    concurrency integer,
    per text,
    rate_per_s double precision,
    burst double precision NOT NULL,
    scopes text[] NOT NULL,
    tokens double precision NOT NULL,
    at bigint NOT NULL,
    by_operator boolean NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE forge.meta (
    name text NOT NULL,
    value text NOT NULL
);

CREATE TABLE forge.minutes (
    at bigint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    enqueued bigint NOT NULL,
    started bigint NOT NULL,
    done bigint NOT NULL,
    retried bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    throttled bigint NOT NULL,
    released bigint NOT NULL,
    waited jsonb,
    ran jsonb,
    took jsonb
);

CREATE TABLE forge.periods (
    length bigint NOT NULL,
    at bigint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    enqueued bigint NOT NULL,
    started bigint NOT NULL,
    done bigint NOT NULL,
    retried bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    throttled bigint NOT NULL,
    released bigint NOT NULL,
    waited jsonb,
    ran jsonb,
    took jsonb
);

CREATE TABLE forge.processes (
    id bigint GENERATED AS IDENTITY NOT NULL,
    host_id text NOT NULL,
    label text NOT NULL,
    queues text[] NOT NULL,
    pid integer NOT NULL,
    hostname text NOT NULL,
    version text NOT NULL,
    lease_s double precision NOT NULL,
    started_at bigint NOT NULL,
    heartbeat_at bigint NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    slots text DEFAULT '{}'::text NOT NULL,
    memory_bytes bigint DEFAULT 0 NOT NULL,
    cores double precision DEFAULT 0 NOT NULL,
    disk_share double precision DEFAULT 0 NOT NULL,
    quiet boolean DEFAULT false NOT NULL,
    dead boolean DEFAULT false NOT NULL,
    signatures text,
    machine text
);

CREATE TABLE forge.queues (
    name text NOT NULL,
    slots integer NOT NULL,
    paused boolean NOT NULL,
    retain_done_s double precision,
    retain_dead_s double precision,
    retain_cancelled_s double precision,
    backoff_enabled boolean NOT NULL,
    backoff_base_s double precision NOT NULL,
    backoff_max_s double precision NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE forge.schedules (
    name text NOT NULL,
    expression text NOT NULL,
    kind text NOT NULL,
    queue text,
    payload bytea NOT NULL,
    zone text NOT NULL,
    missed text NOT NULL,
    missed_limit integer NOT NULL,
    overlap text NOT NULL,
    jitter_s double precision NOT NULL,
    max_attempts integer,
    template bytea NOT NULL,
    enabled boolean NOT NULL,
    declared boolean NOT NULL,
    edited boolean NOT NULL,
    next_at bigint,
    last_at bigint,
    error text,
    version integer NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE forge.settings (
    namespace text NOT NULL,
    name text NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL,
    until bigint
);

CREATE TABLE forge.slot_shares (
    process bigint NOT NULL,
    queue text NOT NULL,
    slots integer NOT NULL,
    held integer NOT NULL,
    version integer NOT NULL
);

CREATE TABLE forge.steps (
    job bigint NOT NULL,
    began_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    epoch integer NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    value bytea,
    fingerprint bigint
);

CREATE TABLE forge.tag_days (
    day bigint NOT NULL,
    tag text NOT NULL,
    weight double precision NOT NULL,
    summary text NOT NULL,
    whole text NOT NULL
);

CREATE TABLE forge.tag_entries (
    minute bigint NOT NULL,
    tag text NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    runs integer NOT NULL,
    done integer NOT NULL,
    retried integer NOT NULL,
    dead integer NOT NULL,
    ran_s double precision NOT NULL,
    waited_s double precision NOT NULL
);

CREATE TABLE forge.token_buckets (
    scope text NOT NULL,
    capacity double precision NOT NULL,
    refill_per_s double precision NOT NULL,
    tokens double precision NOT NULL,
    at bigint NOT NULL
);

CREATE TABLE forge.totals (
    at bigint NOT NULL,
    queue text NOT NULL,
    kind text NOT NULL,
    enqueued bigint NOT NULL,
    started bigint NOT NULL,
    done bigint NOT NULL,
    retried bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    throttled bigint NOT NULL,
    released bigint NOT NULL,
    waited jsonb,
    ran jsonb,
    took jsonb
);

CREATE TABLE forge.vitals (
    at bigint NOT NULL,
    host_id text NOT NULL,
    sample text NOT NULL
);

CREATE TABLE forge.waits (
    job bigint NOT NULL,
    began_at bigint NOT NULL,
    after bigint NOT NULL,
    since bigint NOT NULL,
    epoch integer NOT NULL,
    topic text NOT NULL,
    step text NOT NULL,
    deadline bigint
);

CREATE INDEX audit_by_age ON forge.audit USING btree (at);
CREATE UNIQUE INDEX audit_pkey ON forge.audit USING btree (id);
CREATE INDEX cancel_requests_owner ON forge.cancel_requests USING btree (owner);
CREATE UNIQUE INDEX cancel_requests_pkey ON forge.cancel_requests USING btree (job);
CREATE UNIQUE INDEX control_pkey ON forge.control USING btree (id);
CREATE UNIQUE INDEX counters_pkey ON forge.counters USING btree (queue, kind, status);
CREATE UNIQUE INDEX dedupe_keys_pkey ON forge.dedupe_keys USING btree (kind, key);
CREATE INDEX dedupe_keys_until ON forge.dedupe_keys USING btree (until) WHERE (until IS NOT NULL);
CREATE UNIQUE INDEX error_groups_pkey ON forge.error_groups USING btree (id);
CREATE INDEX error_groups_seen ON forge.error_groups USING btree (last_at);
CREATE INDEX events_ended ON forge.events USING btree (ends_at);
CREATE INDEX events_open ON forge.events USING btree (topic, seq) WHERE open;
CREATE UNIQUE INDEX events_pkey ON forge.events USING btree (seq);
CREATE INDEX events_topic ON forge.events USING btree (topic, seq);
CREATE UNIQUE INDEX fires_pkey ON forge.fires USING btree (id);
CREATE INDEX fires_schedule ON forge.fires USING btree (schedule, id);
CREATE UNIQUE INDEX function_sets_pkey ON forge.function_sets USING btree (name);
CREATE UNIQUE INDEX gates_pkey ON forge.gates USING btree (queue);
CREATE INDEX history_dedupe ON forge.history USING btree (dedupe_key, id) WHERE (dedupe_key IS NOT NULL);
CREATE INDEX history_error_group ON forge.history USING btree (error_group, id) WHERE (error_group IS NOT NULL);
CREATE INDEX history_not_done ON forge.history USING btree (status, id) WHERE (status <> 'done'::text);
CREATE INDEX history_parent ON forge.history USING btree ((((options)::json ->> 'parent'::text)), id) WHERE (strpos(options, '"parent"'::text) > 0);
CREATE UNIQUE INDEX history_pkey ON forge.history USING btree (id);
CREATE INDEX history_retention ON forge.history USING btree (queue, status, finished_at);
CREATE UNIQUE INDEX job_logs_pkey ON forge.job_logs USING btree (job, id);
CREATE UNIQUE INDEX job_tracebacks_pkey ON forge.job_tracebacks USING btree (job, epoch);
CREATE INDEX jobs_claim ON forge.jobs USING btree (queue, priority, run_at, id) WITH (deduplicate_items=off) WHERE ((status = 'pending'::text) AND (track IS NULL));
CREATE INDEX jobs_dedupe ON forge.jobs USING btree (dedupe_key, id) WHERE (dedupe_key IS NOT NULL);
CREATE INDEX jobs_due ON forge.jobs USING btree (queue, run_at, id) WHERE (status = ANY (ARRAY['scheduled'::text, 'failed'::text, 'suspended'::text]));
CREATE INDEX jobs_error_group ON forge.jobs USING btree (error_group, id) WHERE (error_group IS NOT NULL);
CREATE INDEX jobs_expiry ON forge.jobs USING btree (expires_at) WHERE ((expires_at IS NOT NULL) AND (status <> 'running'::text));
CREATE INDEX jobs_failed ON forge.jobs USING btree (id) WHERE (status = 'failed'::text);
CREATE INDEX jobs_held ON forge.jobs USING btree (limit_bucket, priority, id) WHERE (status = 'held'::text);
CREATE INDEX jobs_lane ON forge.jobs USING btree (queue, lane, id) WHERE (lane_order IS NOT NULL);
CREATE INDEX jobs_lane_active ON forge.jobs USING btree (queue, lane) WHERE ((lane_order IS NOT NULL) AND ((status = ANY (ARRAY['pending'::text, 'running'::text])) OR ((status = 'held'::text) AND (limit_bucket >= 'task:'::text) AND (limit_bucket < 'task<'::text))));
CREATE INDEX jobs_limit_key ON forge.jobs USING btree (limit_key, id) WHERE ((limit_key IS NOT NULL) AND (status = ANY (ARRAY['pending'::text, 'running'::text])));
CREATE INDEX jobs_owner ON forge.jobs USING btree (owner) WHERE (status = 'running'::text);
CREATE INDEX jobs_parent ON forge.jobs USING btree ((((options)::json ->> 'parent'::text)), id) WHERE (strpos(options, '"parent"'::text) > 0);
CREATE UNIQUE INDEX jobs_pkey ON forge.jobs USING btree (id);
CREATE INDEX jobs_track ON forge.jobs USING btree (queue, track, priority, run_at, id) WHERE ((status = 'pending'::text) AND (track IS NOT NULL));
CREATE INDEX jobs_unrouted ON forge.jobs USING btree (kind, id) WHERE (strpos(options, '"unrouted"'::text) > 0);
CREATE UNIQUE INDEX kinds_pkey ON forge.kinds USING btree (kind);
CREATE UNIQUE INDEX large_payloads_pkey ON forge.large_payloads USING btree (job);
CREATE UNIQUE INDEX leaderships_pkey ON forge.leaderships USING btree (name);
CREATE UNIQUE INDEX limits_pkey ON forge.limits USING btree (name);
CREATE UNIQUE INDEX meta_pkey ON forge.meta USING btree (name);
CREATE UNIQUE INDEX minutes_pkey ON forge.minutes USING btree (at, queue, kind);
CREATE UNIQUE INDEX periods_pkey ON forge.periods USING btree (length, at, queue, kind);
CREATE UNIQUE INDEX processes_pkey ON forge.processes USING btree (id);
CREATE UNIQUE INDEX queues_pkey ON forge.queues USING btree (name);
CREATE INDEX schedules_due ON forge.schedules USING btree (next_at NULLS FIRST) WHERE enabled;
CREATE UNIQUE INDEX schedules_pkey ON forge.schedules USING btree (name);
CREATE INDEX settings_expiry ON forge.settings USING btree (until) WHERE (until IS NOT NULL);
CREATE UNIQUE INDEX settings_pkey ON forge.settings USING btree (namespace, name);
CREATE UNIQUE INDEX slot_shares_pkey ON forge.slot_shares USING btree (process, queue);
CREATE UNIQUE INDEX steps_pkey ON forge.steps USING btree (job, name);
CREATE UNIQUE INDEX tag_days_pkey ON forge.tag_days USING btree (day, tag);
CREATE UNIQUE INDEX token_buckets_pkey ON forge.token_buckets USING btree (scope);
CREATE UNIQUE INDEX totals_pkey ON forge.totals USING btree (queue, kind);
CREATE UNIQUE INDEX vitals_pkey ON forge.vitals USING btree (at, host_id);
CREATE INDEX waits_job ON forge.waits USING btree (job);
CREATE UNIQUE INDEX waits_pkey ON forge.waits USING btree (topic, job);

-- add_tracebacks_v1(p_now bigint, p_jobs bigint[], p_finishes jsonb) RETURNS void
-- add_waits_v1(p_jobs bigint[], p_finishes jsonb) RETURNS void
-- admit_buckets_of_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
-- admit_buckets_v1(p_now bigint, p_buckets text[]) RETURNS text[]
-- admit_from_bucket_v1(p_bucket text) RETURNS bigint[]
-- admit_unchecked_v1(p_now bigint, p_limit integer) RETURNS text[]
-- append_error_v1(p_errors jsonb, p_at bigint, p_attempt integer, p_message text, p_started_at bigint, p_due_at bigint, p_owner bigint, p_group text) RETURNS jsonb
-- archive_v1(p_jobs bigint[]) RETURNS void
-- assign_slot_shares_v1(p_now bigint, p_max integer, p_lock text) RETURNS integer
-- cancel_waiting_v1(p_now bigint, p_jobs bigint[], p_reason text) RETURNS void
-- claim_waiting_v1(p_now bigint, p_owner bigint, p_number bigint, p_queues text[], p_free integer[], p_prefetch integer[]) RETURNS TABLE(c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer, c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean, c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint, c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, c_options text, head jsonb)
-- claimed_steps_v1(p_job bigint, p_failed_runs integer) RETURNS jsonb
-- count_admitted_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
-- delete_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS void
-- deliver_open_v1(p_now bigint, p_limit integer, OUT resumed integer, OUT queues text[]) RETURNS record
-- enqueue_alike_v1(p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer, p_payloads text, OUT key bigint, OUT at bigint) RETURNS record
-- enqueue_and_notify_v1(p_channel text, p_queues text, p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer, p_payloads text, INOUT key bigint, INOUT at bigint) RETURNS None
-- enqueue_children_and_notify_v1(p_channel text, p_queues text, p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer, p_payloads text, p_link text, INOUT key bigint, INOUT at bigint) RETURNS None
-- enqueue_children_v1(p_now bigint, p_kind text, p_queue text, p_priority integer, p_max_attempts integer, p_payloads text, p_link text, OUT key bigint, OUT at bigint) RETURNS record
-- enqueue_json_v1(p_now bigint, p_tag text, p_channel text, p_jobs json, p_shared boolean) RETURNS TABLE(e_ordinal bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
-- enqueue_v1(p_now bigint, p_kinds text[], p_queues text[], p_payloads bytea[], p_priorities integer[], p_max_attempts integer[], p_delays double precision[], p_run_ats bigint[], p_expires_s double precision[], p_expires_ats bigint[], p_timeouts double precision[], p_dedupe_keys text[], p_dedupe_fors double precision[], p_waiting boolean[], p_tags text[], p_limit_keys text[], p_lanes text[], p_orders text[], p_holds boolean[], p_on_deads text[], p_traces text[], p_tracks boolean[], p_options text[], p_wait boolean, p_shared boolean) RETURNS TABLE(e_ordinal bigint, e_key bigint, e_at bigint, e_status text, e_duplicate boolean)
-- exchange_steps_v1(p_topics text[], p_ends boolean, p_done_stepped bigint[], p_step_keys bigint[], p_step_epochs integer[], p_step_names text[], p_step_kinds text[], p_step_began bigint[], p_step_ended bigint[], p_step_values bytea[], p_step_fingerprints bigint[], p_waits jsonb, p_now bigint, p_owner bigint, p_number bigint, p_done_keys bigint[], p_done_epochs integer[], p_done_results bytea[], p_done_ran double precision[], p_done_waited text, p_entry_queues text[], p_entry_kinds text[], p_entry_jobs integer[], p_entry_waited_s double precision[], p_entry_ran_s double precision[], p_entry_waited bytea[], p_entry_ran bytea[], p_entry_enqueued bytea[], p_finishes jsonb, p_release_keys bigint[], p_release_epochs integer[], p_started_keys bigint[], p_started_epochs integer[], p_notes jsonb, p_lines jsonb, p_queues text[], p_free integer[], p_prefetch integer[], p_watermarks jsonb, p_kinds text[]) RETURNS TABLE(c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer, c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean, c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint, c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, c_options text, head jsonb)
-- exchange_v1(p_now bigint, p_owner bigint, p_number bigint, p_done_keys bigint[], p_done_epochs integer[], p_done_results bytea[], p_done_ran double precision[], p_done_waited text, p_entry_queues text[], p_entry_kinds text[], p_entry_jobs integer[], p_entry_waited_s double precision[], p_entry_ran_s double precision[], p_entry_waited bytea[], p_entry_ran bytea[], p_entry_enqueued bytea[], p_finishes jsonb, p_release_keys bigint[], p_release_epochs integer[], p_started_keys bigint[], p_started_epochs integer[], p_notes jsonb, p_lines jsonb, p_queues text[], p_free integer[], p_prefetch integer[], p_watermarks jsonb, p_kinds text[]) RETURNS TABLE(c_key bigint, c_epoch integer, c_kind text, c_queue text, c_payload bytea, c_attempts integer, c_max_attempts integer, c_enqueued_at bigint, c_run_at bigint, c_started boolean, c_priority integer, c_crashes integer, c_timeout_s double precision, c_throttled_since bigint, c_missing_since bigint, c_tags text[], c_limit_key text, c_trace text, c_options text, head jsonb)
-- expire_v1(p_now bigint, p_limit integer) RETURNS integer
-- expiry_message_v1() RETURNS text
-- finish_claims_v1(p_now bigint, p_owner bigint, p_finishes jsonb) RETURNS bigint[]
-- first_event_v1(p_topic text, p_after bigint, p_since bigint, p_began_at bigint, p_until bigint) RETURNS SETOF forge.events
-- first_limit_bucket_v1(p_queue text, p_lane text, p_order text, p_key text) RETURNS text
-- free_keys_at_end_v1(p_jobs bigint[], p_now bigint, p_ran boolean) RETURNS void
-- free_keys_at_start_v1(p_jobs bigint[]) RETURNS void
-- histogram_bucket_v1(p_s double precision) RETURNS bytea
-- hold_over_limits_v1(p_now bigint, p_jobs bigint[]) RETURNS void
-- limit_bucket_lock_v1(p_bucket text) RETURNS bigint
-- limit_key_is_full_v1(p_key text) RETURNS boolean
-- limit_key_max_v1(p_key text) RETURNS integer
-- limit_room_v1(p_now bigint, p_name text, p_wanted integer, OUT room integer, OUT may_prefetch boolean, OUT opens bigint) RETURNS record
-- lock_for_steps_v1(p_topics text[], p_owner bigint, p_ends boolean) RETURNS void
-- lock_limits_v1(p_queues text[]) RETURNS void
-- lock_topics_v1(p_topics text[]) RETURNS void
-- make_pending_v1(p_now bigint, p_jobs bigint[], p_run_now boolean) RETURNS text[]
-- mark_buckets_unchecked_v1(p_buckets text[]) RETURNS void
-- mark_started_v1(p_now bigint, p_owner bigint, p_keys bigint[], p_epochs integer[], OUT waiting boolean, OUT unmarked jsonb) RETURNS record
-- merge_histograms_v1(p_one jsonb, p_other jsonb) RETURNS jsonb
-- number_events_v1(p_topics text[]) RETURNS void
-- open_steps_lock_v1(p_owner bigint) RETURNS bigint
-- owner_lock_v1(p_owner bigint) RETURNS bigint
-- pick_above_watermark_v1(p_now bigint, p_queue text, p_limit integer, p_watermarks jsonb) RETURNS bigint[]
-- pick_limited_v1(p_now bigint, p_queue text, p_free integer, p_prefetch integer, p_kinds text[], OUT picked bigint[], OUT opens bigint, OUT waiting boolean) RETURNS record
-- promote_queue_v1(p_now bigint, p_queue text, p_limit integer, OUT promoted integer, OUT expired integer) RETURNS record
-- promote_suspended_v1(p_now bigint, p_jobs bigint[]) RETURNS integer
-- reap_v1(p_now bigint, p_note text, p_limit integer, p_group text, p_heading text, OUT pending integer, OUT dead integer, OUT cancelled integer, OUT more boolean, OUT died bigint[], OUT queues text[]) RETURNS record
-- reapply_limit_v1(p_now bigint, p_limit_name text, p_key text, p_id bigint, p_limit integer, OUT last_key text, OUT last_id bigint) RETURNS record
-- refilled_tokens_v1(p_limit forge.limits, p_now bigint) RETURNS double precision
-- release_claims_v1(p_now bigint, p_owner bigint, p_keys bigint[], p_epochs integer[]) RETURNS text[]
-- restart_jobs_v1(p_jobs bigint[], p_pending bigint[], p_finishes jsonb) RETURNS void
-- resume_jobs_v1(p_now bigint, p_jobs bigint[], p_due boolean, OUT jobs bigint[], OUT seqs bigint[], OUT queues text[]) RETURNS record
-- resume_topics_v1(p_now bigint, p_topics text[], p_limit integer, OUT jobs bigint[], OUT seqs bigint[], OUT queues text[]) RETURNS record
-- retry_jobs_v1(p_now bigint, p_jobs bigint[]) RETURNS text[]
-- send_json_v1(p_now bigint, p_tag text, p_channel text, p_events json) RETURNS TABLE(e_duplicates bigint[])
-- send_v1(p_now bigint, p_topics text[], p_payloads bytea[], p_keeps double precision[], p_kinds text[], p_keys text[], p_limit integer, OUT duplicates bigint[], OUT taken bigint[], OUT queues text[]) RETURNS record
-- slot_share_changes_v1(p_now bigint, p_max integer) RETURNS TABLE(process bigint, queue text, slots integer)
-- step_json_v1(p_step forge.steps) RETURNS jsonb
-- store_now_v1(p_now bigint) RETURNS bigint
-- store_step_json_v1(p_tag text, p_owner bigint, p_step json) RETURNS void
-- store_steps_v1(p_owner bigint, p_keys bigint[], p_epochs integer[], p_names text[], p_kinds text[], p_began bigint[], p_ended bigint[], p_values bytea[], p_fingerprints bigint[]) RETURNS jsonb
-- sweep_buckets_v1(p_now bigint, p_after text, p_limit integer, OUT admitted integer, OUT last text, OUT queues text[]) RETURNS record
-- sweep_waits_v1(p_topic text, p_job bigint, p_limit integer, OUT last_topic text, OUT last_job bigint) RETURNS record
-- take_dedupe_key_v1(p_kind text, p_key text, p_job bigint) RETURNS boolean
-- take_event_keys_v1(p_now bigint, p_kinds text[], p_keys text[], p_keeps double precision[]) RETURNS bigint[]
-- take_events_v1(p_now bigint, p_owner bigint, p_topics text[], p_waits jsonb) RETURNS jsonb
-- take_permits_v1(p_now bigint, p_scope text, p_permits integer, OUT granted integer, OUT retry_s double precision) RETURNS record
-- taken_event_v1(p_topic text, p_at bigint, p_seq bigint, p_payload bytea) RETURNS bytea
-- topic_lock_v1(p_topic text) RETURNS bigint
-- write_notes_v1(p_owner bigint, p_notes jsonb, p_lines jsonb) RETURNS void
