-- name: put_schedule
-- A schedule as given, whatever was there. Index: primary key.
INSERT OR REPLACE INTO forge_schedules (
    name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
    max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
    ?20);

-- name: schedule_version
-- How often a schedule was written. Index: primary key.
SELECT version FROM forge_schedules WHERE name = ?1;

-- name: schedule
-- One schedule. Index: primary key.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge_schedules WHERE name = ?1;

-- name: schedules
-- All schedules, by name. Index: primary key.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge_schedules ORDER BY name;

-- name: due_schedules
-- Schedules whose tick has come, those without one first. Index: forge_schedules_due.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version, updated_at
FROM forge_schedules WHERE enabled AND (next_at IS NULL OR next_at <= ?1)
ORDER BY next_at, name LIMIT ?2;

-- name: next_tick
-- The earliest tick still to come. Index: forge_schedules_due.
SELECT min(next_at) FROM forge_schedules WHERE enabled AND next_at > ?1;

-- name: delete_schedule
-- A schedule is gone. Index: primary key.
DELETE FROM forge_schedules WHERE name = ?1;

-- name: fire
-- The schedule moves on, only if nobody fired this tick before. Index: primary key.
UPDATE forge_schedules SET next_at = ?3, last_at = coalesce(?4, last_at), error = NULL,
    version = version + 1, updated_at = ?5
WHERE name = ?1 AND next_at = ?2 AND enabled;

-- name: add_fire
-- One entry of a history.
INSERT INTO forge_fires (schedule, tick, at, outcome, job_id, missed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: trim_fires
-- Only the newest entries stay. Index: forge_fires_of.
DELETE FROM forge_fires WHERE schedule = ?1 AND id <= (
    SELECT id FROM forge_fires WHERE schedule = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2);

-- name: fires
-- A history, newest first. Index: forge_fires_of.
SELECT tick, at, outcome, job_id, missed FROM forge_fires
WHERE schedule = ?1 ORDER BY id DESC LIMIT ?2;

-- name: delete_fires
-- A history goes with its schedule. Index: forge_fires_of.
DELETE FROM forge_fires WHERE schedule = ?1;

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
