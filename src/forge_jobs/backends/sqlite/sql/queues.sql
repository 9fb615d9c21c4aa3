-- name: ensure_queue
-- Inserts settings for a queue that has none. Index: primary key.
INSERT OR IGNORE INTO forge_queues (
    name, slots, paused, retain_done_s, retain_dead_s, retain_cancelled_s, backoff_enabled,
    backoff_base_s, backoff_max_s, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);

-- name: set_queue
-- Writes new settings. Index: primary key.
UPDATE forge_queues SET
    slots = ?2, paused = ?3, retain_done_s = ?4, retain_dead_s = ?5, retain_cancelled_s = ?6,
    backoff_enabled = ?7, backoff_base_s = ?8, backoff_max_s = ?9, updated_at = ?10
WHERE name = ?1;

-- name: queue
-- The settings of a queue with its gate. Index: primary keys.
SELECT q.name, q.slots, q.paused, q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s,
       q.backoff_enabled, q.backoff_base_s, q.backoff_max_s, q.updated_at, g.until, g.count
FROM forge_queues AS q LEFT JOIN forge_gates AS g ON g.queue = q.name
WHERE q.name = ?1;

-- name: queues
-- The same for all queues.
SELECT q.name, q.slots, q.paused, q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s,
       q.backoff_enabled, q.backoff_base_s, q.backoff_max_s, q.updated_at, g.until, g.count
FROM forge_queues AS q LEFT JOIN forge_gates AS g ON g.queue = q.name
ORDER BY q.name;

-- name: delete_queue
-- Deletes the settings; jobs stay. Index: primary key.
DELETE FROM forge_queues WHERE name = ?1;

-- name: kinds
-- The kinds that workers published.
SELECT kind, queue FROM forge_kinds ORDER BY kind;

-- name: publish_kind
-- Writes the queue of a kind; the last worker to publish wins. Index: primary key.
INSERT INTO forge_kinds (kind, queue) VALUES (?1, ?2)
ON CONFLICT (kind) DO UPDATE SET queue = excluded.queue;
