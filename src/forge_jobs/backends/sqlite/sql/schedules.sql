-- name: put_schedule
-- Inserts or replaces a schedule. Index: primary key.
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
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version,
       updated_at
FROM forge_schedules WHERE name = ?1;

-- name: schedules
-- All schedules by name. Index: primary key.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version,
       updated_at
FROM forge_schedules ORDER BY name;

-- name: due_schedules
-- Schedules whose tick is due, those without a tick first. Index: forge_schedules_due.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version,
       updated_at
FROM forge_schedules WHERE enabled AND (next_at IS NULL OR next_at <= ?1)
ORDER BY next_at, name LIMIT ?2;

-- name: next_tick
-- The earliest tick in the future. Index: forge_schedules_due.
SELECT min(next_at) FROM forge_schedules WHERE enabled AND next_at > ?1;

-- name: delete_schedule
-- Deletes a schedule. Index: primary key.
DELETE FROM forge_schedules WHERE name = ?1;

-- name: fire
-- Advances a schedule, only if this tick has not been fired before. Index: primary key.
UPDATE forge_schedules SET next_at = ?3, last_at = coalesce(?4, last_at), error = NULL,
    version = version + 1, updated_at = ?5
WHERE name = ?1 AND next_at = ?2 AND enabled;

-- name: add_fire
-- Appends an entry to the history of a schedule.
INSERT INTO forge_fires (schedule, tick, at, outcome, job_id, missed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: trim_fires
-- Keeps only the newest entries. Index: forge_fires_of.
DELETE FROM forge_fires WHERE schedule = ?1 AND id <= (
    SELECT id FROM forge_fires WHERE schedule = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2);

-- name: fires
-- The history of a schedule, newest first. Index: forge_fires_of.
SELECT tick, at, outcome, job_id, missed FROM forge_fires
WHERE schedule = ?1 ORDER BY id DESC LIMIT ?2;

-- name: delete_fires
-- Deletes the history with its schedule. Index: forge_fires_of.
DELETE FROM forge_fires WHERE schedule = ?1;

-- name: token_bucket
-- One token bucket. Index: primary key.
SELECT scope, capacity, refill_per_s, tokens, at FROM forge_token_buckets WHERE scope = ?1;

-- name: token_buckets
-- All token buckets by scope. Index: primary key.
SELECT scope, capacity, refill_per_s, tokens, at FROM forge_token_buckets ORDER BY scope;

-- name: put_token_bucket
-- Writes a token bucket. Index: primary key.
INSERT OR REPLACE INTO forge_token_buckets (scope, capacity, refill_per_s, tokens, at)
VALUES (?1, ?2, ?3, ?4, ?5);
