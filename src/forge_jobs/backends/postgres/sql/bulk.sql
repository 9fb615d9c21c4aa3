-- Bulk actions of operators, and retention. Rows are locked in the order of their ids.

-- name: lock_live
-- Locks live jobs. Index: the primary key.
SELECT id, status, owner, kind, dedupe_key FROM forge.jobs WHERE id = ANY ($1::bigint[])
ORDER BY id FOR UPDATE;

-- name: lock_terminal
-- Locks terminal jobs. Index: the primary key.
SELECT id, status, kind, dedupe_key FROM forge.history WHERE id = ANY ($1::bigint[])
ORDER BY id FOR UPDATE;

-- name: enqueue_times
-- When jobs were enqueued: a public job id contains that time and must agree with it. Index: the primary keys.
SELECT id, enqueued_at FROM forge.jobs WHERE id = ANY ($1::bigint[])
UNION ALL
SELECT id, enqueued_at FROM forge.history WHERE id = ANY ($1::bigint[]);

-- name: cancel_waiting
-- Cancels waiting jobs.
SELECT forge.cancel_waiting_v1($1, $2, $3);

-- name: request_cancel
-- Asks the owners of running jobs to stop; the first reason given is kept. Index: the primary key.
INSERT INTO forge.cancel_requests (job, owner, at, reason)
SELECT r.job, r.owner, $3, $4 FROM unnest($1::bigint[], $2::bigint[]) AS r(job, owner)
ON CONFLICT (job) DO NOTHING;

-- name: raise_control_version
-- An operator changed something: every process re-reads settings. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;

-- name: take_dedupe_key
-- Takes a dedupe key for a job that is retried.
SELECT forge.take_dedupe_key_v1($1, $2, $3) AS taken;

-- name: retry_jobs
-- Retries jobs from the start.
SELECT forge.retry_jobs_v1($1, $2) AS queues;

-- name: count_rescheduled
-- Counts the waiting jobs that become scheduled by a reschedule; failed ones stay failed. Index: the primary key.
INSERT INTO forge.counter_entries (minute, queue, kind, source, target, jobs)
SELECT $1::bigint - $1::bigint % 60000000, queue, kind, status, 'scheduled', count(*)
FROM forge.jobs WHERE id = ANY ($2::bigint[]) AND status IN ('pending', 'held') GROUP BY queue, kind, status;

-- name: reschedule_jobs
-- Gives waiting jobs another due time. The rows are locked already. Index: the primary key.
WITH changed AS (
    UPDATE forge.jobs
    SET status = CASE WHEN status = 'failed' THEN 'failed' ELSE 'scheduled' END,
        run_at = $2, limit_bucket = NULL
    WHERE id = ANY ($1::bigint[])
    RETURNING queue
)
SELECT array_agg(DISTINCT queue) AS queues FROM changed;

-- name: admit_buckets_of_jobs
-- Admits held jobs into the limit buckets that these jobs left.
SELECT forge.admit_buckets_of_jobs_v1($1, $2) AS queues;

-- name: lock_unrouted
-- Locks waiting jobs of these kinds whose queue nobody had named; another process may be at it. Index: jobs_unrouted.
SELECT j.id, j.options, k.queue, j.queue AS source FROM unnest($1::text[], $2::text[]) AS k(kind, queue)
CROSS JOIN LATERAL (
    SELECT u.id, u.options, u.queue FROM forge.jobs u
    WHERE strpos(u.options, '"unrouted"') > 0 AND u.kind = k.kind AND u.status <> 'running'
    ORDER BY u.id LIMIT $3 FOR UPDATE SKIP LOCKED) AS j
LIMIT $3;

-- name: make_scheduled
-- Pending and held jobs become scheduled at their own time. The rows are locked already. Index: the primary key.
UPDATE forge.jobs SET status = 'scheduled', limit_bucket = NULL
WHERE id = ANY ($1::bigint[]) AND status IN ('pending', 'held');

-- name: count_left
-- Counts jobs out of their queue. Index: the primary key.
INSERT INTO forge.counter_entries (minute, queue, kind, source, jobs)
SELECT $1::bigint - $1::bigint % 60000000, queue, kind, status, count(*)
FROM forge.jobs WHERE id = ANY ($2::bigint[]) GROUP BY queue, kind, status;

-- name: count_entered
-- Counts jobs into their queue. Index: the primary key.
INSERT INTO forge.counter_entries (minute, queue, kind, target, jobs)
SELECT $1::bigint - $1::bigint % 60000000, queue, kind, status, count(*)
FROM forge.jobs WHERE id = ANY ($2::bigint[]) GROUP BY queue, kind, status;

-- name: route_jobs
-- Writes the queue of each job, and its options without the mark. Index: the primary key.
UPDATE forge.jobs j SET queue = m.queue, options = m.options
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS m(id, queue, options)
WHERE j.id BETWEEN m.id AND m.id;

-- name: delete_jobs
-- Deletes jobs.
SELECT forge.delete_jobs_v1($1, $2);

-- name: history_groups
-- Every queue and state in history, found one by one. Index: history_retention.
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

-- name: past_retention
-- Terminal jobs past their retention, unless they still hold their dedupe key. Index: history_retention.
SELECT h.id FROM forge.history h
WHERE h.queue = $1 AND h.status = $2 AND h.finished_at <= $3
    AND NOT EXISTS (
        SELECT 1 FROM forge.dedupe_keys d
        WHERE d.kind = h.kind AND d.key = h.dedupe_key AND d.job = h.id AND d.until > $4)
ORDER BY h.finished_at LIMIT $5 FOR UPDATE SKIP LOCKED;

-- name: delete_lapsed_keys
-- Deletes dedupe keys whose time after the finish is over. Index: dedupe_keys_until.
DELETE FROM forge.dedupe_keys d WHERE d.ctid = ANY (ARRAY(
    SELECT k.ctid FROM forge.dedupe_keys k WHERE k.until <= $1
    ORDER BY k.until LIMIT $2 FOR UPDATE SKIP LOCKED));

-- name: delete_stale_requests
-- Deletes cancel requests of jobs that do not run any more. The transitions do that themselves; this repairs what an
-- older release left. Index: the primary key of jobs; the table has few rows.
DELETE FROM forge.cancel_requests c
WHERE (SELECT j.status FROM forge.jobs j WHERE j.id = c.job) IS DISTINCT FROM 'running';
