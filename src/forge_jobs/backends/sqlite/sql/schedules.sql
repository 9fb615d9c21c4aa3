-- name: ensure_schedule
-- A schedule that has no row yet. Index: primary key.
INSERT OR IGNORE INTO forge_schedules (
    name, expression, kind, queue, payload, zone, missed, overlap, jitter_s, max_attempts, enabled,
    next_at, last_at, error, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);

-- name: put_schedule
-- A schedule as given, whatever was there. Index: primary key.
INSERT OR REPLACE INTO forge_schedules (
    name, expression, kind, queue, payload, zone, missed, overlap, jitter_s, max_attempts, enabled,
    next_at, last_at, error, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);

-- name: schedule
-- One schedule. Index: primary key.
SELECT name, expression, kind, queue, payload, zone, missed, overlap, jitter_s, max_attempts,
       enabled, next_at, last_at, error, updated_at
FROM forge_schedules WHERE name = ?1;

-- name: schedules
-- All schedules, by name. Index: primary key.
SELECT name, expression, kind, queue, payload, zone, missed, overlap, jitter_s, max_attempts,
       enabled, next_at, last_at, error, updated_at
FROM forge_schedules ORDER BY name;

-- name: delete_schedule
-- A schedule is gone. Index: primary key.
DELETE FROM forge_schedules WHERE name = ?1;

-- name: fire
-- The schedule moves on, only if nobody fired this tick before. Index: primary key.
UPDATE forge_schedules SET next_at = ?3, last_at = ?2, error = NULL, updated_at = ?4
WHERE name = ?1 AND next_at = ?2;

-- name: bucket
-- One rate bucket. Index: primary key.
SELECT scope, capacity, refill_per_s, tokens, at FROM forge_buckets WHERE scope = ?1;

-- name: buckets
-- All rate buckets, by scope. Index: primary key.
SELECT scope, capacity, refill_per_s, tokens, at FROM forge_buckets ORDER BY scope;

-- name: put_bucket
-- A bucket as it is now. Index: primary key.
INSERT OR REPLACE INTO forge_buckets (scope, capacity, refill_per_s, tokens, at)
VALUES (?1, ?2, ?3, ?4, ?5);
