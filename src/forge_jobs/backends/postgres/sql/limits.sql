-- Declared limits; the functions that enforce them are in migrations 2 and 3.

-- name: all
-- All limits, by name.
SELECT l.name, l.concurrency, l.per, l.rate_per_s, l.burst, l.scopes, l.tokens, l.at, l.by_operator,
    l.updated_at, forge.present($1) AS now
FROM forge.limits l ORDER BY l.name;

-- name: lock
-- One limit, to change it. Index: the primary key.
SELECT l.name, l.concurrency, l.per, l.rate_per_s, l.burst, l.scopes, l.tokens, l.at, l.by_operator,
    l.updated_at
FROM forge.limits l WHERE l.name = $1 FOR UPDATE;

-- name: put
-- A limit as code declares it or an operator sets it. Index: the primary key.
INSERT INTO forge.limits (name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator,
    updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (name) DO UPDATE SET concurrency = EXCLUDED.concurrency, per = EXCLUDED.per,
    rate_per_s = EXCLUDED.rate_per_s, burst = EXCLUDED.burst, scopes = EXCLUDED.scopes,
    tokens = EXCLUDED.tokens, at = EXCLUDED.at, by_operator = EXCLUDED.by_operator,
    updated_at = EXCLUDED.updated_at;

-- name: measure_anew
-- Jobs of its keys that have not started follow a change.
SELECT last_key, last_id FROM forge.measure_anew($1, $2, $3, $4, $5);

-- name: scope_gates
-- The gates of scopes; the table only holds what was throttled lately.
SELECT queue, until, count FROM forge.gates WHERE queue LIKE 'scope:%' ORDER BY queue;

-- name: open_scope
-- Forget the throttle of a scope. Index: the primary key.
DELETE FROM forge.gates WHERE queue = $1 RETURNING 1;

-- name: scope_is_declared
-- Whether a task declares a scope.
SELECT EXISTS (SELECT 1 FROM forge.limits WHERE $1 = ANY (scopes)) AS known;

-- name: running
-- How many running jobs a queue's or task's limit counts, and how many may. Index: jobs_owner.
SELECT (SELECT count(*) FROM forge.jobs j WHERE j.status = 'running' AND j.owner > 0
        AND $1::text IN ('queue:' || j.queue, 'task:' || j.kind)) AS taken,
    (SELECT l.concurrency FROM forge.limits l WHERE l.name = $1 AND l.per IS NULL) AS most;

-- name: key
-- How many jobs of a key run or are about to, and how many may. Index: jobs_going.
SELECT (SELECT count(*) FROM forge.jobs j WHERE j.limit_key = $1::text AND j.limit_key IS NOT NULL
        AND j.status IN ('pending', 'running')) AS taken,
    forge.key_most($1) AS most;

-- name: lane
-- Whether a lane's seat is taken, and the job it waits for. Index: jobs_seat, jobs_lane.
SELECT j.id, j.enqueued_at, true AS seated FROM forge.jobs j
WHERE j.queue = $1 AND j.lane = $2 AND j.lane_order IS NOT NULL
    AND (j.status IN ('pending', 'running')
        OR (j.status = 'held' AND j.lot >= 'task:' AND j.lot < 'task<'))
UNION ALL
(SELECT j.id, j.enqueued_at, false FROM forge.jobs j
WHERE j.queue = $1 AND j.lane = $2 AND j.lane_order IS NOT NULL
ORDER BY j.id LIMIT 1);

-- name: admit
-- The net below the moves.
SELECT moved, last, queues FROM forge.admit($1, $2, $3);

-- name: operated
-- Every process looks again. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;
