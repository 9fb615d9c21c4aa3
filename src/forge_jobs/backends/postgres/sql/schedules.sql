-- Ticks of schedules, and permits of token buckets.

-- name: head
-- Store time, the earliest tick after it, and whether a tick is due. Index: schedules_due.
SELECT t.now,
    (SELECT min(next_at) FROM forge.schedules WHERE enabled AND next_at > t.now) AS next_at,
    EXISTS (SELECT 1 FROM forge.schedules
        WHERE enabled AND (next_at IS NULL OR next_at <= t.now)) AS is_due
FROM (SELECT forge.store_now_v1($1) AS now) AS t;

-- name: due
-- Schedules whose tick is due, those without one first; columns in the order of the struct's fields. Index:
-- schedules_due.
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

-- name: take
-- Takes permits in one call, so that no client holds the row's lock. Index: the primary key.
SELECT granted, retry_s FROM forge.take_permits_v1(forge.store_now_v1($1), $2, $3);

-- name: drain
-- Empties a token bucket. Index: the primary key.
UPDATE forge.token_buckets SET tokens = 0, at = greatest(at, forge.store_now_v1($1)) WHERE scope = $2
RETURNING 1;
