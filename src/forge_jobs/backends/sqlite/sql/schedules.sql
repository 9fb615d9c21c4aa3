-- name: due_schedules
-- Schedules whose tick is due, those without a tick first; columns in the order of the struct's
-- fields. Index: forge_schedules_due.
SELECT name, expression, kind, queue, payload, zone, missed, missed_limit, overlap, jitter_s,
       max_attempts, template, enabled, declared, edited, next_at, last_at, error, version,
       updated_at
FROM forge_schedules WHERE enabled AND (next_at IS NULL OR next_at <= ?1)
ORDER BY next_at, name LIMIT ?2;

-- name: next_tick
-- The earliest tick in the future. Index: forge_schedules_due.
SELECT min(next_at) FROM forge_schedules WHERE enabled AND next_at > ?1;

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
