-- name: limits
-- All limits by name. Index: primary key.
SELECT name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at
FROM forge_limits
ORDER BY name;

-- name: limit
-- One limit. Index: primary key.
SELECT name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at
FROM forge_limits
WHERE name = ?1;

-- name: put_limit
-- A limit as code declares it or an operator sets it. Index: primary key.
INSERT OR REPLACE INTO forge_limits (
    name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: spend
-- The starts that are left after a claim. Index: primary key.
UPDATE forge_limits SET tokens = ?2, at = ?3 WHERE name = ?1;

-- name: scope_gates
-- The gates of scopes; the table only holds what was throttled lately.
SELECT queue, until, count FROM forge_gates WHERE substr(queue, 1, 6) = 'scope:';

-- name: running_of_queue
-- How many jobs of a queue run; running jobs are as few as there are slots. Index: forge_jobs_busy.
SELECT count(*) FROM forge_jobs INDEXED BY forge_jobs_busy WHERE status = 'running' AND queue = ?1;

-- name: running_of_kind
-- How many jobs of a task run. Index: forge_jobs_busy.
SELECT count(*) FROM forge_jobs INDEXED BY forge_jobs_busy WHERE status = 'running' AND kind = ?1;

-- name: tracks
-- The tracks of a queue that have jobs. Index: forge_jobs_side, hopped through.
WITH RECURSIVE steps (side) AS (
    SELECT min(side) FROM forge_jobs WHERE side IS NOT NULL AND queue = ?1
    UNION ALL
    SELECT (SELECT min(j.side) FROM forge_jobs AS j
            WHERE j.side IS NOT NULL AND j.queue = ?1 AND j.side > steps.side)
    FROM steps
    WHERE steps.side IS NOT NULL
)
SELECT json_group_array(side) FROM steps WHERE side IS NOT NULL;

-- name: heads
-- The first jobs of a queue's own line. Index: forge_jobs_claim, walked in order.
SELECT json_group_array(json_array(priority, run_at, id, kind))
FROM (
    SELECT priority, run_at, id, kind FROM forge_jobs INDEXED BY forge_jobs_claim
    WHERE line IS NOT NULL AND queue = ?1 AND (dies_at IS NULL OR dies_at > ?2)
      AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4)))
    ORDER BY priority, run_at, id
    LIMIT ?3
);

-- name: track_heads
-- The first jobs of a track. Index: forge_jobs_side, walked in order.
SELECT json_group_array(json_array(priority, run_at, id, kind))
FROM (
    SELECT priority, run_at, id, kind FROM forge_jobs INDEXED BY forge_jobs_side
    WHERE side IS NOT NULL AND queue = ?1 AND side = ?2 AND (dies_at IS NULL OR dies_at > ?3)
    ORDER BY priority, run_at, id
    LIMIT ?4
);

-- name: put_on_track
-- Jobs of limited tasks that were stored before the limit move to their tracks, a thousand of the line
-- at a time. Index: forge_jobs_claim.
UPDATE forge_jobs SET track = kind, side = kind, line = NULL
WHERE kind IN (SELECT value FROM json_each(?2))
  AND id IN (
      SELECT id FROM forge_jobs INDEXED BY forge_jobs_claim
      WHERE line IS NOT NULL AND queue = ?1
      ORDER BY priority, run_at, id
      LIMIT 1000
  );

-- name: taken
-- How many jobs of a key run or are about to, no further than its limit. Index: forge_jobs_going.
SELECT count(*) FROM (SELECT 1 FROM forge_jobs WHERE going = ?1 AND going IS NOT NULL LIMIT ?2);

-- name: seated
-- The job that has a lane's seat. Index: forge_jobs_seat.
SELECT id, enqueued_at FROM forge_jobs WHERE seat = ?1 AND seat IS NOT NULL LIMIT 1;

-- name: oldest_of_lane
-- The oldest job of a lane that has not ended. Index: forge_jobs_lane.
SELECT id, enqueued_at FROM forge_jobs WHERE in_lane = ?1 AND in_lane IS NOT NULL ORDER BY id LIMIT 1;

-- name: lane_busy
-- Whether a lane's seat is taken or somebody waits for it. Index: forge_jobs_seat, forge_jobs_lot.
SELECT EXISTS (SELECT 1 FROM forge_jobs WHERE seat = ?1 AND seat IS NOT NULL)
    OR EXISTS (SELECT 1 FROM forge_jobs WHERE lot = ?1 AND lot IS NOT NULL);

-- name: lane_later
-- Of a lane that is not busy: whether a job that comes due later is strict, or there is one at all.
-- Index: forge_jobs_lane.
SELECT coalesce(max(json_extract(options, '$.order') = 'strict'), 0), count(*)
FROM forge_jobs INDEXED BY forge_jobs_lane
WHERE in_lane = ?1 AND in_lane IS NOT NULL;

-- name: lane_head
-- The oldest job that waits for a lane's seat. Index: forge_jobs_lane, walked in order.
SELECT id, json_extract(options, '$.order') = 'strict' FROM forge_jobs INDEXED BY forge_jobs_lane
WHERE in_lane = ?1 AND in_lane IS NOT NULL AND lot = ?1
ORDER BY id LIMIT 1;

-- name: older_in_lane
-- Whether a job of a lane has to wait for an older one that is not over. Index: forge_jobs_lane.
SELECT EXISTS (
    SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_lane
    WHERE in_lane = ?1 AND in_lane IS NOT NULL AND id < ?2
      AND (?3 OR json_extract(options, '$.order') = 'strict')
);

-- name: lots
-- Lots with a job in them, by name. Index: forge_jobs_lot, hopped through.
WITH RECURSIVE steps (lot, place) AS (
    SELECT (SELECT min(lot) FROM forge_jobs WHERE lot IS NOT NULL AND lot > ?1), 1
    UNION ALL
    SELECT (SELECT min(j.lot) FROM forge_jobs AS j WHERE j.lot IS NOT NULL AND j.lot > steps.lot),
           place + 1
    FROM steps
    WHERE steps.lot IS NOT NULL AND place < ?2
)
SELECT json_group_array(lot) FROM steps WHERE lot IS NOT NULL;

-- name: waiting_of_limit
-- Some jobs of all keys of a limit that are in line behind a key and a job, so that they can be
-- measured anew. Index: forge_jobs_going, walked in order.
SELECT json_group_array(json_array(going, id))
FROM (
    SELECT going, id FROM forge_jobs INDEXED BY forge_jobs_going
    WHERE going IS NOT NULL AND (going, id) > (?1, ?2) AND going < ?3 AND status = 'pending'
    ORDER BY going, id
    LIMIT ?4
);

-- name: lots_of_limit
-- The lots of all keys of a limit. Index: forge_jobs_lot, hopped through.
WITH RECURSIVE steps (lot, place) AS (
    SELECT (SELECT min(lot) FROM forge_jobs WHERE lot IS NOT NULL AND lot >= ?1 AND lot < ?2), 1
    UNION ALL
    SELECT (SELECT min(j.lot) FROM forge_jobs AS j
            WHERE j.lot IS NOT NULL AND j.lot > steps.lot AND j.lot < ?2),
           place + 1
    FROM steps
    WHERE steps.lot IS NOT NULL AND place < ?3
)
SELECT json_group_array(lot) FROM steps WHERE lot IS NOT NULL;
