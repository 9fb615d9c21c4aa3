-- name: insert_jobs
-- New jobs; the list of values is repeated as often as there are jobs (at most 64 per statement).
-- Writes the row and forge_jobs_claim or forge_jobs_due, no other index unless an option asks.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, special, enqueued_at, due_at, dies_at,
    line, options, odd, dedupe_key, limit_key, lane, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_alike
-- Many jobs that differ in their payload alone: four times as fast as a list of values.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, special, enqueued_at, due_at, dies_at,
    line, options, odd, dedupe_key, limit_key, lane, payload
)
SELECT ?1 + key, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
       CAST(value AS BLOB)
FROM json_each(?18);

-- name: insert_bound
-- One job with a lane, a limit key or a track.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, special, enqueued_at, due_at, dies_at,
    line, options, odd, dedupe_key, limit_key, lane, track, side, lot, seat, going, in_lane, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_bound_alike
-- Many of them that differ in their payload alone.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, special, enqueued_at, due_at, dies_at,
    line, options, odd, dedupe_key, limit_key, lane, track, side, lot, seat, going, in_lane, payload
)
SELECT ?1 + key, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
       ?20, ?21, ?22, ?23, CAST(value AS BLOB)
FROM json_each(?24);

-- name: insert_lone
-- One usual job, due now, a transaction by itself: the key is found within the statement. It writes
-- no index at all; the next fold puts the job in line.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, enqueued_at, payload
) VALUES (
    (SELECT max(folded, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_marks) + 1,
    'pending', ?, ?, ?, ?, ?, ?, ?
);

-- name: insert_body
-- A payload too large to be rewritten with every move of its job.
INSERT INTO forge_bodies (job, payload) VALUES (?1, ?2);

-- name: holder
-- Who holds a dedupe key at this moment. Index: primary keys of both tables.
SELECT d.job, j.status, j.enqueued_at
FROM forge_dedupe AS d JOIN forge_jobs AS j ON j.id = d.job
WHERE d.kind = ?1 AND d.key = ?2 AND (d.until IS NULL OR d.until > ?3);

-- name: take_key
-- The key belongs to this job for as long as it lives. Index: primary key.
INSERT INTO forge_dedupe (kind, key, job, until) VALUES (?1, ?2, ?3, NULL)
ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, until = NULL;

-- name: free_key
-- The key is free, if this job holds it. Index: primary key.
DELETE FROM forge_dedupe WHERE kind = ?1 AND key = ?2 AND job = ?3;

-- name: end_key
-- The key stays taken for some time after the end of its job. Index: primary key.
UPDATE forge_dedupe SET until = ?4 WHERE kind = ?1 AND key = ?2 AND job = ?3;

-- name: lapsed_keys
-- Keys whose time after the end is over. Index: forge_dedupe_until.
DELETE FROM forge_dedupe WHERE until IS NOT NULL AND until <= ?1;
