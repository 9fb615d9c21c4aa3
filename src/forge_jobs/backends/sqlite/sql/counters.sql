-- name: marks
-- What is folded, and the highest key that was ever given out. Index: both ends of the primary key.
SELECT folded, max(folded, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_marks;

-- name: behind
-- What the books still have to take in: keys (see marks), and whether the ledger has a line.
SELECT folded, max(folded, coalesce((SELECT max(id) FROM forge_jobs), 0)),
       EXISTS (SELECT 1 FROM forge_ledger)
FROM forge_marks;

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
UPDATE forge_jobs SET line = 1
WHERE id > ?1 AND status = 'pending' AND line IS NULL AND side IS NULL;

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

-- name: add_line
-- What happened in one transaction: one line, appended.
INSERT INTO forge_ledger (told) VALUES (?1);

-- name: lines
-- The oldest lines of the ledger as one row: the last key, how many, and all of them as JSON.
SELECT max(id), count(*), json_group_array(json(told))
FROM (SELECT id, told FROM forge_ledger ORDER BY id LIMIT ?1);

-- name: drop_lines
-- Lines that are in the minutes now. Index: primary key.
DELETE FROM forge_ledger WHERE id <= ?1;

-- name: known_minutes
-- What is known of these minutes. Index: primary key.
SELECT json_group_array(json(m.told))
FROM json_each(?1) AS n JOIN forge_minutes AS m
  ON m.at = json_extract(n.value, '$[0]') AND m.queue = json_extract(n.value, '$[1]')
 AND m.kind = json_extract(n.value, '$[2]');

-- name: set_minutes
-- The new state of these minutes. Index: primary key.
INSERT OR REPLACE INTO forge_minutes (at, queue, kind, told)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]')
FROM json_each(?1);

-- name: known_totals
-- What is known of these queues and kinds. Index: primary key.
SELECT json_group_array(json(t.told))
FROM json_each(?1) AS n JOIN forge_totals AS t
  ON t.queue = json_extract(n.value, '$[0]') AND t.kind = json_extract(n.value, '$[1]');

-- name: set_totals
-- The new state of these totals. Index: primary key.
INSERT OR REPLACE INTO forge_totals (queue, kind, told)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(?1);

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
-- What happened per minute: folded, in the ledger, and jobs that were only enqueued; in one row, so
-- that all of it is of one moment. Index: primary keys.
SELECT
    (SELECT json_group_array(json(told)) FROM forge_minutes
     WHERE at >= ?1 AND at < ?2 AND (?3 IS NULL OR queue = ?3)),
    (SELECT json_group_array(json(told)) FROM forge_ledger),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT folded FROM forge_marks)
         GROUP BY minute, queue, kind
     ));

-- name: totals
-- The same for all time. Index: primary keys.
SELECT
    (SELECT json_group_array(json(told)) FROM forge_totals),
    (SELECT json_group_array(json(told)) FROM forge_ledger),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT folded FROM forge_marks)
         GROUP BY minute, queue, kind
     ));

-- name: known_vitals
-- What is known of a process in a minute. Index: primary key.
SELECT told FROM forge_vitals WHERE at = ?1 AND host_id = ?2;

-- name: set_vitals
-- The new state of it. Index: primary key.
INSERT OR REPLACE INTO forge_vitals (at, host_id, told) VALUES (?1, ?2, ?3);

-- name: vitals
-- How processes fared. Index: primary key.
SELECT json_group_array(json(told))
FROM (SELECT told FROM forge_vitals WHERE at >= ?1 AND at < ?2 ORDER BY at, host_id);

-- name: purge_vitals
-- Old ones, oldest first, no more than asked for. Index: primary key.
DELETE FROM forge_vitals
WHERE (at, host_id) IN (
    SELECT at, host_id FROM forge_vitals WHERE at >= 0 AND at < ?1 ORDER BY at, host_id LIMIT ?2
);

-- name: note_action
-- What an operator did. Index: primary key.
INSERT INTO forge_audit (at, told) VALUES (?1, ?2);

-- name: actions
-- What operators did, newest first. Index: primary key.
SELECT id, told FROM forge_audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2;

-- name: purge_actions
-- Old entries, oldest first, no more than asked for. Index: forge_audit_by_age.
DELETE FROM forge_audit
WHERE id IN (SELECT id FROM forge_audit WHERE at < ?1 ORDER BY at LIMIT ?2);

-- name: purge_minutes
-- Old minutes, oldest first, no more than asked for. Index: primary key.
DELETE FROM forge_minutes
WHERE (at, queue, kind) IN (
    SELECT at, queue, kind FROM forge_minutes WHERE at < ?1 ORDER BY at, queue, kind LIMIT ?2
);

-- name: oldest_due
-- Per queue the pending job that has waited longest. Queues and priorities are few, so the index is
-- hopped through, not read; jobs that are not in line yet are added.
-- Index: forge_jobs_claim, forge_jobs_side.
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
),
sides (id) AS (
    SELECT (SELECT id FROM forge_jobs WHERE side IS NOT NULL
            ORDER BY queue, side, priority, run_at LIMIT 1)
    UNION ALL
    SELECT (SELECT j.id FROM forge_jobs AS j
            WHERE j.side IS NOT NULL
              AND (j.queue, j.side, j.priority) > (s.queue, s.side, s.priority)
            ORDER BY j.queue, j.side, j.priority, j.run_at LIMIT 1)
    FROM sides JOIN forge_jobs AS s ON s.id = sides.id
    WHERE sides.id IS NOT NULL
)
SELECT queue, min(run_at)
FROM (
    SELECT queue, run_at FROM forge_jobs WHERE id IN (SELECT id FROM sides WHERE id IS NOT NULL)
    UNION ALL
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
