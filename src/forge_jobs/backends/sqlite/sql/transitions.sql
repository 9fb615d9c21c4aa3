-- name: load_rows
-- Rows that are about to move by more than the short path, as one piece of JSON: one step whatever
-- their number. Index: primary key.
SELECT json_group_array(json_array(
    id, status, queue, kind, priority, run_at, epoch, attempts, max_attempts, special, enqueued_at,
    owner, exchange, started_at, finished_at, due_at, dies_at, options, state, last_error, odd,
    dedupe_key, limit_key, lane, line, track, side, lot, seat, going, in_lane
))
FROM forge_jobs
WHERE id IN (SELECT value FROM json_each(?1));

-- name: store_rows
-- The same rows after their moves. Index: primary key.
UPDATE forge_jobs SET
    status = json_extract(w.value, '$[1]'),
    run_at = json_extract(w.value, '$[5]'),
    epoch = json_extract(w.value, '$[6]'),
    attempts = json_extract(w.value, '$[7]'),
    special = json_extract(w.value, '$[9]'),
    owner = json_extract(w.value, '$[11]'),
    exchange = json_extract(w.value, '$[12]'),
    started_at = json_extract(w.value, '$[13]'),
    finished_at = json_extract(w.value, '$[14]'),
    due_at = json_extract(w.value, '$[15]'),
    dies_at = json_extract(w.value, '$[16]'),
    options = json_extract(w.value, '$[17]'),
    state = json_extract(w.value, '$[18]'),
    last_error = json_extract(w.value, '$[19]'),
    odd = json_extract(w.value, '$[20]'),
    line = json_extract(w.value, '$[24]'),
    result = CASE WHEN json_extract(w.value, '$[32]')
                  THEN CAST(json_extract(w.value, '$[31]') AS BLOB) ELSE result END
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: store_bounds
-- Where rows with a lane, a limit key or a track now stand. Index: primary key.
UPDATE forge_jobs SET
    track = json_extract(w.value, '$[25]'),
    side = json_extract(w.value, '$[26]'),
    lot = json_extract(w.value, '$[27]'),
    seat = json_extract(w.value, '$[28]'),
    going = json_extract(w.value, '$[29]'),
    in_lane = json_extract(w.value, '$[30]')
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: payload
-- What a job was enqueued with. Index: primary keys.
SELECT coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id = ?1;

-- name: add_cancel
-- A running job was asked to stop; its owner hears it with its next exchange.
INSERT OR IGNORE INTO forge_cancels (owner, job) VALUES (?1, ?2);

-- name: drop_cancel
-- The job that was asked to stop has ended. Index: primary key.
DELETE FROM forge_cancels WHERE owner = ?1 AND job = ?2;

-- name: gate
-- The throttle state of a queue. Index: primary key.
SELECT until, count FROM forge_gates WHERE queue = ?1;

-- name: set_gate
-- A throttle closed the gate, or a success left it as it is. Index: primary key.
INSERT INTO forge_gates (queue, until, count) VALUES (?1, ?2, ?3)
ON CONFLICT (queue) DO UPDATE SET until = excluded.until, count = excluded.count;

-- name: drop_gate
-- The throttle is forgotten. Index: primary key.
DELETE FROM forge_gates WHERE queue = ?1;

-- name: curve
-- How a queue backs off when a limiter gives no hint. Index: primary key.
SELECT backoff_enabled, backoff_base_s, backoff_max_s FROM forge_queues WHERE name = ?1;

-- name: add_line
-- A line that a handler wrote.
INSERT INTO forge_logs (job, at, level, message) VALUES (?1, ?2, ?3, ?4);

-- name: trim_lines
-- Only the newest lines of a job are kept. Index: forge_logs_job.
DELETE FROM forge_logs
WHERE id IN (SELECT id FROM forge_logs WHERE job = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2);

-- name: remove_jobs
-- Jobs that are deleted or past their retention. Index: primary key.
DELETE FROM forge_jobs WHERE id IN (SELECT value FROM json_each(?1));

-- name: remove_bodies
-- Their large payloads. Index: primary key.
DELETE FROM forge_bodies WHERE job IN (SELECT value FROM json_each(?1));

-- name: remove_lines
-- What their handlers wrote. Index: forge_logs_job.
DELETE FROM forge_logs WHERE job IN (SELECT value FROM json_each(?1));

-- name: held
-- The first held jobs of a lot. Index: forge_jobs_lot, in the order it gives.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs INDEXED BY forge_jobs_lot
    WHERE lot = ?1 AND lot IS NOT NULL
    ORDER BY priority, id LIMIT ?2
);

-- name: owned_by
-- All running jobs of a process. Index: forge_jobs_busy.
SELECT json_group_array(id) FROM forge_jobs WHERE status = 'running' AND owner = ?1;

-- name: orphans
-- Running jobs whose owner is not among the living, oldest first; running jobs are as few as there
-- are slots in the cluster. Index: forge_jobs_busy, read once.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs INDEXED BY forge_jobs_busy
    WHERE status = 'running' AND owner NOT IN (SELECT value FROM json_each(?1))
    ORDER BY id LIMIT ?2
);

-- name: due
-- Scheduled and failed jobs of a queue whose time has come. Index: forge_jobs_due.
SELECT json_group_array(id), json_group_array(id) FILTER (WHERE dies_at <= ?2),
       json_group_array(id) FILTER (WHERE limit_key IS NOT NULL OR in_lane IS NOT NULL)
FROM (
    SELECT id, dies_at, limit_key, in_lane FROM forge_jobs
    WHERE queue = ?1 AND due_at IS NOT NULL AND due_at <= ?2
    ORDER BY due_at LIMIT ?3
);

-- name: make_pending
-- Due jobs join the line. Index: primary key.
UPDATE forge_jobs
SET status = 'pending', due_at = NULL, odd = NULL, line = CASE WHEN track IS NULL THEN 1 END,
    side = track
WHERE id IN (SELECT value FROM json_each(?1));

-- name: by_state
-- How many of these jobs are of which kind and state, for the books. Index: primary key.
SELECT json_group_array(json_array(queue, kind, status, jobs))
FROM (
    SELECT queue, kind, status, count(*) AS jobs FROM forge_jobs
    WHERE id IN (SELECT value FROM json_each(?1))
    GROUP BY queue, kind, status
);

-- name: expired
-- Waiting jobs whose expiry has passed. Index: forge_jobs_dies.
SELECT json_group_array(id)
FROM (
    SELECT id FROM forge_jobs
    WHERE dies_at IS NOT NULL AND dies_at <= ?1
    ORDER BY dies_at LIMIT ?2
);

-- name: due_queues
-- Queues with scheduled or failed jobs and their earliest time. Index: forge_jobs_due, hopped through.
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
-- The earliest expiry of a waiting job. Index: forge_jobs_dies.
SELECT min(dies_at) FROM forge_jobs WHERE dies_at IS NOT NULL;
