-- Enqueue, exchange and the other transitions of jobs. Most are calls of functions (postgres/functions); what those do
-- and which index they use is written there.

-- name: store_now
-- One store time for a transaction of several statements.
SELECT forge.store_now_v1($1::bigint) AS now;

-- name: exchange
-- The hot call.
SELECT * FROM forge.exchange_v1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24, $25, $26, $27, $28);

-- name: exchange_steps
-- The same of a process whose running jobs store steps or wait for events.
SELECT * FROM forge.exchange_steps_v1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40);

-- name: lock_for_steps
-- The locks of such an exchange, where several statements follow.
SELECT forge.lock_for_steps_v1($1, $2, $3);

-- name: claim_waiting
-- The hot call of a process that has nothing to write.
SELECT * FROM forge.claim_waiting_v1($1, $2, $3, $4, $5, $6);

-- name: enqueue
-- Stores jobs with any options.
SELECT * FROM forge.enqueue_v1(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    $22, $23, true);

-- name: enqueue_alike
-- Stores jobs without options that differ only in their payloads.
SELECT key, at FROM forge.enqueue_alike_v1($1, $2, $3, $4, $5, $6);

-- name: enqueue_one
-- Stores one job without options: what enqueue_alike does, without the cost of a function call.
WITH stored AS (
    INSERT INTO forge.jobs (status, queue, kind, priority, run_at, enqueued_at, max_attempts, payload)
    SELECT 'pending', $3, $2, $4, n.at, n.at, $5, convert_to($6, 'UTF8')
    FROM forge.store_now_v1($1) AS n(at)
    RETURNING id, enqueued_at
),
counted AS (
    INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
    SELECT s.enqueued_at - s.enqueued_at % 60000000, $3, $2, 'pending', 1 FROM stored s
)
SELECT id AS key, enqueued_at AS at FROM stored;

-- name: enqueue_and_notify
-- Stores jobs without options, one or many, and notifies. No transaction may be open.
CALL forge.enqueue_and_notify_v1($1, $2, $3, $4, $5, $6, $7, $8, NULL, NULL);

-- name: enqueue_children
-- Stores jobs whose only option is their link to the job that enqueued them.
SELECT key, at FROM forge.enqueue_children_v1($1, $2, $3, $4, $5, $6, $7);

-- name: enqueue_children_and_notify
-- The same, and notifies. No transaction may be open.
CALL forge.enqueue_children_and_notify_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL, NULL);

-- name: enqueue_json
-- Stores a few jobs with any options.
SELECT * FROM forge.enqueue_json_v1($1, $2, NULL, $3);

-- name: enqueue_shared
-- The same for several callers at once: fails soon if one of them has to wait for a dedupe key.
SELECT * FROM forge.enqueue_json_v1($1, $2, NULL, $3, true);

-- name: declare
-- What the task of a claimed job declares; the job was stored without it. Index: the primary key.
UPDATE forge.jobs SET
    priority = $4, max_attempts = $5, timeout_s = $6, tags = $7, limit_key = $8,
    lane = COALESCE(lane, $9), lane_order = CASE WHEN lane IS NULL THEN $10 ELSE lane_order END,
    track = $11, on_dead = COALESCE(on_dead, $12), options = $13, attempts = 1, started_at = NULL
WHERE id = $1 AND epoch = $2 AND (owner = $3 AND status = 'running') IS TRUE;

-- name: own_throttles
-- Which throttled claims are valid, before the gate changes. Index: the primary key.
SELECT j.id, j.queue, j.kind FROM unnest($2::bigint[], $3::integer[]) AS e(key, epoch)
JOIN forge.jobs j ON j.id BETWEEN e.key AND e.key AND j.epoch = e.epoch
WHERE (j.owner = $1 AND j.status = 'running') IS TRUE
ORDER BY j.id + 0 FOR UPDATE OF j;

-- name: gates
-- Gates by name, with the back-off settings of queues. Index: the primary keys.
SELECT w.queue, g.until, g.count, q.backoff_enabled, q.backoff_base_s, q.backoff_max_s
FROM unnest($1::text[]) AS w(queue)
LEFT JOIN forge.gates g ON g.queue = w.queue
LEFT JOIN forge.queues q ON q.name = w.queue;

-- name: close_gate
-- A throttle closes the gate, unless another transaction closed it meanwhile. Index: the primary key.
INSERT INTO forge.gates (queue, until, count) VALUES ($1, $2, $3)
ON CONFLICT (queue) DO UPDATE SET until = EXCLUDED.until, count = EXCLUDED.count
WHERE gates.until <= $4;

-- name: dead_letters
-- What the on_dead tasks need to know of jobs that have just died. Index: the primary key.
SELECT h.id, h.kind, h.queue, h.attempts, h.last_error, h.enqueued_at, h.finished_at, h.on_dead,
    h.tags, h.trace,
    COALESCE(h.payload, (SELECT b.payload FROM forge.large_payloads b WHERE b.job = h.id)) AS payload
FROM forge.history h
WHERE h.id = ANY ($1::bigint[]) AND h.status = 'dead' AND h.on_dead IS NOT NULL
ORDER BY h.id;

-- name: owned
-- The running jobs of a process. Index: jobs_owner.
SELECT id, epoch, exchange, started_at IS NOT NULL AS started
FROM forge.jobs WHERE owner = $1 AND status = 'running' ORDER BY id + 0;

-- name: reap
-- Takes jobs from dead processes.
SELECT * FROM forge.reap_v1($1, $2, $3, $4, $5);

-- name: expire
-- Cancels waiting jobs that have expired.
SELECT forge.expire_v1($1, $2) AS expired;

-- name: due_queues
-- Queues with scheduled, failed or suspended jobs, found one by one without reading the rest. Index: jobs_due.
WITH RECURSIVE waiting(queue) AS (
    (SELECT queue FROM forge.jobs WHERE status IN ('scheduled', 'failed', 'suspended') ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM forge.jobs j
            WHERE j.status IN ('scheduled', 'failed', 'suspended') AND j.queue > w.queue
            ORDER BY j.queue LIMIT 1)
    FROM waiting w WHERE w.queue IS NOT NULL
)
SELECT w.queue, (SELECT j.run_at FROM forge.jobs j
        WHERE j.status IN ('scheduled', 'failed', 'suspended') AND j.queue = w.queue
        ORDER BY j.run_at LIMIT 1) AS run_at
FROM waiting w WHERE w.queue IS NOT NULL;

-- name: promote_queue
-- Promotes due jobs of one queue.
SELECT promoted, expired FROM forge.promote_queue_v1($1, $2, $3);

-- name: next_expiry
-- When the next waiting job expires. Index: jobs_expiry.
SELECT min(expires_at) AS at FROM forge.jobs WHERE expires_at IS NOT NULL AND status <> 'running';

-- name: held_in_bucket
-- Held jobs of a limit bucket in their order. Index: jobs_held.
SELECT id FROM forge.jobs WHERE limit_bucket = $1 AND status = 'held'
ORDER BY priority, id LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: make_pending
-- Makes waiting jobs pending.
SELECT forge.make_pending_v1($1, $2, $3) AS queues;

-- name: notify
-- One notification for all queues that have more to do. Outside every transaction that writes.
SELECT pg_notify($1, $2);
