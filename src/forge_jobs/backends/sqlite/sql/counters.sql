-- name: key_marks
-- The highest ingested key, and the highest key ever assigned. Index: both ends of the primary key.
SELECT ingested, max(ingested, coalesce((SELECT max(id) FROM forge_jobs), 0)) FROM forge_meta;

-- name: backlog
-- What is not in counters and minutes yet: the keys of key_marks, and whether there is a counter
-- entry.
SELECT ingested, max(ingested, coalesce((SELECT max(id) FROM forge_jobs), 0)),
       EXISTS (SELECT 1 FROM forge_counter_entries)
FROM forge_meta;

-- name: not_ingested
-- Counts the jobs that were inserted since the last ingest; few, because every other write ingests
-- first. One row of JSON, so that it costs one step. Index: primary key.
SELECT json_group_array(json_array(queue, kind, status, minute, jobs))
FROM (
    SELECT queue, kind, status, enqueued_at / 60000000 * 60000000 AS minute, count(*) AS jobs
    FROM forge_jobs
    WHERE id > ?1
    GROUP BY queue, kind, status, minute
);

-- name: make_claimable
-- Adds jobs that were inserted one by one to the claim index. Index: primary key; writes
-- forge_jobs_claim.
UPDATE forge_jobs SET claimable = 1
WHERE id > ?1 AND status = 'pending' AND claimable IS NULL AND claim_track IS NULL;

-- name: set_ingested
-- Counters and claim index now include all jobs up to this key.
UPDATE forge_meta SET ingested = ?1;

-- name: raise_control_version
-- Every process sees at its next exchange or poll that a setting changed.
UPDATE forge_meta SET control_version = control_version + 1;

-- name: add_counts
-- Adds the changes of one transaction to the number of jobs per state. Index: primary key.
INSERT INTO forge_counts (queue, kind, status, jobs)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]')
FROM json_each(?1)
WHERE true
ON CONFLICT (queue, kind, status) DO UPDATE SET jobs = jobs + excluded.jobs;

-- name: add_entry
-- Appends the counter entry of one transaction: a JSON list of minutes.
INSERT INTO forge_counter_entries (data) VALUES (?1);

-- name: oldest_entries
-- The oldest counter entries as one row: the last id, their number, and all of them as JSON. Index:
-- primary key.
SELECT max(id), count(*), json_group_array(json(data))
FROM (SELECT id, data FROM forge_counter_entries ORDER BY id LIMIT ?1);

-- name: delete_entries
-- Deletes entries that were rolled up. Index: primary key.
DELETE FROM forge_counter_entries WHERE id <= ?1;

-- name: stored_minutes
-- The stored values of these minutes. Index: primary key.
SELECT json_group_array(json(m.data))
FROM json_each(?1) AS n JOIN forge_minutes AS m
  ON m.at = json_extract(n.value, '$[0]') AND m.queue = json_extract(n.value, '$[1]')
 AND m.kind = json_extract(n.value, '$[2]');

-- name: put_minutes
-- Writes the merged values of these minutes. Index: primary key.
INSERT OR REPLACE INTO forge_minutes (at, queue, kind, data)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]')
FROM json_each(?1);

-- name: stored_totals
-- The stored totals of these queues and kinds. Index: primary key.
SELECT json_group_array(json(t.data))
FROM json_each(?1) AS n JOIN forge_totals AS t
  ON t.queue = json_extract(n.value, '$[0]') AND t.kind = json_extract(n.value, '$[1]');

-- name: put_totals
-- Writes the merged totals. Index: primary key.
INSERT OR REPLACE INTO forge_totals (queue, kind, data)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(?1);

-- name: counts
-- Jobs by queue and state, including those that are not ingested yet. Index: primary keys.
SELECT queue, status, sum(jobs)
FROM (
    SELECT queue, status, jobs FROM forge_counts
    UNION ALL
    SELECT queue, status, 1 FROM forge_jobs WHERE id > (SELECT ingested FROM forge_meta)
)
GROUP BY queue, status
HAVING sum(jobs) <> 0
ORDER BY queue, status;

-- name: count_by_kind
-- Jobs by queue, kind and state, including those that are not ingested yet; counts filters that ask
-- for nothing else. Index: primary keys.
SELECT queue, kind, status, sum(jobs)
FROM (
    SELECT queue, kind, status, jobs FROM forge_counts
    UNION ALL
    SELECT queue, kind, status, 1 FROM forge_jobs WHERE id > (SELECT ingested FROM forge_meta)
)
GROUP BY queue, kind, status;

-- name: minutes
-- Counters per minute: rolled up, in entries, and jobs that were only inserted. One row, so that
-- all parts come from one snapshot. Index: primary keys.
SELECT
    (SELECT json_group_array(json(data)) FROM forge_minutes
     WHERE at >= ?1 AND at < ?2 AND (?3 IS NULL OR queue = ?3)),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: totals
-- The same over all time. Index: primary keys.
SELECT
    (SELECT json_group_array(json(data)) FROM forge_totals),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: stored_vitals
