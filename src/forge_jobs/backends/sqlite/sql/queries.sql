-- name: job
-- One job, whole. Index: primary keys.
SELECT j.id, j.status, j.queue, j.kind, j.priority, j.run_at, j.epoch, j.attempts, j.max_attempts,
       j.enqueued_at, j.owner, j.started_at, j.finished_at, j.options, j.state, j.last_error,
       j.dedupe_key, j.limit_key, j.lane, j.lot, j.result,
       coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id = ?1;

-- name: jobs
-- The same for the jobs of a page, newest first. Index: primary keys.
SELECT j.id, j.status, j.queue, j.kind, j.priority, j.run_at, j.epoch, j.attempts, j.max_attempts,
       j.enqueued_at, j.owner, j.started_at, j.finished_at, j.options, j.state, j.last_error,
       j.dedupe_key, j.limit_key, j.lane, j.lot, j.result,
       coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id IN (SELECT value FROM json_each(?1))
ORDER BY j.id DESC;

-- name: which
-- Which of these jobs match a filter. Index: primary key.
SELECT j.id, j.last_error,
       CASE WHEN ?10 IS NULL THEN NULL ELSE coalesce(
           j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id)) END
FROM json_each(?1) AS k CROSS JOIN forge_jobs AS j ON j.id = k.value
WHERE (?2 IS NULL OR j.queue = ?2)
  AND (?3 IS NULL OR j.kind = ?3)
  AND (?4 IS NULL OR j.status IN (SELECT value FROM json_each(?4)))
  AND (?5 IS NULL OR (j.options IS NOT NULL
       AND EXISTS (SELECT 1 FROM json_each(j.options, '$.tags') WHERE value = ?5)))
  AND (?6 IS NULL OR j.dedupe_key = ?6)
  AND (?7 IS NULL OR instr(j.last_error, ?7) > 0)
  AND (?8 IS NULL OR j.enqueued_at >= ?8)
  AND (?9 IS NULL OR j.enqueued_at < ?9)
  AND (?10 IS NULL OR instr(lower(CAST(coalesce(
       j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id)) AS TEXT)), ?10) > 0);

-- name: keys_of_all
-- The next keys, whatever the jobs are. Index: primary key.
SELECT id FROM forge_jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2;

-- name: keys_of_odd
-- The next failed, held, dead or cancelled jobs, of one state. Index: forge_jobs_odd.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_odd
WHERE odd IS NOT NULL AND odd = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_key
-- The next jobs of a dedupe key. Index: forge_jobs_dedupe.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_dedupe
WHERE dedupe_key IS NOT NULL AND dedupe_key = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_running
-- The next running jobs; there are few, so they are sorted. Index: forge_jobs_busy.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_busy
WHERE status = 'running' AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_due
-- The next jobs that wait for their time, of a range of queues; asked only while they are few enough
-- to be sorted, as the two below. Index: forge_jobs_due alone.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_due
WHERE due_at IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_line
-- The next jobs in line. Index: forge_jobs_claim.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_claim
WHERE line IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_side
-- The next jobs in lines of their own. Index: forge_jobs_side alone.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_side
WHERE side IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_new
-- The next jobs that are not folded yet, and therefore in no line. Index: primary key.
SELECT id FROM forge_jobs
WHERE id > (SELECT folded FROM forge_marks) AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: peek
-- State and result of jobs that somebody waits for. Index: primary key.
SELECT id, status, enqueued_at, result, last_error FROM forge_jobs
WHERE id IN (SELECT value FROM json_each(?1));

-- name: enqueued_at
-- When a job was enqueued, to tell a made-up id from a real one. Index: primary key.
SELECT id, enqueued_at FROM forge_jobs WHERE id IN (SELECT value FROM json_each(?1));

-- name: owned
-- All running jobs of a process. Index: forge_jobs_busy.
SELECT id, epoch, exchange, started_at IS NOT NULL FROM forge_jobs INDEXED BY forge_jobs_busy
WHERE status = 'running' AND owner = ?1
ORDER BY id;

-- name: logs
-- What the handlers of a job wrote, oldest first. Index: forge_logs_job.
SELECT at, level, message FROM forge_logs WHERE job = ?1 ORDER BY id;

-- name: any_orphan
-- Whether a running job belongs to nobody alive. Index: forge_jobs_busy, read once.
SELECT EXISTS (
    SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_busy
    WHERE status = 'running' AND owner NOT IN (SELECT value FROM json_each(?1))
);

-- name: past_retention
-- Ended jobs past what their queue keeps, oldest key first; with a queue in the last place, those of
-- that queue past what is given, whatever its settings say. The walk ends at the first key of the
-- jobs that are too young for any retention, so it passes over old jobs that are kept longer and
-- nothing else. Index: primary key.
SELECT json_group_array(id)
FROM (
    SELECT j.id
    FROM forge_jobs AS j LEFT JOIN forge_queues AS q ON q.name = j.queue
    WHERE j.id < ?2
      AND (?7 IS NULL OR j.queue = ?7)
      AND j.finished_at IS NOT NULL
      AND j.finished_at <= ?1 - CAST(1000000 * CASE j.status
          WHEN 'done' THEN CASE WHEN q.name IS NULL OR ?7 IS NOT NULL THEN ?3 ELSE q.retain_done_s END
          WHEN 'dead' THEN CASE WHEN q.name IS NULL OR ?7 IS NOT NULL THEN ?4 ELSE q.retain_dead_s END
          ELSE CASE WHEN q.name IS NULL OR ?7 IS NOT NULL THEN ?5 ELSE q.retain_cancelled_s END
      END AS INTEGER)
      AND (j.dedupe_key IS NULL OR NOT EXISTS (
          SELECT 1 FROM forge_dedupe AS d
          WHERE d.kind = j.kind AND d.key = j.dedupe_key AND d.job = j.id
            AND (d.until IS NULL OR d.until > ?1)
      ))
    ORDER BY j.id
    LIMIT ?6
);

-- name: ends
-- The lowest and the highest key. Index: primary key.
SELECT (SELECT min(id) FROM forge_jobs), (SELECT max(id) FROM forge_jobs);

-- name: at_or_after
-- The next job from a key on, to search for a moment: keys rise with time. Index: primary key.
SELECT id, enqueued_at FROM forge_jobs WHERE id >= ?1 ORDER BY id LIMIT 1;

-- name: shortest_retention
-- The shortest time that any queue keeps any ended job.
SELECT min(s) FROM (
    SELECT retain_done_s AS s FROM forge_queues
    UNION ALL SELECT retain_dead_s FROM forge_queues
    UNION ALL SELECT retain_cancelled_s FROM forge_queues
);

-- name: any_lapsed
-- Whether a dedupe key may be forgotten. Index: forge_dedupe_until.
SELECT EXISTS (SELECT 1 FROM forge_dedupe WHERE until IS NOT NULL AND until <= ?1);
