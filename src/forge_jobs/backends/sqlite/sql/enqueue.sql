-- name: insert_jobs
-- New jobs; the row of values is repeated per job (at most 64 per statement). Writes the row and
-- forge_jobs_claim or forge_jobs_due, and other indexes only if an option needs them.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, slow_path, enqueued_at, due_at,
    expires_at, claimable, options, indexed_status, dedupe_key, limit_key, lane, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_batch
-- Many jobs that differ in their payload only: four times as fast as repeated rows of values.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, slow_path, enqueued_at, due_at,
    expires_at, claimable, options, indexed_status, dedupe_key, limit_key, lane, payload
)
SELECT ?1 + key, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
       CAST(value AS BLOB)
FROM json_each(?18);

-- name: insert_bound
-- One job with a lane, a limit key or a track.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, slow_path, enqueued_at, due_at,
    expires_at, claimable, options, indexed_status, dedupe_key, limit_key, lane, track,
    claim_track, bucket, lane_slot, limit_slot, live_lane, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_bound_batch
-- Many of them that differ in their payload only.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, slow_path, enqueued_at, due_at,
    expires_at, claimable, options, indexed_status, dedupe_key, limit_key, lane, track,
    claim_track, bucket, lane_slot, limit_slot, live_lane, payload
)
SELECT ?1 + key, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
       ?20, ?21, ?22, ?23, CAST(value AS BLOB)
FROM json_each(?24);

-- name: insert_single
-- One plain job, due now, as a transaction of its own: the statement computes the key. It writes no
-- index; the next ingest makes the job claimable.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, enqueued_at, payload
) VALUES (
    (SELECT max(ingested, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_meta) + 1,
    'pending', ?, ?, ?, ?, ?, ?, ?
);

-- name: insert_single_child
-- The same for a job whose only option is its link to the job that enqueued it. Writes
-- forge_jobs_parent.
INSERT INTO forge_jobs (
    id, status, queue, kind, priority, run_at, max_attempts, enqueued_at, payload, options
) VALUES (
    (SELECT max(ingested, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_meta) + 1,
    'pending', ?, ?, ?, ?, ?, ?, ?, ?
);

-- name: insert_body
-- A payload too large to be rewritten with every transition of its job.
INSERT INTO forge_bodies (job, payload) VALUES (?1, ?2);

-- name: key_holder
-- The job that holds a dedupe key now. Index: primary keys of both tables.
SELECT d.job, j.status, j.enqueued_at
FROM forge_dedupe AS d JOIN forge_jobs AS j ON j.id = d.job
WHERE d.kind = ?1 AND d.key = ?2 AND (d.until IS NULL OR d.until > ?3);

-- name: take_key
-- Assigns a dedupe key to a live job. Index: primary key.
INSERT INTO forge_dedupe (kind, key, job, until) VALUES (?1, ?2, ?3, NULL)
ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, until = NULL;

-- name: free_key
-- Frees a dedupe key if this job holds it. Index: primary key.
DELETE FROM forge_dedupe WHERE kind = ?1 AND key = ?2 AND job = ?3;

-- name: retain_key
-- Keeps a dedupe key taken for some time after its job ended. Index: primary key.
UPDATE forge_dedupe SET until = ?4 WHERE kind = ?1 AND key = ?2 AND job = ?3;

-- name: delete_expired_keys
-- Deletes dedupe keys whose time after the end of their job is over. Index: forge_dedupe_until.
DELETE FROM forge_dedupe WHERE until IS NOT NULL AND until <= ?1;
