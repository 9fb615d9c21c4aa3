-- Settings of queues, and the kinds that workers publish.

-- name: one
-- The settings of one queue with its gate. Index: the primary keys.
SELECT q.name, q.slots, q.paused, q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s,
    q.backoff_enabled, q.backoff_base_s, q.backoff_max_s, q.updated_at, g.until, g.count
FROM forge.queues q LEFT JOIN forge.gates g ON g.queue = q.name
WHERE q.name = $1;

-- name: lock
-- Locks the settings for a change. Index: the primary key.
SELECT q.name, q.slots, q.paused, q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s,
    q.backoff_enabled, q.backoff_base_s, q.backoff_max_s, q.updated_at
FROM forge.queues q WHERE q.name = $1 FOR UPDATE;

-- name: all
-- All queues with settings, by name.
SELECT q.name, q.slots, q.paused, q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s,
    q.backoff_enabled, q.backoff_base_s, q.backoff_max_s, q.updated_at, g.until, g.count
FROM forge.queues q LEFT JOIN forge.gates g ON g.queue = q.name
ORDER BY q.name;

-- name: create
-- Settings for a queue that has none. Index: the primary key.
INSERT INTO forge.queues (name, slots, paused, retain_done_s, retain_dead_s, retain_cancelled_s,
    backoff_enabled, backoff_base_s, backoff_max_s, updated_at)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9, $10, forge.store_now_v1($1))
ON CONFLICT (name) DO NOTHING RETURNING 1;

-- name: change
-- New settings. Index: the primary key.
UPDATE forge.queues SET slots = $3, paused = $4, retain_done_s = $5, retain_dead_s = $6,
    retain_cancelled_s = $7, backoff_enabled = $8, backoff_base_s = $9, backoff_max_s = $10,
    updated_at = forge.store_now_v1($1)
WHERE name = $2;

-- name: open_gate
-- Opens the gate of a queue. Index: the primary key.
DELETE FROM forge.gates WHERE queue = $1;

-- name: delete
-- Deletes the settings of a queue with its gate. Index: the primary keys.
WITH gate AS (DELETE FROM forge.gates WHERE queue = $1)
DELETE FROM forge.queues WHERE name = $1;

-- name: raise_control_version
-- Every process re-reads settings. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;

-- name: publish
-- The queue of each kind; only changes are written. Index: the primary key.
INSERT INTO forge.kinds (kind, queue)
SELECT u.kind, u.queue FROM unnest($1::text[], $2::text[]) AS u(kind, queue) ORDER BY u.kind
ON CONFLICT (kind) DO UPDATE SET queue = EXCLUDED.queue WHERE kinds.queue <> EXCLUDED.queue
RETURNING 1;

-- name: kinds
-- Every published kind.
SELECT kind, queue FROM forge.kinds ORDER BY kind;
