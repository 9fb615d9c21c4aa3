-- What people do to many jobs. Rows are locked in the order of their ids.

-- name: lock_live
-- Jobs that are not over. Index: the primary key.
SELECT id, status, owner, kind, dedupe_key FROM forge.jobs WHERE id = ANY ($1::bigint[])
ORDER BY id FOR UPDATE;

-- name: lock_ended
-- Jobs that are over. Index: the primary key.
SELECT id, status, kind, dedupe_key FROM forge.history WHERE id = ANY ($1::bigint[])
ORDER BY id FOR UPDATE;

-- name: times
-- When jobs were enqueued: an id must agree with it. Index: the primary keys.
SELECT id, enqueued_at FROM forge.jobs WHERE id = ANY ($1::bigint[])
UNION ALL
SELECT id, enqueued_at FROM forge.history WHERE id = ANY ($1::bigint[]);

-- name: cancel_waiting
-- Cancel jobs that wait.
SELECT forge.cancel_waiting($1, $2, $3);

-- name: request_stop
-- Ask the owners of running jobs; the first reason given stays. Index: the primary key.
INSERT INTO forge.cancels (job, owner, at, reason)
SELECT r.job, r.owner, $3, $4 FROM unnest($1::bigint[], $2::bigint[]) AS r(job, owner)
ON CONFLICT (job) DO NOTHING;

-- name: operated
-- An operator changed something: every process looks again.
UPDATE forge.control SET version = version + 1 WHERE id = 1;

-- name: take_key
-- Take a dedupe key for a job that comes back.
SELECT forge.take_key($1, $2, $3) AS taken;

-- name: revive
-- Let jobs begin again.
SELECT forge.revive($1, $2) AS queues;

-- name: remove
-- Delete jobs.
SELECT forge.remove($1, $2);

-- name: ended_lines
-- Every queue and state in history, found one by one. Index: history_ended.
WITH RECURSIVE lines(queue, status) AS (
    (SELECT queue, status FROM forge.history ORDER BY queue, status LIMIT 1)
    UNION ALL
    SELECT n.queue, n.status FROM lines l CROSS JOIN LATERAL (
        SELECT h.queue, h.status FROM forge.history h
        WHERE (h.queue, h.status) > (l.queue, l.status)
        ORDER BY h.queue, h.status LIMIT 1
    ) AS n
)
SELECT l.queue, l.status, q.name IS NOT NULL AS known,
    q.retain_done_s, q.retain_dead_s, q.retain_cancelled_s
FROM lines l LEFT JOIN forge.queues q ON q.name = l.queue;

-- name: outlived
-- Ended jobs past their time, unless they still hold their key. Index: history_ended.
SELECT h.id FROM forge.history h
WHERE h.queue = $1 AND h.status = $2 AND h.finished_at <= $3
    AND NOT EXISTS (
        SELECT 1 FROM forge.dedupe d
        WHERE d.kind = h.kind AND d.key = h.dedupe_key AND d.job = h.id AND d.until > $4)
ORDER BY h.finished_at LIMIT $5 FOR UPDATE SKIP LOCKED;

-- name: forget_keys
-- Keys whose time after the end is over. Index: dedupe_until.
DELETE FROM forge.dedupe d WHERE (d.kind, d.key) IN (
    SELECT k.kind, k.key FROM forge.dedupe k WHERE k.until <= $1
    ORDER BY k.until LIMIT $2 FOR UPDATE SKIP LOCKED);
