-- name: look
-- Everything an exchange must know before it acts, in one row: is the process alive, the control
-- version, the books' marks, cancel requests for it, paused queues, gates (the table is empty unless
-- somebody was throttled), per wanted queue the earliest time of a scheduled or failed job, all
-- limits (few), and whether one of their jobs stands on a track.
-- Index: primary keys; forge_jobs_due, one entry per wanted queue; forge_jobs_side, likewise.
SELECT
    (SELECT host_id FROM forge_processes WHERE id = ?1 AND dead_at IS NULL),
    control_version,
    folded,
    max(folded, coalesce((SELECT max(id) FROM forge_jobs), 0)),
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
            WHERE EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_side
                          WHERE j.side IS NOT NULL AND j.queue = w.value))
FROM forge_marks;

-- name: candidates
-- The next jobs of a queue by priority, due time and key, as one row: numbers as JSON, kinds and
-- payloads as text with a separator, so that it costs one step and comes back byte for byte.
-- Only these kinds unless the list is NULL. Index: forge_jobs_claim, walked in order, no sort.
SELECT
    '[' || group_concat(id) || ']',
    '[' || group_concat(epoch) || ',' || group_concat(attempts) || ',' || group_concat(max_attempts)
        || ',' || group_concat(enqueued_at) || ',' || group_concat(run_at) || ','
        || group_concat(priority) || ']',
    group_concat(kind, char(30)),
    CAST(group_concat(coalesce(payload, ''), char(30)) AS BLOB),
    json_group_array(json_array(id, special, payload IS NULL, options, state,
                                coalesce(limit_key, in_lane)))
        FILTER (WHERE special <> 0 OR options IS NOT NULL OR state IS NOT NULL OR payload IS NULL)
FROM (
    SELECT id, epoch, attempts, max_attempts, enqueued_at, run_at, priority, kind, payload, special,
           options, state, limit_key, in_lane
    FROM forge_jobs INDEXED BY forge_jobs_claim
    WHERE line IS NOT NULL AND queue = ?1 AND (dies_at IS NULL OR dies_at > ?2)
      AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4)))
    ORDER BY priority, run_at, id
    LIMIT ?3
);

-- name: chosen
-- The same for jobs that were chosen by their keys. Index: primary key.
SELECT
    '[' || group_concat(id) || ']',
    '[' || group_concat(epoch) || ',' || group_concat(attempts) || ',' || group_concat(max_attempts)
        || ',' || group_concat(enqueued_at) || ',' || group_concat(run_at) || ','
        || group_concat(priority) || ']',
    group_concat(kind, char(30)),
    CAST(group_concat(coalesce(payload, ''), char(30)) AS BLOB),
    json_group_array(json_array(id, special, payload IS NULL, options, state,
                                coalesce(limit_key, in_lane)))
        FILTER (WHERE special <> 0 OR options IS NOT NULL OR state IS NOT NULL OR payload IS NULL)
FROM (
    SELECT id, epoch, attempts, max_attempts, enqueued_at, run_at, priority, kind, payload, special,
           options, state, limit_key, in_lane
    FROM forge_jobs
    WHERE id IN (SELECT value FROM json_each(?1))
    ORDER BY priority, run_at, id
);

-- name: claim_chosen
-- They become this owner's, whichever line they stood in. Index: primary key.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, line = NULL, side = NULL
WHERE id IN (SELECT value FROM json_each(?4));

-- name: claim
-- The candidates become this owner's; a NULL start leaves them prefetched. Index: primary key;
-- moves each from forge_jobs_claim to forge_jobs_busy.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, line = NULL
WHERE id IN (SELECT value FROM json_each(?4));

-- name: claim_range
-- The same for candidates whose keys follow each other. Index: primary key.
UPDATE forge_jobs
SET status = 'running', epoch = epoch + 1, attempts = attempts + 1, owner = ?1, exchange = ?2,
    started_at = ?3, line = NULL
WHERE id BETWEEN ?4 AND ?5;

-- name: done_range
-- The same for keys that follow each other. Index: primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1)
WHERE id BETWEEN ?2 AND ?3
  AND epoch = ?4 AND +owner = ?5 AND +status = 'running' AND special & 1 = 0;

-- name: undying
-- A claimed job does not expire any more. Index: primary key.
UPDATE forge_jobs SET dies_at = NULL WHERE id IN (SELECT value FROM json_each(?1));

-- name: body
-- A large payload. Index: primary key.
SELECT payload FROM forge_bodies WHERE job = ?1;

-- name: done
-- Plain jobs of one epoch that ended well without a result: the short path of a finish. The owner
-- is checked with a plus sign to keep the planner on the primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1)
WHERE id IN (SELECT value FROM json_each(?2))
  AND epoch = ?3 AND +owner = ?4 AND status = 'running' AND special & 1 = 0;

-- name: done_with_result
-- The same for jobs that returned something. Index: primary key.
UPDATE forge_jobs
SET status = 'done', finished_at = ?1, started_at = coalesce(started_at, ?1),
    result = CAST(json_extract(f.value, '$[1]') AS BLOB)
FROM json_each(?2) AS f
WHERE forge_jobs.id = json_extract(f.value, '$[0]')
  AND forge_jobs.epoch = ?3 AND +forge_jobs.owner = ?4 AND forge_jobs.status = 'running'
  AND forge_jobs.special & 1 = 0;

-- name: started
-- Prefetched jobs of one epoch that have started meanwhile. Index: primary key.
UPDATE forge_jobs SET started_at = ?1
WHERE id IN (SELECT value FROM json_each(?2))
  AND epoch = ?3 AND +owner = ?4 AND status = 'running' AND started_at IS NULL;

-- name: next_due
-- The earliest time of a scheduled or failed job of a queue. Index: forge_jobs_due.
SELECT min(due_at) FROM forge_jobs WHERE queue = ?1 AND due_at IS NOT NULL;

-- name: any_pending
-- Whether a queue has a job in line. Index: forge_jobs_claim.
SELECT EXISTS (SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_claim
               WHERE line IS NOT NULL AND queue = ?1)
    OR EXISTS (SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_side
               WHERE side IS NOT NULL AND queue = ?1);
