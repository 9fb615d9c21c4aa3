-- name: snapshot
-- All that an exchange reads before it writes, in one row: is the process alive, the control
-- version, the key marks, its cancel requests, paused queues, gates (the table is empty unless
-- something was throttled), per wanted queue the earliest time of a scheduled or failed job, all
-- limits (few), whether a wanted queue has a job on a track, and whether an event is not delivered
-- to all jobs. Index: primary keys; forge_jobs_due and forge_jobs_track, one entry per wanted queue;
-- forge_events_open, one entry.
SELECT
    (SELECT host_id FROM forge_processes WHERE id = ?1 AND dead_at IS NULL),
    control_version,
    ingested,
    max(ingested, coalesce((SELECT max(id) FROM forge_jobs), 0)),
    (SELECT json_group_array(job) FROM forge_cancels WHERE owner = ?1),
    (SELECT json_group_array(name) FROM forge_queues WHERE paused),
    (SELECT json_group_array(json_array(queue, until, count)) FROM forge_gates),
    (SELECT json_group_array((SELECT min(j.due_at) FROM forge_jobs AS j
                              WHERE j.queue = w.value AND j.due_at IS NOT NULL))
     FROM json_each(?2) AS w),
    (SELECT json_group_array(json_array(name, concurrency, per, rate_per_s, burst, json(scopes),
                                        tokens, at, json(iif(by_operator, 'true', 'false')),
                                        updated_at))
     FROM forge_limits),
    EXISTS (SELECT 1 FROM json_each(?2) AS w
            WHERE EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_track
                          WHERE j.claim_track IS NOT NULL AND j.queue = w.value)),
    EXISTS (SELECT 1 FROM forge_events INDEXED BY forge_events_open WHERE is_open IS NOT NULL)
FROM forge_meta;

-- name: occupied_queues
-- Which of these queues have a job that may be claimed: for an exchange that wants many queues, most
-- of them empty. Index: forge_jobs_claim and forge_jobs_track, one entry per queue.
SELECT json_group_array(w.value) FROM json_each(?1) AS w
WHERE EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_claim
              WHERE j.claimable IS NOT NULL AND j.queue = w.value)
   OR EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_track
              WHERE j.claim_track IS NOT NULL AND j.queue = w.value);

-- name: dues
-- Per queue the earliest time of a scheduled or failed job. Index: forge_jobs_due, one entry each.
SELECT json_group_array((SELECT min(j.due_at) FROM forge_jobs AS j
                         WHERE j.queue = w.value AND j.due_at IS NOT NULL))
FROM json_each(?1) AS w;

-- name: cancels
-- The cancel requests that are left after the finishes of an exchange. Index: primary key.
SELECT json_group_array(job) FROM forge_cancels WHERE owner = ?1;

-- name: candidates
-- The next jobs of a queue by priority, due time and key, as one row: numbers as JSON, kinds and
-- payloads as text with a separator, so that it costs one step and returns the payloads byte for
-- byte. Restricted to these kinds unless the list is NULL. Index: forge_jobs_claim, read in order,
-- no sort.
SELECT
    '[' || group_concat(id) || ']',
    '[' || group_concat(epoch) || ',' || group_concat(attempts) || ',' || group_concat(max_attempts)
        || ',' || group_concat(enqueued_at) || ',' || group_concat(run_at) || ','
        || group_concat(priority) || ']',
    group_concat(kind, char(30)),
    CAST(group_concat(coalesce(payload, ''), char(30)) AS BLOB),
    json_group_array(json_array(id, slow_path, payload IS NULL, options, details,
                                coalesce(limit_key, live_lane)))
        FILTER (WHERE slow_path <> 0 OR options IS NOT NULL OR details IS NOT NULL
                OR payload IS NULL)
FROM (
    SELECT id, epoch, attempts, max_attempts, enqueued_at, run_at, priority, kind, payload,
           slow_path, options, details, limit_key, live_lane
    FROM forge_jobs INDEXED BY forge_jobs_claim
    WHERE claimable IS NOT NULL AND queue = ?1 AND (expires_at IS NULL OR expires_at > ?2)
      AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4)))
    ORDER BY priority, run_at, id
    LIMIT ?3
);