-- The stored sample of a process in a minute. Index: primary key.
SELECT data FROM forge_vitals WHERE at = ?1 AND host_id = ?2;

-- name: put_vitals
-- Writes the merged sample. Index: primary key.
INSERT OR REPLACE INTO forge_vitals (at, host_id, data) VALUES (?1, ?2, ?3);

-- name: vitals
-- Samples of all processes in a time range. Index: primary key.
SELECT json_group_array(json(data))
FROM (SELECT data FROM forge_vitals WHERE at >= ?1 AND at < ?2 ORDER BY at, host_id);

-- name: purge_vitals
-- Deletes old samples, oldest first, up to a limit. Index: primary key.
DELETE FROM forge_vitals
WHERE (at, host_id) IN (
    SELECT at, host_id FROM forge_vitals WHERE at >= 0 AND at < ?1 ORDER BY at, host_id LIMIT ?2
);

-- name: add_action
-- Appends an audit entry. Index: primary key.
INSERT INTO forge_audit (at, data) VALUES (?1, ?2);

-- name: actions
-- Audit entries, newest first. Index: primary key.
SELECT id, data FROM forge_audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2;

-- name: purge_actions
-- Deletes old audit entries, oldest first, up to a limit. Index: forge_audit_by_age.
DELETE FROM forge_audit
WHERE id IN (SELECT id FROM forge_audit WHERE at < ?1 ORDER BY at LIMIT ?2);

-- name: purge_minutes
-- Deletes old minutes, oldest first, up to a limit. Index: primary key.
DELETE FROM forge_minutes
WHERE (at, queue, kind) IN (
    SELECT at, queue, kind FROM forge_minutes WHERE at < ?1 ORDER BY at, queue, kind LIMIT ?2
);

-- name: oldest_due
-- Per queue the pending or held job that has waited longest. Queues and priorities are few, so the
-- index is skipped through (one probe per value), not read; of held jobs the first of a limit bucket
-- and priority, up to ?1 of them; jobs that are not ingested yet are added. Index: forge_jobs_claim,
-- forge_jobs_track, forge_jobs_bucket.
WITH RECURSIVE
queues (queue) AS (
    SELECT min(queue) FROM forge_jobs WHERE claimable IS NOT NULL
    UNION ALL
    SELECT (SELECT min(j.queue) FROM forge_jobs AS j
            WHERE j.claimable IS NOT NULL AND j.queue > queues.queue)
    FROM queues
    WHERE queues.queue IS NOT NULL
),
steps (queue, priority) AS (
    SELECT queue, (SELECT min(j.priority) FROM forge_jobs AS j
                   WHERE j.claimable IS NOT NULL AND j.queue = queues.queue)
    FROM queues
    WHERE queue IS NOT NULL
    UNION ALL
    SELECT queue, (SELECT min(j.priority) FROM forge_jobs AS j
                   WHERE j.claimable IS NOT NULL AND j.queue = steps.queue
                     AND j.priority > steps.priority)
    FROM steps
    WHERE steps.priority IS NOT NULL
),
track_heads (id) AS (
    SELECT (SELECT id FROM forge_jobs WHERE claim_track IS NOT NULL
            ORDER BY queue, claim_track, priority, run_at LIMIT 1)
    UNION ALL
    SELECT (SELECT j.id FROM forge_jobs AS j
            WHERE j.claim_track IS NOT NULL
              AND (j.queue, j.claim_track, j.priority) > (s.queue, s.claim_track, s.priority)
            ORDER BY j.queue, j.claim_track, j.priority, j.run_at LIMIT 1)
    FROM track_heads JOIN forge_jobs AS s ON s.id = track_heads.id
    WHERE track_heads.id IS NOT NULL
),
held_heads (id) AS (
    SELECT (SELECT id FROM forge_jobs WHERE bucket IS NOT NULL
            ORDER BY bucket, priority, id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.id FROM forge_jobs AS j
            WHERE j.bucket IS NOT NULL AND (j.bucket, j.priority) > (s.bucket, s.priority)
            ORDER BY j.bucket, j.priority, j.id LIMIT 1)
    FROM held_heads JOIN forge_jobs AS s ON s.id = held_heads.id
    WHERE held_heads.id IS NOT NULL
    LIMIT ?1
)
SELECT queue, min(run_at)
FROM (
    SELECT queue, run_at FROM forge_jobs
    WHERE id IN (SELECT id FROM held_heads WHERE id IS NOT NULL)
    UNION ALL
    SELECT queue, run_at FROM forge_jobs
    WHERE id IN (SELECT id FROM track_heads WHERE id IS NOT NULL)
    UNION ALL
    SELECT queue, (SELECT min(j.run_at) FROM forge_jobs AS j
                   WHERE j.claimable IS NOT NULL AND j.queue = steps.queue
                     AND j.priority = steps.priority) AS run_at
    FROM steps
    WHERE priority IS NOT NULL
    UNION ALL
    SELECT queue, run_at FROM forge_jobs
    WHERE id > (SELECT ingested FROM forge_meta) AND status = 'pending'
)
GROUP BY queue
ORDER BY queue;
