-- Schedules and token buckets.

-- name: create
-- Stores a schedule unless there is one. Index: the primary key.
INSERT INTO forge.schedules (updated_at, version, name, expression, kind, queue, payload, zone, missed,
    missed_limit, overlap, jitter_s, max_attempts, template, enabled, declared, edited, next_at,
    last_at, error)
VALUES (forge.store_now_v1($1), 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18, $19)
ON CONFLICT (name) DO NOTHING RETURNING 1;

-- name: change
-- Replaces a schedule that still has the expected version. Index: the primary key.
UPDATE forge.schedules SET updated_at = forge.store_now_v1($1), version = version + 1, expression = $3,
    kind = $4, queue = $5, payload = $6, zone = $7, missed = $8, missed_limit = $9, overlap = $10,
    jitter_s = $11, max_attempts = $12, template = $13, enabled = $14, declared = $15, edited = $16,
    next_at = $17, last_at = $18, error = $19
WHERE name = $2 AND version = $20 RETURNING 1;

-- name: put
-- Stores or replaces a schedule. Index: the primary key.
INSERT INTO forge.schedules (updated_at, version, name, expression, kind, queue, payload, zone, missed,
    missed_limit, overlap, jitter_s, max_attempts, template, enabled, declared, edited, next_at,
    last_at, error)
VALUES (forge.store_now_v1($1), 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17, $18, $19)
ON CONFLICT (name) DO UPDATE SET updated_at = EXCLUDED.updated_at,
    version = schedules.version + 1, expression = EXCLUDED.expression, kind = EXCLUDED.kind,
    queue = EXCLUDED.queue, payload = EXCLUDED.payload, zone = EXCLUDED.zone,
    missed = EXCLUDED.missed, missed_limit = EXCLUDED.missed_limit, overlap = EXCLUDED.overlap,
    jitter_s = EXCLUDED.jitter_s, max_attempts = EXCLUDED.max_attempts,
    template = EXCLUDED.template, enabled = EXCLUDED.enabled, declared = EXCLUDED.declared,
    edited = EXCLUDED.edited, next_at = EXCLUDED.next_at, last_at = EXCLUDED.last_at,
    error = EXCLUDED.error
RETURNING 1;

-- name: raise_control_version
-- Every process re-reads settings. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;

-- name: delete
-- Deletes a schedule with its ticks. Index: the primary key, fires_schedule.
WITH ticks AS (DELETE FROM forge.fires WHERE schedule = $1)
DELETE FROM forge.schedules WHERE name = $1 RETURNING 1;

-- name: one
-- One schedule. Index: the primary key.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
    max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge.schedules WHERE name = $1;

-- name: all
-- All schedules, by name.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
    max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge.schedules ORDER BY name;

-- name: head
-- Store time, the earliest tick after it, and whether a tick is due. Index: schedules_due.
SELECT t.now,
    (SELECT min(next_at) FROM forge.schedules WHERE enabled AND next_at > t.now) AS next_at,
    EXISTS (SELECT 1 FROM forge.schedules
        WHERE enabled AND (next_at IS NULL OR next_at <= t.now)) AS is_due
FROM (SELECT forge.store_now_v1($1) AS now) AS t;

-- name: due
-- Schedules whose tick is due, those without one first. Index: schedules_due.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
    max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge.schedules WHERE enabled AND (next_at IS NULL OR next_at <= $1)
ORDER BY next_at NULLS FIRST, name LIMIT $2;

-- name: fire
-- Advances a schedule if its tick is still the stored one: exactly one caller succeeds. Index: the primary key.
UPDATE forge.schedules SET next_at = $4, last_at = COALESCE($5, last_at), error = NULL,
    version = version + 1, updated_at = forge.store_now_v1($1)
WHERE name = $2 AND next_at = $3 AND enabled RETURNING updated_at;

-- name: lock
-- Locks a schedule against deletion until a job was stored for it. Index: the primary key.
SELECT forge.store_now_v1($1) AS now FROM forge.schedules WHERE name = $2 FOR SHARE;

-- name: add_fires
-- Ticks of a schedule, in order.
INSERT INTO forge.fires (schedule, tick, at, outcome, job_id, missed)
SELECT $1, f.tick, $2, f.outcome, f.job_id, f.missed
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::integer[])
    WITH ORDINALITY AS f(tick, outcome, job_id, missed, ordinal)
ORDER BY f.ordinal;

-- name: trim_fires
-- Deletes all but the newest ticks. Index: fires_schedule.
DELETE FROM forge.fires WHERE schedule = $1 AND id <= (
    SELECT id FROM forge.fires WHERE schedule = $1 ORDER BY id DESC LIMIT 1 OFFSET $2);

-- name: fires
-- The last ticks of a schedule, newest first. Index: fires_schedule.
SELECT tick, at, outcome, job_id, missed FROM forge.fires
WHERE schedule = $1 ORDER BY id DESC LIMIT $2;

-- name: ensure_bucket
-- Creates a full token bucket, unless there is one. Index: the primary key.
INSERT INTO forge.token_buckets (scope, capacity, refill_per_s, tokens, at)
VALUES ($2, $3, $4, $3, forge.store_now_v1($1)) ON CONFLICT (scope) DO NOTHING;

-- name: lock_bucket
-- Locks a token bucket and returns its stored state and store time. Index: the primary key.
SELECT scope, capacity, refill_per_s, tokens, at, forge.store_now_v1($1) AS now
FROM forge.token_buckets WHERE scope = $2 FOR UPDATE;

-- name: save_bucket
-- Stores the state of a token bucket. Index: the primary key.
UPDATE forge.token_buckets SET capacity = $2, refill_per_s = $3, tokens = $4, at = $5 WHERE scope = $1;

-- name: take
-- Takes permits in one call, so that no client holds the row's lock. Index: the primary key.
SELECT granted, retry_s FROM forge.take_permits_v1(forge.store_now_v1($1), $2, $3);

-- name: drain
-- Empties a token bucket. Index: the primary key.
UPDATE forge.token_buckets SET tokens = 0, at = greatest(at, forge.store_now_v1($1)) WHERE scope = $2
RETURNING 1;

-- name: buckets
-- The stored state of all token buckets, and store time.
SELECT scope, capacity, refill_per_s, tokens, at, forge.store_now_v1($1) AS now
FROM forge.token_buckets ORDER BY scope;
