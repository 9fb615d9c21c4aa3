-- name: load_rows
-- Rows for a transition outside the short paths, as one JSON text: one step whatever their number.
-- Index: primary key.
SELECT json_group_array(json_array(
    id, status, queue, kind, priority, run_at, epoch, attempts, max_attempts, slow_path,
    enqueued_at, owner, exchange, started_at, finished_at, due_at, expires_at, options, details, last_error,
    indexed_status, dedupe_key, limit_key, lane, claimable, track, claim_track, bucket, lane_slot,
    limit_slot, live_lane
))
FROM forge_jobs
WHERE id IN (SELECT value FROM json_each(?1));

-- name: store_rows
-- Writes the rows after their transitions. Index: primary key.
UPDATE forge_jobs SET
    status = json_extract(w.value, '$[1]'),
    run_at = json_extract(w.value, '$[5]'),
    epoch = json_extract(w.value, '$[6]'),
    attempts = json_extract(w.value, '$[7]'),
    slow_path = json_extract(w.value, '$[9]'),
    owner = json_extract(w.value, '$[11]'),
    exchange = json_extract(w.value, '$[12]'),
    started_at = json_extract(w.value, '$[13]'),
    finished_at = json_extract(w.value, '$[14]'),
    due_at = json_extract(w.value, '$[15]'),
    expires_at = json_extract(w.value, '$[16]'),
    options = json_extract(w.value, '$[17]'),
    details = json_extract(w.value, '$[18]'),
    last_error = json_extract(w.value, '$[19]'),
    indexed_status = json_extract(w.value, '$[20]'),
    claimable = json_extract(w.value, '$[24]'),
    result = CASE WHEN json_extract(w.value, '$[32]')
                  THEN CAST(json_extract(w.value, '$[31]') AS BLOB) ELSE result END
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: store_bound_columns
-- The columns of rows with a lane, a limit key or a track. Index: primary key.
UPDATE forge_jobs SET
    track = json_extract(w.value, '$[25]'),
    claim_track = json_extract(w.value, '$[26]'),
    bucket = json_extract(w.value, '$[27]'),
    lane_slot = json_extract(w.value, '$[28]'),
    limit_slot = json_extract(w.value, '$[29]'),
    live_lane = json_extract(w.value, '$[30]')
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: store_declared
-- The columns that only the declaration of a task changes after the job was stored. Index: primary key.
UPDATE forge_jobs SET
    priority = json_extract(w.value, '$[4]'),
    max_attempts = json_extract(w.value, '$[8]'),
    limit_key = json_extract(w.value, '$[22]'),
    lane = json_extract(w.value, '$[23]')
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: payload
-- The payload of a job. Index: primary keys.
SELECT coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id = ?1;

-- name: add_cancel
-- Asks the owner of a running job to stop it; read by the owner's next exchange.
INSERT OR IGNORE INTO forge_cancels (owner, job) VALUES (?1, ?2);

-- name: delete_cancel
-- Deletes the cancel request of a job that has ended. Index: primary key.
DELETE FROM forge_cancels WHERE owner = ?1 AND job = ?2;

-- name: gate
-- The throttle gate of a queue or scope. Index: primary key.
SELECT until, count FROM forge_gates WHERE queue = ?1;

-- name: set_gate
-- Writes a gate after a throttle, or after a success that left it partly closed. Index: primary
-- key.
INSERT INTO forge_gates (queue, until, count) VALUES (?1, ?2, ?3)
ON CONFLICT (queue) DO UPDATE SET until = excluded.until, count = excluded.count;

-- name: delete_gate
-- Deletes a gate that is open. Index: primary key.
DELETE FROM forge_gates WHERE queue = ?1;

-- name: backoff
-- The backoff of a queue for throttles without a delay. Index: primary key.
SELECT backoff_enabled, backoff_base_s, backoff_max_s FROM forge_queues WHERE name = ?1;

-- name: add_log_line
-- Appends a log line of a handler.
INSERT INTO forge_logs (job, at, level, message) VALUES (?1, ?2, ?3, ?4);

-- name: trim_log
-- Keeps only the newest log lines of a job. Index: forge_logs_job.
DELETE FROM forge_logs
WHERE id IN (SELECT id FROM forge_logs WHERE job = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2);

