-- Gates and limit buckets. The functions that enforce limits are in functions/limit_buckets_v1.sql and
-- functions/claim_search_v1.sql.

-- name: reapply_limit
-- Applies a changed limit to jobs of its keys that have not started.
SELECT last_key, last_id FROM forge.reapply_limit_v1($1, $2, $3, $4, $5);

-- name: gates
-- The gates of queues and scopes; the table only holds what was throttled lately.
SELECT queue, until, count FROM forge.gates ORDER BY queue;

-- name: open_gate
-- Opens the gate of a queue or scope. Index: the primary key.
DELETE FROM forge.gates WHERE queue = $1;

-- name: running
-- How many running jobs a queue's or task's limit counts, and how many may run. Index: jobs_owner.
SELECT (SELECT count(*) FROM forge.jobs j WHERE j.status = 'running' AND j.owner > 0
        AND $1::text IN ('queue:' || j.queue, 'task:' || j.kind)) AS taken,
    (SELECT l.concurrency FROM forge.limits l WHERE l.name = $1 AND l.per IS NULL) AS max_running;

-- name: limit_key
-- How many jobs of a limit key are pending or running, and how many may be. Index: jobs_limit_key.
SELECT (SELECT count(*) FROM forge.jobs j WHERE j.limit_key = $1::text AND j.limit_key IS NOT NULL
        AND j.status IN ('pending', 'running')) AS taken,
    forge.limit_key_max_v1($1) AS max_running;

-- name: lane
-- The job that occupies a lane, and the first job of the lane. Index: jobs_lane_active, jobs_lane.
SELECT j.id, j.enqueued_at, true AS occupies_lane FROM forge.jobs j
WHERE j.queue = $1 AND j.lane = $2 AND j.lane_order IS NOT NULL
    AND (j.status IN ('pending', 'running')
        OR (j.status = 'held' AND j.limit_bucket >= 'task:' AND j.limit_bucket < 'task<'))
UNION ALL
(SELECT j.id, j.enqueued_at, false FROM forge.jobs j
WHERE j.queue = $1 AND j.lane = $2 AND j.lane_order IS NOT NULL
ORDER BY j.id LIMIT 1);

-- name: sweep_buckets
-- The safety net below the transitions: admits held jobs that were missed.
SELECT admitted, last, queues FROM forge.sweep_buckets_v1($1, $2, $3);

-- name: raise_control_version
-- Every process re-reads settings. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;
