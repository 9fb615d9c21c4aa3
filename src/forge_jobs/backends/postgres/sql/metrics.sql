-- Counters, minutes, process samples and the audit. No statement here reads jobs by the thousand.

-- name: counts
-- Jobs by queue and state: counters plus the entries that are not rolled up yet.
SELECT c.queue, c.status, sum(c.jobs)::bigint AS jobs FROM (
    SELECT queue, status, jobs FROM forge.counters
    UNION ALL
    SELECT queue, source, -jobs FROM forge.counter_entries WHERE source IS NOT NULL
    UNION ALL
    SELECT queue, target, jobs FROM forge.counter_entries WHERE target IS NOT NULL
) AS c
GROUP BY c.queue, c.status HAVING sum(c.jobs) <> 0 ORDER BY c.queue, c.status;

-- name: count_plain
-- The same by queue, kind and state, for a filter on nothing else.
SELECT c.queue, c.kind, c.status, sum(c.jobs)::bigint AS jobs FROM (
    SELECT queue, kind, status, jobs FROM forge.counters
    UNION ALL
    SELECT queue, kind, source, -jobs FROM forge.counter_entries WHERE source IS NOT NULL
    UNION ALL
    SELECT queue, kind, target, jobs FROM forge.counter_entries WHERE target IS NOT NULL
) AS c
WHERE ($1::text IS NULL OR c.queue = $1) AND ($2::text IS NULL OR c.kind = $2)
GROUP BY c.queue, c.kind, c.status;