-- name: by_keys
-- The same for jobs that were selected by key. Index: primary key.
SELECT
    '[' || group_concat(id) || ']',
    '[' || group_concat(epoch) || ',' || group_concat(attempts) || ',' || group_concat(max_attempts)
        || ',' || group_concat(enqueued_at) || ',' || group_concat(run_at) || ','
        || group_concat(priority) || ']',
    group_concat(kind, char(30)),
    CAST(group_concat(coalesce(payload, ''), char(30)) AS BLOB),
    json_group_array(json_array(id, slow_path, payload IS NULL, options, details,
                                coalesce(limit_key, live_lane)))
        FILTER (WHERE slow_path <> 0 OR options IS NOT NULL OR details IS NOT NULL
                OR payload IS NULL)
FROM (
    SELECT id, epoch, attempts, max_attempts, enqueued_at, run_at, priority, kind, payload,
           slow_path, options, details, limit_key, live_lane
    FROM forge_jobs
    WHERE id IN (SELECT value FROM json_each(?1))
    ORDER BY priority, run_at, id
);

-- name: claim_by_keys
-- Claims selected jobs, whether they are on a track or not. Index: primary key.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, claimable = NULL, claim_track = NULL
WHERE id IN (SELECT value FROM json_each(?4));

-- name: claim
-- Claims the candidates; started_at is NULL for prefetched jobs. Index: primary key; moves each job
-- from forge_jobs_claim to forge_jobs_running.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, claimable = NULL
WHERE id IN (SELECT value FROM json_each(?4));

-- name: claim_range
-- The same for candidates with consecutive keys. Index: primary key.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, claimable = NULL
WHERE id BETWEEN ?4 AND ?5;

-- name: done_range
-- The short path of a finish for consecutive keys. Index: primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1)
WHERE id BETWEEN ?2 AND ?3
  AND epoch = ?4 AND +owner = ?5 AND +status = 'running' AND slow_path & 1 = 0;

-- name: clear_expiry
-- A claimed job does not expire any more. Index: primary key.
UPDATE forge_jobs SET expires_at = NULL WHERE id IN (SELECT value FROM json_each(?1));

-- name: body
-- A large payload. Index: primary key.
SELECT payload FROM forge_bodies WHERE job = ?1;

-- name: done
-- The short path of a finish: plain jobs of one epoch that succeeded without a result. The unary
-- plus before owner keeps the planner on the primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1)
WHERE id IN (SELECT value FROM json_each(?2))
  AND epoch = ?3 AND +owner = ?4 AND status = 'running' AND slow_path & 1 = 0;

-- name: done_with_result
-- The same for jobs that returned a result. Index: primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1),
    result = CAST(json_extract(f.value, '$[1]') AS BLOB)
FROM json_each(?2) AS f
WHERE forge_jobs.id = json_extract(f.value, '$[0]')
  AND forge_jobs.epoch = ?3 AND +forge_jobs.owner = ?4 AND forge_jobs.status = 'running'
  AND forge_jobs.slow_path & 1 = 0;

-- name: mark_started
-- Prefetched jobs of one epoch that have started since. Index: primary key.
UPDATE forge_jobs SET started_at = ?1
WHERE id IN (SELECT value FROM json_each(?2))
  AND epoch = ?3 AND +owner = ?4 AND status = 'running' AND started_at IS NULL;

-- name: next_due
-- The earliest time of a scheduled or failed job of a queue. Index: forge_jobs_due.
SELECT min(due_at) FROM forge_jobs WHERE queue = ?1 AND due_at IS NOT NULL;

-- name: any_pending
-- Whether a queue has a claimable job. Index: forge_jobs_claim, forge_jobs_track.
SELECT EXISTS (SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_claim
               WHERE claimable IS NOT NULL AND queue = ?1)
    OR EXISTS (SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_track
               WHERE claim_track IS NOT NULL AND queue = ?1);