-- name: add_traceback
-- Stores the traceback of a failed attempt.
INSERT OR REPLACE INTO forge_tracebacks (job, epoch, at, attempt, traceback)
VALUES (?1, ?2, ?3, ?4, ?5);

-- name: trim_tracebacks
-- Keeps only the newest tracebacks of a job. Index: its primary key.
DELETE FROM forge_tracebacks
WHERE job = ?1 AND epoch <= (
    SELECT epoch FROM forge_tracebacks WHERE job = ?1 ORDER BY epoch DESC LIMIT 1 OFFSET ?2);

-- name: delete_jobs
-- Deletes jobs, on request or past their retention. Index: primary key.
DELETE FROM forge_jobs WHERE id IN (SELECT value FROM json_each(?1));

-- name: delete_bodies
-- Their large payloads. Index: primary key.
DELETE FROM forge_bodies WHERE job IN (SELECT value FROM json_each(?1));

-- name: delete_logs
-- Their log lines. Index: forge_logs_job.
DELETE FROM forge_logs WHERE job IN (SELECT value FROM json_each(?1));

-- name: delete_tracebacks
-- Their tracebacks. Index: its primary key.
DELETE FROM forge_tracebacks WHERE job IN (SELECT value FROM json_each(?1));

-- name: held_in_bucket
-- The first held jobs of a bucket. Index: forge_jobs_bucket, read in order.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs INDEXED BY forge_jobs_bucket
    WHERE bucket = ?1 AND bucket IS NOT NULL
    ORDER BY priority, id LIMIT ?2
);

-- name: owned_by
-- All running jobs of a process. Index: forge_jobs_running.
SELECT json_group_array(id) FROM forge_jobs WHERE status = 'running' AND owner = ?1;

-- name: orphans
-- Running jobs without a live owner, oldest first; there are no more running jobs than slots in the
-- cluster. Index: forge_jobs_running, read once.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs INDEXED BY forge_jobs_running
    WHERE status = 'running' AND owner NOT IN (SELECT value FROM json_each(?1))
    ORDER BY id LIMIT ?2
);

-- name: due
-- Scheduled, failed and suspended jobs of a queue whose time has come. Index: forge_jobs_due.
SELECT json_group_array(id), json_group_array(id) FILTER (WHERE expires_at <= ?2),
       json_group_array(id) FILTER (WHERE limit_key IS NOT NULL OR live_lane IS NOT NULL),
       json_group_array(id) FILTER (WHERE status = 'suspended')
FROM (
    SELECT id, status, expires_at, limit_key, live_lane FROM forge_jobs
    WHERE queue = ?1 AND due_at IS NOT NULL AND due_at <= ?2
    ORDER BY due_at LIMIT ?3
);

-- name: make_pending
-- Due jobs become pending. Index: primary key.
UPDATE forge_jobs
SET status = 'pending', due_at = NULL, indexed_status = NULL,
    claimable = CASE WHEN track IS NULL THEN 1 END,
    claim_track = track
WHERE id IN (SELECT value FROM json_each(?1));

-- name: count_by_state
-- The number of these jobs by kind and state, for the counters. Index: primary key.
SELECT json_group_array(json_array(queue, kind, status, jobs))
FROM (
    SELECT queue, kind, status, count(*) AS jobs FROM forge_jobs
    WHERE id IN (SELECT value FROM json_each(?1))
    GROUP BY queue, kind, status
);

-- name: expired
-- Waiting jobs past their expiry. Index: forge_jobs_expiry.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs
    WHERE expires_at IS NOT NULL AND expires_at <= ?1
    ORDER BY expires_at LIMIT ?2
);

-- name: due_queues
-- Queues with jobs that are due later, and their earliest time. Index: forge_jobs_due, skipped
-- through.
WITH RECURSIVE steps (queue) AS (
    SELECT min(queue) FROM forge_jobs WHERE due_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM forge_jobs AS j
            WHERE j.due_at IS NOT NULL AND j.queue > steps.queue)
    FROM steps
    WHERE steps.queue IS NOT NULL
)
SELECT queue, (SELECT min(j.due_at) FROM forge_jobs AS j
               WHERE j.queue = steps.queue AND j.due_at IS NOT NULL)
FROM steps
WHERE queue IS NOT NULL;

-- name: first_expiry
-- The earliest expiry of a waiting job. Index: forge_jobs_expiry.
SELECT min(expires_at) FROM forge_jobs WHERE expires_at IS NOT NULL;