-- name: oldest_due
-- Since when the longest-waiting pending or held job of each queue is due: the first of each priority, without and on a
-- track, and the first of each limit bucket and priority, up to $1 of them; found one by one. Index: jobs_claim,
-- jobs_track, jobs_held.
WITH RECURSIVE heads(queue, priority, run_at) AS (
    (SELECT queue, priority, run_at FROM forge.jobs WHERE status = 'pending' AND track IS NULL
    ORDER BY queue, priority, run_at LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.run_at FROM heads h CROSS JOIN LATERAL (
        SELECT j.queue, j.priority, j.run_at FROM forge.jobs j
        WHERE j.status = 'pending' AND j.track IS NULL
            AND (j.queue, j.priority) > (h.queue, h.priority)
        ORDER BY j.queue, j.priority, j.run_at LIMIT 1
    ) AS n
),
tracks(queue, track, priority, run_at) AS (
    (SELECT queue, track, priority, run_at FROM forge.jobs
    WHERE status = 'pending' AND track IS NOT NULL
    ORDER BY queue, track, priority, run_at LIMIT 1)
    UNION ALL
    SELECT n.queue, n.track, n.priority, n.run_at FROM tracks t CROSS JOIN LATERAL (
        SELECT j.queue, j.track, j.priority, j.run_at FROM forge.jobs j
        WHERE j.status = 'pending' AND j.track IS NOT NULL
            AND (j.queue, j.track, j.priority) > (t.queue, t.track, t.priority)
        ORDER BY j.queue, j.track, j.priority, j.run_at LIMIT 1
    ) AS n
),
held(queue, limit_bucket, priority, run_at) AS (
    (SELECT queue, limit_bucket, priority, run_at FROM forge.jobs WHERE status = 'held'
    ORDER BY limit_bucket, priority, id LIMIT 1)
    UNION ALL
    SELECT n.queue, n.limit_bucket, n.priority, n.run_at FROM held h CROSS JOIN LATERAL (
        SELECT j.queue, j.limit_bucket, j.priority, j.run_at FROM forge.jobs j
        WHERE j.status = 'held' AND (j.limit_bucket, j.priority) > (h.limit_bucket, h.priority)
        ORDER BY j.limit_bucket, j.priority, j.id LIMIT 1
    ) AS n
)
SELECT f.queue, min(f.run_at) AS run_at FROM (
    SELECT queue, run_at FROM heads UNION ALL SELECT queue, run_at FROM tracks
    UNION ALL (SELECT queue, run_at FROM held LIMIT $1)) AS f
GROUP BY f.queue;

-- name: minutes
-- What happened per minute, queue and kind: minutes (source is '') and entries that are not rolled up yet; one
-- statement, so that both are of one snapshot. Index: the primary key.
SELECT at, queue, kind, '' AS source, NULL AS target, 0 AS jobs, enqueued, started, done, retried,
    dead, cancelled, throttled, released, waited::text, ran::text, took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM forge.minutes WHERE at >= $1 AND at < $2 AND ($3::text IS NULL OR queue = $3)
UNION ALL
SELECT minute, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries WHERE minute >= $1 AND minute < $2 AND ($3::text IS NULL OR queue = $3);

-- name: totals
-- The same for all time.
SELECT at, queue, kind, '' AS source, NULL AS target, 0 AS jobs, enqueued, started, done, retried,
    dead, cancelled, throttled, released, waited::text, ran::text, took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM forge.totals
UNION ALL
SELECT minute, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries;

-- name: any_entry
-- Whether there is anything to roll up.
SELECT 1 AS any FROM forge.counter_entries LIMIT 1;

-- name: take_entries
-- Takes counter entries for the roll-up: concurrent roll-ups take different ones.
DELETE FROM forge.counter_entries WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.counter_entries LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING minute AS at, queue, kind, source, target, jobs, retried, throttled, waited_s, ran_s,
    waited AS waited_b, ran AS ran_b, ended_at, enqueued AS enqueued_b;

-- name: add_counters
-- Adds to the numbers of jobs by state, in the order of their keys so that concurrent roll-ups do not block each other
-- for long. Index: the primary key.
INSERT INTO forge.counters AS c (queue, kind, status, jobs)
SELECT d.queue, d.kind, d.status, d.jobs
FROM jsonb_to_recordset($1::jsonb) AS d(queue text, kind text, status text, jobs bigint)
ORDER BY d.queue COLLATE "C", d.kind COLLATE "C", d.status COLLATE "C"
ON CONFLICT (queue, kind, status) DO UPDATE SET jobs = c.jobs + EXCLUDED.jobs;

-- name: add_minutes
-- Adds to what happened in a minute. Index: the primary key.
INSERT INTO forge.minutes AS m
SELECT p.at, p.queue, p.kind, p.enqueued, p.started, p.done, p.retried, p.dead, p.cancelled,
    p.throttled, p.released, p.waited, p.ran, p.took
FROM jsonb_to_recordset($1::jsonb) AS p(at bigint, queue text, kind text, enqueued bigint,
    started bigint, done bigint, retried bigint, dead bigint, cancelled bigint, throttled bigint,
    released bigint, waited jsonb, ran jsonb, took jsonb)
ORDER BY p.at, p.queue COLLATE "C", p.kind COLLATE "C"
ON CONFLICT (at, queue, kind) DO UPDATE SET
    enqueued = m.enqueued + EXCLUDED.enqueued, started = m.started + EXCLUDED.started,
    done = m.done + EXCLUDED.done, retried = m.retried + EXCLUDED.retried,
    dead = m.dead + EXCLUDED.dead, cancelled = m.cancelled + EXCLUDED.cancelled,
    throttled = m.throttled + EXCLUDED.throttled, released = m.released + EXCLUDED.released,
    waited = forge.merge_histograms_v1(m.waited, EXCLUDED.waited), ran = forge.merge_histograms_v1(m.ran, EXCLUDED.ran),
    took = forge.merge_histograms_v1(m.took, EXCLUDED.took);

-- name: add_totals
-- The same for all time. Index: the primary key.
INSERT INTO forge.totals AS m
SELECT p.at, p.queue, p.kind, p.enqueued, p.started, p.done, p.retried, p.dead, p.cancelled,
    p.throttled, p.released, p.waited, p.ran, p.took
FROM jsonb_to_recordset($1::jsonb) AS p(at bigint, queue text, kind text, enqueued bigint,
    started bigint, done bigint, retried bigint, dead bigint, cancelled bigint, throttled bigint,
    released bigint, waited jsonb, ran jsonb, took jsonb)
ORDER BY p.queue COLLATE "C", p.kind COLLATE "C"
ON CONFLICT (queue, kind) DO UPDATE SET
    enqueued = m.enqueued + EXCLUDED.enqueued, started = m.started + EXCLUDED.started,
    done = m.done + EXCLUDED.done, retried = m.retried + EXCLUDED.retried,
    dead = m.dead + EXCLUDED.dead, cancelled = m.cancelled + EXCLUDED.cancelled,
    throttled = m.throttled + EXCLUDED.throttled, released = m.released + EXCLUDED.released,
    waited = forge.merge_histograms_v1(m.waited, EXCLUDED.waited), ran = forge.merge_histograms_v1(m.ran, EXCLUDED.ran),
    took = forge.merge_histograms_v1(m.took, EXCLUDED.took);

-- name: create_vitals
-- A row to add samples to, unless there is one. Index: the primary key.
INSERT INTO forge.vitals (at, host_id, sample) VALUES ($1, $2, $3)
ON CONFLICT (at, host_id) DO NOTHING;

-- name: lock_vitals
-- The stored sample of a process in a minute, locked until the transaction ends.
SELECT sample FROM forge.vitals WHERE at = $1 AND host_id = $2 FOR UPDATE;

-- name: update_vitals
-- Stores the merged sample. Index: the primary key.
UPDATE forge.vitals SET sample = $3 WHERE at = $1 AND host_id = $2;

-- name: vitals
-- Samples of processes. Index: the primary key.
SELECT sample FROM forge.vitals WHERE at >= $1 AND at < $2 ORDER BY at, host_id;

-- name: purge_vitals
-- Deletes old samples. Index: the primary key. ARRAY runs its query once; as the inner side of a join it would run once
-- per row, skip what it deleted before, and delete more than $2. Locked rows keep their ctid.
DELETE FROM forge.vitals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.vitals WHERE at >= 0 AND at < $1
    ORDER BY at, host_id LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: stamp
-- Changes when a writing transaction ends: each has a number in the snapshot. Readers and vacuum have none, so that a
-- server that only vacuums keeps its stamp. No table is read.
SELECT pg_current_snapshot()::text AS stamp;

-- name: add_audit_entry
-- Stores an action of an operator. Index: the primary key.
INSERT INTO forge.audit (at, entry) VALUES ($1, $2);

-- name: audit_entries
-- Actions of operators, newest first. Index: the primary key.
SELECT id, entry FROM forge.audit WHERE id < $1 ORDER BY id DESC LIMIT $2;

-- name: purge_audit
-- Deletes old entries. Index: audit_by_age.
DELETE FROM forge.audit WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.audit WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1;

-- name: purge_minutes
-- Deletes old minutes. Index: the primary key.
DELETE FROM forge.minutes WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.minutes WHERE at < $1
    ORDER BY at, queue, kind LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1;
