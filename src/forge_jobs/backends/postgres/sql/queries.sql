-- Reading jobs. One statement reads both tables, so that a job that moves between them is seen once. Ids come as text,
-- "1,2,3", so that a new connection can be used before the driver has looked array types up.

-- name: job
-- One or more jobs. All columns by name: a prepared statement with * would fail after a migration of a newer release
-- has added a column. Index: the primary keys.
SELECT r.*, c.at AS cancel_requested_at, b.payload AS body
FROM (
    SELECT id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes, throttles,
        unique_waiting, status, queue, kind, payload, owner, exchange, started_at, finished_at,
        expires_at, track, limit_bucket, dedupe_key, limit_key, lane, lane_order, throttled_since,
        missing_since, timeout_s, dedupe_for_s, progress, tags, on_dead, trace, options,
        last_error, errors, progress_note, result, steps, failed_runs
    FROM forge.jobs WHERE id = ANY (string_to_array($1, ',')::bigint[])
    UNION ALL
    SELECT id, run_at, enqueued_at, priority, epoch, attempts, max_attempts, crashes, throttles,
        unique_waiting, status, queue, kind, payload, owner, exchange, started_at, finished_at,
        expires_at, track, limit_bucket, dedupe_key, limit_key, lane, lane_order, throttled_since,
        missing_since, timeout_s, dedupe_for_s, progress, tags, on_dead, trace, options,
        last_error, errors, progress_note, result, steps, failed_runs
    FROM forge.history WHERE id = ANY (string_to_array($1, ',')::bigint[])
) AS r
LEFT JOIN forge.cancel_requests c ON c.job = r.id
LEFT JOIN forge.large_payloads b ON b.job = r.id
ORDER BY r.id DESC;

-- name: peek
-- State and result of jobs that callers wait for. Index: the primary keys.
SELECT id, enqueued_at, status, NULL::bytea AS result, last_error
FROM forge.jobs WHERE id = ANY (string_to_array($1, ',')::bigint[])
UNION ALL
SELECT id, enqueued_at, status, result, last_error
FROM forge.history WHERE id = ANY (string_to_array($1, ',')::bigint[]);

-- name: job_logs
-- Log lines of a job. Index: the primary key.
SELECT at, level, message FROM forge.job_logs WHERE job = $1 ORDER BY id;

-- name: job_tracebacks
-- Tracebacks of a job. Index: the primary key.
SELECT at, attempt, traceback FROM forge.job_tracebacks WHERE job = $1 ORDER BY epoch;

-- name: matching
-- Which of these jobs match a filter; NULL means any. One by one, so that no plan reads a whole table because of a
-- long list. Index: the primary keys.
SELECT j.id, j.last_error, CASE WHEN $10::text IS NOT NULL THEN j.body END AS payload
FROM unnest(string_to_array($1, ',')::bigint[]) AS k(id)
CROSS JOIN LATERAL (
    SELECT id, queue, kind, status, tags, dedupe_key, last_error, error_group, enqueued_at, finished_at, owner, options,
        CASE WHEN $10::text IS NOT NULL THEN COALESCE(
            payload, (SELECT b.payload FROM forge.large_payloads b WHERE b.job = k.id)) END AS body
    FROM forge.jobs WHERE id = k.id
    UNION ALL
    SELECT id, queue, kind, status, tags, dedupe_key, last_error, error_group, enqueued_at, finished_at, owner, options,
        CASE WHEN $10::text IS NOT NULL THEN COALESCE(
            payload, (SELECT b.payload FROM forge.large_payloads b WHERE b.job = k.id)) END
    FROM forge.history WHERE id = k.id
    OFFSET 0
) AS j
WHERE ($2::text IS NULL OR j.queue = $2)
    AND ($3::text IS NULL OR j.kind = $3)
    AND ($4::text[] IS NULL OR j.status = ANY ($4))
    AND ($5::text IS NULL OR $5 = ANY (j.tags))
    AND ($6::text IS NULL OR j.dedupe_key = $6)
    AND ($7::text IS NULL OR position($7 IN j.last_error) > 0)
    AND ($8::bigint IS NULL OR j.enqueued_at >= $8)
    AND ($9::bigint IS NULL OR j.enqueued_at < $9)
    AND ($10::text IS NULL OR position($10 IN lower(convert_from(j.body, 'UTF8'))) > 0)
    AND ($11::bigint IS NULL OR j.finished_at >= $11)
    AND ($12::bigint IS NULL OR j.finished_at < $12)
    AND ($13::bigint[] IS NULL OR (j.status = 'running' AND j.owner = ANY ($13)))
    AND ($14::text IS NULL OR j.error_group = $14)
    AND ($15::text IS NULL OR j.options::json->>'parent' = $15);

