-- name: marks
-- What is folded, and the highest key that was ever given out. Index: both ends of the primary key.
SELECT folded, max(folded, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_marks;

-- name: unfolded
-- Jobs that were only enqueued since the books were last brought up to date; few, because every
-- other write folds first. One row of JSON, so that it costs one step. Index: primary key.
SELECT json_group_array(json_array(queue, kind, status, minute, jobs))
FROM (
    SELECT queue, kind, status, enqueued_at / 60000000 * 60000000 AS minute, count(*) AS jobs
    FROM forge_jobs
    WHERE id > ?1
    GROUP BY queue, kind, status, minute
);

-- name: into_line
-- Jobs that were stored one by one take their place among those to be claimed. Index: primary key;
-- writes forge_jobs_claim.
UPDATE forge_jobs SET line = 1 WHERE id > ?1 AND status = 'pending' AND line IS NULL;

-- name: set_folded
-- The books now hold all jobs up to this key.
UPDATE forge_marks SET folded = ?1;

-- name: raise_control
-- Every process sees at its next exchange or poll that operators changed something.
UPDATE forge_marks SET control_version = control_version + 1;

-- name: add_counts
-- The changes of one transaction to the numbers of jobs by state. Index: primary key.
INSERT INTO forge_counts (queue, kind, status, jobs)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]')
FROM json_each(?1)
WHERE true
ON CONFLICT (queue, kind, status) DO UPDATE SET jobs = jobs + excluded.jobs;

-- name: add_minutes
-- What happened in one transaction, added to its minute. Index: primary key.
INSERT INTO forge_minutes (at, queue, kind, enqueued, done, retried, dead, cancelled, ran_s)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
FROM json_each(?1)
WHERE true
ON CONFLICT (at, queue, kind) DO UPDATE SET
    enqueued = enqueued + excluded.enqueued,
    done = done + excluded.done,
    retried = retried + excluded.retried,
    dead = dead + excluded.dead,
    cancelled = cancelled + excluded.cancelled,
    ran_s = ran_s + excluded.ran_s;

-- name: counts
-- Jobs by queue and state, with what is not folded yet. Index: primary keys.
SELECT queue, status, sum(jobs)
FROM (
    SELECT queue, status, jobs FROM forge_counts
    UNION ALL
    SELECT queue, status, 1 FROM forge_jobs WHERE id > (SELECT folded FROM forge_marks)
)
GROUP BY queue, status
HAVING sum(jobs) <> 0
ORDER BY queue, status;

-- name: count_plain
-- Jobs by queue, kind and state for a filter that asks for nothing else. Index: primary keys.
SELECT queue, kind, status, sum(jobs)
FROM (
    SELECT queue, kind, status, jobs FROM forge_counts
    UNION ALL
    SELECT queue, kind, status, 1 FROM forge_jobs WHERE id > (SELECT folded FROM forge_marks)
)
GROUP BY queue, kind, status;

-- name: minutes
-- What happened per minute, with what is not folded yet. Index: primary keys.
SELECT at, queue, kind, sum(enqueued), sum(done), sum(retried), sum(dead), sum(cancelled), sum(ran_s)
FROM (
    SELECT at, queue, kind, enqueued, done, retried, dead, cancelled, ran_s
    FROM forge_minutes
    WHERE at >= ?1 AND at < ?2
    UNION ALL
    SELECT enqueued_at / 60000000 * 60000000, queue, kind, 1, 0, 0, 0, 0, 0.0
    FROM forge_jobs
    WHERE id > (SELECT folded FROM forge_marks)
      AND enqueued_at / 60000000 * 60000000 >= ?1
      AND enqueued_at / 60000000 * 60000000 < ?2
)
WHERE ?3 IS NULL OR queue = ?3
GROUP BY at, queue, kind
ORDER BY at, queue, kind;

-- name: purge_minutes
-- Old minutes, oldest first, no more than asked for. Index: primary key.
DELETE FROM forge_minutes
WHERE (at, queue, kind) IN (
    SELECT at, queue, kind FROM forge_minutes WHERE at < ?1 ORDER BY at, queue, kind LIMIT ?2
);

-- name: oldest_due
-- Per queue the pending job that has waited longest. Queues and priorities are few, so the index is
-- hopped through, not read; jobs that are not in line yet are added. Index: forge_jobs_claim.
WITH RECURSIVE
queues (queue) AS (
    SELECT min(queue) FROM forge_jobs WHERE line IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM forge_jobs AS j
            WHERE j.line IS NOT NULL AND j.queue > queues.queue)
    FROM queues
    WHERE queues.queue IS NOT NULL
),
steps (queue, priority) AS (
    SELECT queue, (SELECT min(j.priority) FROM forge_jobs AS j
                   WHERE j.line IS NOT NULL AND j.queue = queues.queue)
    FROM queues
    WHERE queue IS NOT NULL
    UNION ALL
    SELECT queue, (SELECT min(j.priority) FROM forge_jobs AS j
                   WHERE j.line IS NOT NULL AND j.queue = steps.queue
                     AND j.priority > steps.priority)
    FROM steps
    WHERE steps.priority IS NOT NULL
)
SELECT queue, min(run_at)
FROM (
    SELECT queue, (SELECT min(j.run_at) FROM forge_jobs AS j
                   WHERE j.line IS NOT NULL AND j.queue = steps.queue
                     AND j.priority = steps.priority) AS run_at
    FROM steps
    WHERE priority IS NOT NULL
    UNION ALL
    SELECT queue, run_at FROM forge_jobs
    WHERE id > (SELECT folded FROM forge_marks) AND status = 'pending'
)
GROUP BY queue
ORDER BY queue;
