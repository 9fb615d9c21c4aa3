-- What fires by time and rate.

-- name: ensure
-- Store a schedule unless there is one. Index: the primary key.
INSERT INTO forge.schedules (updated_at, name, expression, kind, queue, payload, zone, missed,
    overlap, jitter_s, max_attempts, enabled, next_at, last_at, error)
VALUES (forge.present($1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (name) DO NOTHING;

-- name: put
-- Store or replace a schedule. Index: the primary key.
INSERT INTO forge.schedules (updated_at, name, expression, kind, queue, payload, zone, missed,
    overlap, jitter_s, max_attempts, enabled, next_at, last_at, error)
VALUES (forge.present($1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (name) DO UPDATE SET updated_at = EXCLUDED.updated_at,
    expression = EXCLUDED.expression, kind = EXCLUDED.kind, queue = EXCLUDED.queue,
    payload = EXCLUDED.payload, zone = EXCLUDED.zone, missed = EXCLUDED.missed,
    overlap = EXCLUDED.overlap, jitter_s = EXCLUDED.jitter_s,
    max_attempts = EXCLUDED.max_attempts, enabled = EXCLUDED.enabled, next_at = EXCLUDED.next_at,
    last_at = EXCLUDED.last_at, error = EXCLUDED.error;

-- name: delete
-- Remove a schedule. Index: the primary key.
DELETE FROM forge.schedules WHERE name = $1 RETURNING 1;

-- name: one
-- One schedule. Index: the primary key.
SELECT * FROM forge.schedules WHERE name = $1;

-- name: all
-- All schedules, by name.
SELECT * FROM forge.schedules ORDER BY name;

-- name: fire
-- Advance a schedule if its tick is still the stored one: exactly one caller succeeds.
UPDATE forge.schedules SET next_at = $4, last_at = $3, error = NULL, updated_at = forge.present($1)
WHERE name = $2 AND next_at = $3 RETURNING 1;

-- name: ensure_bucket
-- A full bucket, unless there is one. Index: the primary key.
INSERT INTO forge.buckets (scope, capacity, refill_per_s, tokens, at)
VALUES ($2, $3, $4, $3, forge.present($1)) ON CONFLICT (scope) DO NOTHING;

-- name: lock_bucket
-- A bucket as it was left, and the present. Index: the primary key.
SELECT scope, capacity, refill_per_s, tokens, at, forge.present($1) AS now
FROM forge.buckets WHERE scope = $2 FOR UPDATE;

-- name: save_bucket
-- A bucket as it is left. Index: the primary key.
UPDATE forge.buckets SET capacity = $2, refill_per_s = $3, tokens = $4, at = $5 WHERE scope = $1;

-- name: buckets
-- All buckets as they were left, and the present.
SELECT scope, capacity, refill_per_s, tokens, at, forge.present($1) AS now
FROM forge.buckets ORDER BY scope;