-- name: matching_plain
-- The same for a filter without errors and payloads, as one text. Index: the primary keys.
SELECT string_agg(j.id::text, ',') AS keys
FROM unnest(string_to_array($1, ',')::bigint[]) AS k(id)
CROSS JOIN LATERAL (
    SELECT id, queue, kind, status, tags, dedupe_key, error_group, enqueued_at, finished_at, owner, options
    FROM forge.jobs WHERE id = k.id
    UNION ALL
    SELECT id, queue, kind, status, tags, dedupe_key, error_group, enqueued_at, finished_at, owner, options
    FROM forge.history WHERE id = k.id
    OFFSET 0
) AS j
WHERE ($2::text IS NULL OR j.queue = $2)
    AND ($3::text IS NULL OR j.kind = $3)
    AND ($4::text[] IS NULL OR j.status = ANY ($4))
    AND ($5::text IS NULL OR $5 = ANY (j.tags))
    AND ($6::text IS NULL OR j.dedupe_key = $6)
    AND ($7::bigint IS NULL OR j.enqueued_at >= $7)
    AND ($8::bigint IS NULL OR j.enqueued_at < $8)
    AND ($9::bigint IS NULL OR j.finished_at >= $9)
    AND ($10::bigint IS NULL OR j.finished_at < $10)
    AND ($11::bigint[] IS NULL OR (j.status = 'running' AND j.owner = ANY ($11)))
    AND ($12::text IS NULL OR j.error_group = $12)
    AND ($13::text IS NULL OR j.options::json->>'parent' = $13);

-- name: index_scans_only
-- For the rest of a transaction that pages: a small table would be read whole where an index does as well, and its
-- size is unknown when the plan is used again.
SET LOCAL enable_seqscan = off;

-- name: key_range
-- The lowest and the highest id. Index: the primary keys.
SELECT LEAST((SELECT min(id) FROM forge.jobs), (SELECT min(id) FROM forge.history)) AS low,
    GREATEST((SELECT max(id) FROM forge.jobs), (SELECT max(id) FROM forge.history)) AS high;

-- name: at_or_after
-- The next job from an id on, for a binary search by time: ids rise with time. Index: the primary keys.
SELECT f.id, f.enqueued_at FROM (
    (SELECT id, enqueued_at FROM forge.jobs WHERE id >= $1 ORDER BY id LIMIT 1)
    UNION ALL
    (SELECT id, enqueued_at FROM forge.history WHERE id >= $1 ORDER BY id LIMIT 1)
) AS f
ORDER BY f.id LIMIT 1;

-- name: keys_of_live
-- The next ids of live jobs. Index: the primary key. Like all below it is one part of a statement: $1 is the upper
-- bound, $2 how many, $3 and $4 a range of queues, $5 a dedupe key, $6 an
-- error group, $7 a parent.
SELECT 'live' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE id < $1 ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_ended
-- The next ids of terminal jobs. Index: the primary key.
SELECT 'ended' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history WHERE id < $1 ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_key
-- The next live jobs of a dedupe key. Index: jobs_dedupe.
SELECT 'key' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE dedupe_key = $5 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_ended_key
-- The next terminal jobs of a dedupe key. Index: history_dedupe.
SELECT 'ended_key' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history WHERE dedupe_key = $5 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_child
-- The next live jobs that another job or a schedule made. Index: jobs_parent.
SELECT 'child' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs
    WHERE strpos(options, '"parent"') > 0 AND options::json->>'parent' = $7 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_ended_child
-- The next terminal jobs of them. Index: history_parent.
SELECT 'ended_child' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history
    WHERE strpos(options, '"parent"') > 0 AND options::json->>'parent' = $7 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_group
-- The next live jobs whose last failed attempt is of an error group. Index: jobs_error_group.
SELECT 'group' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE error_group = $6 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_ended_group
-- The next terminal jobs of an error group. Index: history_error_group.
SELECT 'ended_group' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history WHERE error_group = $6 AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_failed
-- The next failed jobs. Index: jobs_failed.
SELECT 'failed' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE status = 'failed' AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_dead
-- The next dead jobs. Index: history_not_done.
SELECT 'dead' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history WHERE status = 'dead' AND status <> 'done' AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_cancelled
-- The next cancelled jobs. Index: history_not_done.
SELECT 'cancelled' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.history WHERE status = 'cancelled' AND status <> 'done' AND id < $1
    ORDER BY id DESC LIMIT $2) AS k;

-- name: keys_of_running
-- The next running jobs. There are few of them, as of those below when they are used; the sum (id + 0) keeps the
-- planner from scanning the primary key backwards instead. Index: jobs_owner.
SELECT 'running' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE status = 'running' AND id < $1
    ORDER BY id + 0 DESC LIMIT $2) AS k;

-- name: keys_of_held
-- The next held jobs. Index: jobs_held.
SELECT 'held' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs WHERE status = 'held' AND id < $1
    ORDER BY id + 0 DESC LIMIT $2) AS k;

