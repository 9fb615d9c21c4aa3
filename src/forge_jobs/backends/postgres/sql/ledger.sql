-- The books. Nothing here reads jobs by the thousand.

-- name: counts
-- Jobs by queue and state: what was folded and what was not yet.
SELECT c.queue, c.status, sum(c.jobs)::bigint AS jobs FROM (
    SELECT queue, status, jobs FROM forge.counters
    UNION ALL
    SELECT queue, source, -jobs FROM forge.ledger WHERE source IS NOT NULL
    UNION ALL
    SELECT queue, target, jobs FROM forge.ledger WHERE target IS NOT NULL
) AS c
GROUP BY c.queue, c.status HAVING sum(c.jobs) <> 0 ORDER BY c.queue, c.status;

-- name: count_plain
-- The same for one queue, kind or some states; NULL means any.
SELECT COALESCE(sum(c.jobs), 0)::bigint AS jobs FROM (
    SELECT queue, kind, status, jobs FROM forge.counters
    UNION ALL
    SELECT queue, kind, source, -jobs FROM forge.ledger WHERE source IS NOT NULL
    UNION ALL
    SELECT queue, kind, target, jobs FROM forge.ledger WHERE target IS NOT NULL
) AS c
WHERE ($1::text IS NULL OR c.queue = $1) AND ($2::text IS NULL OR c.kind = $2)
    AND ($3::text[] IS NULL OR c.status = ANY ($3));

-- name: oldest_due
-- Since when the longest-waiting pending job of each queue is due: the first of each priority, found
-- one by one. Index: jobs_claim.
WITH RECURSIVE heads(queue, priority, run_at) AS (
    (SELECT queue, priority, run_at FROM forge.jobs WHERE status = 'pending'
    ORDER BY queue, priority, run_at LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.run_at FROM heads h CROSS JOIN LATERAL (
        SELECT j.queue, j.priority, j.run_at FROM forge.jobs j
        WHERE j.status = 'pending' AND (j.queue, j.priority) > (h.queue, h.priority)
        ORDER BY j.queue, j.priority, j.run_at LIMIT 1
    ) AS n
)
SELECT queue, min(run_at) AS run_at FROM heads GROUP BY queue;

-- name: minutes
-- What happened per minute, queue and kind: what was folded and what was not yet. Index: the primary
-- key.
SELECT m.at, m.queue, m.kind, sum(m.enqueued)::bigint AS enqueued, sum(m.done)::bigint AS done,
    sum(m.retried)::bigint AS retried, sum(m.dead)::bigint AS dead,
    sum(m.cancelled)::bigint AS cancelled, sum(m.ran_s) AS ran_s
FROM (
    SELECT at, queue, kind, enqueued, done, retried, dead, cancelled, ran_s FROM forge.minutes
    WHERE at >= $1 AND at < $2
    UNION ALL
    SELECT minute, queue, kind,
        CASE WHEN source IS NULL THEN jobs ELSE 0 END, CASE WHEN target = 'done' THEN jobs ELSE 0 END,
        retried, CASE WHEN target = 'dead' THEN jobs ELSE 0 END,
        CASE WHEN target = 'cancelled' THEN jobs ELSE 0 END, ran_s
    FROM forge.ledger WHERE minute >= $1 AND minute < $2
) AS m
WHERE $3::text IS NULL OR m.queue = $3
GROUP BY m.at, m.queue, m.kind
HAVING sum(m.enqueued) + sum(m.done) + sum(m.retried) + sum(m.dead) + sum(m.cancelled) > 0
    OR sum(m.ran_s) > 0
ORDER BY m.at, m.queue, m.kind;

-- name: fold
-- Bring lines of the ledger into counters and minutes, in the order of their keys so that two who
-- fold at once do not block each other for long. How many lines there were.
WITH lines AS (
    DELETE FROM forge.ledger WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM forge.ledger LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING *
),
counted AS (
    INSERT INTO forge.counters AS c (queue, kind, status, jobs)
    SELECT m.queue, m.kind, m.status, sum(m.jobs) FROM (
        SELECT queue, kind, source AS status, -jobs AS jobs FROM lines WHERE source IS NOT NULL
        UNION ALL
        SELECT queue, kind, target, jobs FROM lines WHERE target IS NOT NULL
    ) AS m
    GROUP BY m.queue, m.kind, m.status HAVING sum(m.jobs) <> 0
    ORDER BY m.queue, m.kind, m.status
    ON CONFLICT (queue, kind, status) DO UPDATE SET jobs = c.jobs + EXCLUDED.jobs
),
summed AS (
    INSERT INTO forge.minutes AS m (at, queue, kind, enqueued, done, retried, dead, cancelled, ran_s)
    SELECT s.minute, s.queue, s.kind, s.enqueued, s.done, s.retried, s.dead, s.cancelled, s.ran_s
    FROM (
        SELECT minute, queue, kind,
            COALESCE(sum(jobs) FILTER (WHERE source IS NULL), 0) AS enqueued,
            COALESCE(sum(jobs) FILTER (WHERE target = 'done'), 0) AS done,
            sum(retried) AS retried,
            COALESCE(sum(jobs) FILTER (WHERE target = 'dead'), 0) AS dead,
            COALESCE(sum(jobs) FILTER (WHERE target = 'cancelled'), 0) AS cancelled,
            sum(ran_s) AS ran_s
        FROM lines GROUP BY minute, queue, kind
    ) AS s
    WHERE s.enqueued + s.done + s.retried + s.dead + s.cancelled > 0 OR s.ran_s > 0
    ORDER BY s.minute, s.queue, s.kind
    ON CONFLICT (at, queue, kind) DO UPDATE SET
        enqueued = m.enqueued + EXCLUDED.enqueued, done = m.done + EXCLUDED.done,
        retried = m.retried + EXCLUDED.retried, dead = m.dead + EXCLUDED.dead,
        cancelled = m.cancelled + EXCLUDED.cancelled, ran_s = m.ran_s + EXCLUDED.ran_s
)
SELECT count(*) AS lines FROM lines;

-- name: purge_minutes
-- Forget old minutes. Index: the primary key.
DELETE FROM forge.minutes WHERE (at, queue, kind) IN (
    SELECT at, queue, kind FROM forge.minutes WHERE at < $1
    ORDER BY at, queue, kind LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING 1;
