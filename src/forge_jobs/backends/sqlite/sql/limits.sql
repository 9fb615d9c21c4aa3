-- name: limit
-- One limit. Index: primary key.
SELECT name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at
FROM forge_limits
WHERE name = ?1;

-- name: set_tokens
-- The tokens that are left after a claim. Index: primary key.
UPDATE forge_limits SET tokens = ?2, at = ?3 WHERE name = ?1;

-- name: gates
-- The gates of queues and scopes; the table only holds gates that were throttled recently.
SELECT queue, until, count FROM forge_gates ORDER BY queue;

-- name: running_of_queue
-- Running jobs of a queue; there are no more running jobs than slots. Index: forge_jobs_running.
SELECT count(*) FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND queue = ?1;

-- name: running_of_kind
-- Running jobs of a task. Index: forge_jobs_running.
SELECT count(*) FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND kind = ?1;

-- name: tracks
-- The tracks of a queue that have pending jobs. Index: forge_jobs_track, skipped through.
WITH RECURSIVE steps (claim_track) AS (
    SELECT min(claim_track) FROM forge_jobs WHERE claim_track IS NOT NULL AND queue = ?1
    UNION ALL
    SELECT (SELECT min(j.claim_track) FROM forge_jobs AS j
            WHERE j.claim_track IS NOT NULL AND j.queue = ?1 AND j.claim_track > steps.claim_track)
    FROM steps
    WHERE steps.claim_track IS NOT NULL
)
SELECT json_group_array(claim_track) FROM steps WHERE claim_track IS NOT NULL;

-- name: queue_heads
-- The first claimable jobs of a queue that are not on a track. Index: forge_jobs_claim, read in
-- order.
SELECT json_group_array(json_array(priority, run_at, id, kind))
FROM (
    SELECT priority, run_at, id, kind FROM forge_jobs INDEXED BY forge_jobs_claim
    WHERE claimable IS NOT NULL AND queue = ?1 AND (expires_at IS NULL OR expires_at > ?2)
      AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4)))
    ORDER BY priority, run_at, id
    LIMIT ?3
);

-- name: track_heads
-- The first jobs of a track. Index: forge_jobs_track, read in order.
SELECT json_group_array(json_array(priority, run_at, id, kind))
FROM (
    SELECT priority, run_at, id, kind FROM forge_jobs INDEXED BY forge_jobs_track
    WHERE claim_track IS NOT NULL AND queue = ?1 AND claim_track = ?2
      AND (expires_at IS NULL OR expires_at > ?3)
    ORDER BY priority, run_at, id
    LIMIT ?4
);

-- name: move_to_track
-- Moves pending jobs of limited tasks that were stored before the limit to their tracks; reads a
-- thousand claimable jobs at a time. Index: forge_jobs_claim.
UPDATE forge_jobs SET track = kind, claim_track = kind, claimable = NULL
WHERE kind IN (SELECT value FROM json_each(?2))
  AND id IN (
      SELECT id FROM forge_jobs INDEXED BY forge_jobs_claim
      WHERE claimable IS NOT NULL AND queue = ?1
      ORDER BY priority, run_at, id
      LIMIT 1000
  );

-- name: slots_in_use
-- How many pending and running jobs a limit key has, counted up to its limit. Index:
-- forge_jobs_limit_slot.
SELECT count(*)
FROM (SELECT 1 FROM forge_jobs WHERE limit_slot = ?1 AND limit_slot IS NOT NULL LIMIT ?2);

-- name: lane_slot_holder
-- The job that holds a lane's slot. Index: forge_jobs_lane_slot.
SELECT id, enqueued_at FROM forge_jobs WHERE lane_slot = ?1 AND lane_slot IS NOT NULL LIMIT 1;

-- name: oldest_of_lane
-- The oldest live job of a lane. Index: forge_jobs_lane.
SELECT id, enqueued_at FROM forge_jobs
WHERE live_lane = ?1 AND live_lane IS NOT NULL
ORDER BY id LIMIT 1;

-- name: lane_busy
-- Whether a lane's slot is taken or a job waits for it. Index: forge_jobs_lane_slot,
-- forge_jobs_bucket.
SELECT EXISTS (SELECT 1 FROM forge_jobs WHERE lane_slot = ?1 AND lane_slot IS NOT NULL)
    OR EXISTS (SELECT 1 FROM forge_jobs WHERE bucket = ?1 AND bucket IS NOT NULL);

-- name: lane_scheduled
-- For a lane that is not busy: whether one of its scheduled jobs is strict, and how many there are.
-- Index: forge_jobs_lane.
SELECT coalesce(max(json_extract(options, '$.order') = 'strict'), 0), count(*)
FROM forge_jobs INDEXED BY forge_jobs_lane
WHERE live_lane = ?1 AND live_lane IS NOT NULL;

-- name: lane_head
-- The oldest job that waits for a lane's slot. Index: forge_jobs_lane, read in order.
SELECT id, json_extract(options, '$.order') = 'strict' FROM forge_jobs INDEXED BY forge_jobs_lane
WHERE live_lane = ?1 AND live_lane IS NOT NULL AND bucket = ?1
ORDER BY id LIMIT 1;

-- name: older_in_lane
-- Whether a job of a lane must wait for an older live one. Index: forge_jobs_lane.
SELECT EXISTS (
    SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_lane
    WHERE live_lane = ?1 AND live_lane IS NOT NULL AND id < ?2
      AND (?3 OR json_extract(options, '$.order') = 'strict')
);

-- name: buckets
-- Buckets with a held job, by name. Index: forge_jobs_bucket, skipped through.
WITH RECURSIVE steps (bucket, number) AS (
    SELECT (SELECT min(bucket) FROM forge_jobs WHERE bucket IS NOT NULL AND bucket > ?1), 1
    UNION ALL
    SELECT (SELECT min(j.bucket) FROM forge_jobs AS j
            WHERE j.bucket IS NOT NULL AND j.bucket > steps.bucket),
           number + 1
    FROM steps
    WHERE steps.bucket IS NOT NULL AND number < ?2
)
SELECT json_group_array(bucket) FROM steps WHERE bucket IS NOT NULL;

-- name: pending_of_limit
-- Some pending jobs of all keys of a limit, above a key and a job, to check them against a changed
-- limit. Index: forge_jobs_limit_slot, read in order.
SELECT json_group_array(json_array(limit_slot, id))
FROM (
    SELECT limit_slot, id FROM forge_jobs INDEXED BY forge_jobs_limit_slot
    WHERE limit_slot IS NOT NULL AND (limit_slot, id) > (?1, ?2) AND limit_slot < ?3
      AND status = 'pending'
    ORDER BY limit_slot, id
    LIMIT ?4
);

-- name: buckets_of_limit
-- The buckets of all keys of a limit. Index: forge_jobs_bucket, skipped through.
WITH RECURSIVE steps (bucket, number) AS (
    SELECT (SELECT min(bucket) FROM forge_jobs
            WHERE bucket IS NOT NULL AND bucket >= ?1 AND bucket < ?2), 1
    UNION ALL
    SELECT (SELECT min(j.bucket) FROM forge_jobs AS j
            WHERE j.bucket IS NOT NULL AND j.bucket > steps.bucket AND j.bucket < ?2),
           number + 1
    FROM steps
    WHERE steps.bucket IS NOT NULL AND number < ?3
)
SELECT json_group_array(bucket) FROM steps WHERE bucket IS NOT NULL;