-- name: keys_of_due
-- The next jobs that wait for their time. Index: jobs_due.
SELECT 'due' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs
    WHERE status IN ('scheduled', 'failed', 'suspended') AND queue >= $3 AND queue <= $4 AND id < $1
    ORDER BY id + 0 DESC LIMIT $2) AS k;

-- name: keys_of_line
-- The next pending jobs without a track. Index: jobs_claim.
SELECT 'line' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs
    WHERE status = 'pending' AND track IS NULL AND queue >= $3 AND queue <= $4 AND id < $1
    ORDER BY id + 0 DESC LIMIT $2) AS k;

-- name: keys_of_track
-- The next pending jobs on tracks. Index: jobs_track.
SELECT 'track' AS source, string_agg(k.id::text, ',') AS keys FROM (
    SELECT id FROM forge.jobs
    WHERE status = 'pending' AND track IS NOT NULL AND queue >= $3 AND queue <= $4 AND id < $1
    ORDER BY id + 0 DESC LIMIT $2) AS k;

-- name: positions_due
-- The next jobs of these queues by the time when they are due. Index: jobs_due, one range each.
SELECT j.at, j.id
FROM unnest($1::text[]) AS q(name)
CROSS JOIN unnest(($2::text[])[1:1]) AS s(name)
CROSS JOIN LATERAL (
    SELECT run_at AS at, id FROM forge.jobs
    WHERE queue = q.name AND status IN ('scheduled', 'failed', 'suspended')
        AND run_at >= $3::bigint AND (run_at, id) > ($3::bigint, $4::bigint)
    ORDER BY run_at, id LIMIT $5
) AS j
ORDER BY j.at, j.id LIMIT $5;

-- name: positions_due_down
-- The same, the latest first. Index: jobs_due, one range each.
SELECT j.at, j.id
FROM unnest($1::text[]) AS q(name)
CROSS JOIN unnest(($2::text[])[1:1]) AS s(name)
CROSS JOIN LATERAL (
    SELECT run_at AS at, id FROM forge.jobs
    WHERE queue = q.name AND status IN ('scheduled', 'failed', 'suspended')
        AND run_at <= $3::bigint AND (run_at, id) < ($3::bigint, $4::bigint)
    ORDER BY run_at DESC, id DESC LIMIT $5
) AS j
ORDER BY j.at DESC, j.id DESC LIMIT $5;

-- name: positions_ended
-- The next terminal jobs of these queues and states by their end. Index: history_retention, one range each.
SELECT j.at, j.id
FROM unnest($1::text[]) AS q(name)
CROSS JOIN unnest($2::text[]) AS s(name)
CROSS JOIN LATERAL (
    SELECT finished_at AS at, id FROM forge.history
    WHERE queue = q.name AND status = s.name
        AND finished_at >= $3::bigint AND (finished_at, id) > ($3::bigint, $4::bigint)
    ORDER BY finished_at, id LIMIT $5
) AS j
ORDER BY j.at, j.id LIMIT $5;

-- name: positions_ended_down
-- The same, the latest first. Index: history_retention, one range each.
SELECT j.at, j.id
FROM unnest($1::text[]) AS q(name)
CROSS JOIN unnest($2::text[]) AS s(name)
CROSS JOIN LATERAL (
    SELECT finished_at AS at, id FROM forge.history
    WHERE queue = q.name AND status = s.name
        AND finished_at <= $3::bigint AND (finished_at, id) < ($3::bigint, $4::bigint)
    ORDER BY finished_at DESC, id DESC LIMIT $5
) AS j
ORDER BY j.at DESC, j.id DESC LIMIT $5;

-- name: positions_started
-- The next running jobs by their start; there are few, so they are sorted. Index: jobs_owner.
SELECT started_at, id FROM forge.jobs
WHERE status = 'running' AND started_at IS NOT NULL AND (started_at, id + 0) > ($3::bigint, $4::bigint)
    AND queue = ANY ($1::text[]) AND status = ANY ($2::text[])
ORDER BY started_at, id + 0 LIMIT $5;

-- name: positions_started_down
-- The same, the latest first. Index: jobs_owner.
SELECT started_at, id FROM forge.jobs
WHERE status = 'running' AND started_at IS NOT NULL AND (started_at, id + 0) < ($3::bigint, $4::bigint)
    AND queue = ANY ($1::text[]) AND status = ANY ($2::text[])
ORDER BY started_at DESC, id + 0 DESC LIMIT $5;

-- name: keys_of_none
-- No row: gives every parameter a type, whichever parts are used.
SELECT '' AS source, '' AS keys
WHERE $1::bigint = 0 AND $2::bigint = 0 AND $3::text = '' AND $4::text = '' AND $5::text = ''
    AND $6::text = '' AND $7::text = '';
