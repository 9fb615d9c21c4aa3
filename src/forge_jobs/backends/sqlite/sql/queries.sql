-- name: job
-- One job with all columns. Index: primary keys.
SELECT j.id, j.status, j.queue, j.kind, j.priority, j.run_at, j.epoch, j.attempts, j.max_attempts,
       j.enqueued_at, j.owner, j.started_at, j.finished_at, j.options, j.details, j.last_error,
       j.dedupe_key, j.limit_key, j.lane, j.bucket, j.slow_path, j.result,
       coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id = ?1;

-- name: jobs
-- The same for the jobs of a page, newest first. Index: primary keys.
SELECT j.id, j.status, j.queue, j.kind, j.priority, j.run_at, j.epoch, j.attempts, j.max_attempts,
       j.enqueued_at, j.owner, j.started_at, j.finished_at, j.options, j.details, j.last_error,
       j.dedupe_key, j.limit_key, j.lane, j.bucket, j.slow_path, j.result,
       coalesce(j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id))
FROM forge_jobs AS j
WHERE j.id IN (SELECT value FROM json_each(?1))
ORDER BY j.id DESC;

-- name: matching
-- Those of the given jobs that match a filter. Index: primary key.
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
       j.payload, (SELECT b.payload FROM forge_bodies AS b WHERE b.job = j.id)) AS TEXT)), ?10) > 0)
  AND (?11 IS NULL OR j.finished_at >= ?11)
  AND (?12 IS NULL OR j.finished_at < ?12)
  AND (?13 IS NULL OR (j.status = 'running' AND j.owner IN (SELECT value FROM json_each(?13))))
  AND (?14 IS NULL OR j.error_group = ?14)
  AND (?15 IS NULL OR json_extract(j.options, '$.rare.parent') = ?15);

-- name: keys_of_all
-- The next keys of all jobs. Index: primary key.
SELECT id FROM forge_jobs WHERE id < ?1 ORDER BY id DESC LIMIT ?2;

-- name: keys_of_status
-- The next failed, held, suspended, dead or cancelled jobs, of one state. Index: forge_jobs_status.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_status
WHERE indexed_status IS NOT NULL AND indexed_status = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_dedupe_key
-- The next jobs of a dedupe key. Index: forge_jobs_dedupe.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_dedupe
WHERE dedupe_key IS NOT NULL AND dedupe_key = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_parent
-- The next jobs that another job or a schedule made. Index: forge_jobs_parent.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_parent
WHERE instr(options, '"parent"') > 0 AND json_extract(options, '$.rare.parent') = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_error_group
-- The next jobs whose last failed attempt is of an error group. Index: forge_jobs_error_group.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_error_group
WHERE error_group IS NOT NULL AND error_group = ?3 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_running
-- The next running jobs; there are few, so they are sorted. Index: forge_jobs_running.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_due
-- The next jobs of a range of queues that are due later; used only while they are few enough to
-- be sorted, like the two below. Index: forge_jobs_due, covering.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_due
WHERE due_at IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_claimable
-- The next pending jobs that are not on a track. Index: forge_jobs_claim.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_claim
WHERE claimable IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_track
-- The next pending jobs on a track. Index: forge_jobs_track, covering.
SELECT id FROM forge_jobs INDEXED BY forge_jobs_track
WHERE claim_track IS NOT NULL AND queue >= ?3 AND queue <= ?4 AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: keys_of_new
-- The next jobs that are not ingested yet, and therefore not in the claim index. Index: primary
-- key.
SELECT id FROM forge_jobs
WHERE id > (SELECT ingested FROM forge_meta) AND id < ?1
ORDER BY id DESC LIMIT ?2;

-- name: positions_due
-- The next jobs of a queue, by the time when they are due. Index: forge_jobs_due.
SELECT due_at, id FROM forge_jobs INDEXED BY forge_jobs_due
WHERE due_at IS NOT NULL AND queue = ?3 AND due_at >= ?1 AND (due_at, id) > (?1, ?2)
ORDER BY due_at, id LIMIT ?4;

-- name: positions_due_down
-- The same, the latest first. Index: forge_jobs_due.
SELECT due_at, id FROM forge_jobs INDEXED BY forge_jobs_due
WHERE due_at IS NOT NULL AND queue = ?3 AND due_at <= ?1 AND (due_at, id) < (?1, ?2)
ORDER BY due_at DESC, id DESC LIMIT ?4;

-- name: positions_ended
-- The next jobs of a terminal state but done, by their end. Index: forge_jobs_ended.
SELECT finished_at, id FROM forge_jobs INDEXED BY forge_jobs_ended
WHERE indexed_status IS NOT NULL AND finished_at IS NOT NULL AND indexed_status = ?3 AND finished_at >= ?1 AND (finished_at, id) > (?1, ?2)
ORDER BY finished_at, id LIMIT ?4;

-- name: positions_ended_down
-- The same, the latest first. Index: forge_jobs_ended.
SELECT finished_at, id FROM forge_jobs INDEXED BY forge_jobs_ended
WHERE indexed_status IS NOT NULL AND finished_at IS NOT NULL AND indexed_status = ?3 AND finished_at <= ?1 AND (finished_at, id) < (?1, ?2)
ORDER BY finished_at DESC, id DESC LIMIT ?4;

-- name: positions_started
-- The next jobs that run, by their start; there are few, so they are sorted. Index: forge_jobs_running.
SELECT started_at, id FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND started_at IS NOT NULL AND ?3 = '' AND started_at >= ?1 AND (started_at, id) > (?1, ?2)
ORDER BY started_at, id LIMIT ?4;

-- name: positions_started_down
-- The same, the latest first. Index: forge_jobs_running.
SELECT started_at, id FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND started_at IS NOT NULL AND ?3 = '' AND started_at <= ?1 AND (started_at, id) < (?1, ?2)
ORDER BY started_at DESC, id DESC LIMIT ?4;

-- name: peek
-- State and result of jobs whose callers wait. Index: primary key.
SELECT id, status, enqueued_at, result, last_error FROM forge_jobs
WHERE id IN (SELECT value FROM json_each(?1));

-- name: enqueued_at
-- When jobs were enqueued, to tell a forged id from a real one. Index: primary key.
SELECT id, enqueued_at FROM forge_jobs WHERE id IN (SELECT value FROM json_each(?1));

-- name: owned
-- All running jobs of a process. Index: forge_jobs_running.
SELECT id, epoch, exchange, started_at IS NOT NULL FROM forge_jobs INDEXED BY forge_jobs_running
WHERE status = 'running' AND owner = ?1
ORDER BY id;

-- name: logs
-- The log lines of a job, oldest first. Index: forge_logs_job.
SELECT at, level, message FROM forge_logs WHERE job = ?1 ORDER BY id;

-- name: tracebacks
-- The tracebacks of a job, oldest first. Index: its primary key.
SELECT at, attempt, traceback FROM forge_tracebacks WHERE job = ?1 ORDER BY epoch;

-- name: any_orphan
-- Whether a running job has no live owner. Index: forge_jobs_running, read once.
SELECT EXISTS (
    SELECT 1 FROM forge_jobs INDEXED BY forge_jobs_running
    WHERE status = 'running' AND owner NOT IN (SELECT value FROM json_each(?1))
);

-- name: past_retention
-- Terminal jobs past the retention of their queue, oldest key first; with a queue as last value,
-- those of that queue past the given retention, whatever its settings are. The scan ends at the
-- first key of the jobs that are too young for any retention, so it only skips old jobs with a
-- longer retention. Index: primary key.
SELECT json_group_array(id)
FROM (
    SELECT j.id
    FROM forge_jobs AS j LEFT JOIN forge_queues AS q ON q.name = j.queue
    WHERE j.id < ?2
      AND (?7 IS NULL OR j.queue = ?7)
      AND j.finished_at IS NOT NULL
      AND j.finished_at <= ?1 - CAST(1000000 * CASE j.status
          WHEN 'done' THEN
              CASE WHEN q.name IS NULL OR ?7 IS NOT NULL THEN ?3 ELSE q.retain_done_s END
          WHEN 'dead' THEN
              CASE WHEN q.name IS NULL OR ?7 IS NOT NULL THEN ?4 ELSE q.retain_dead_s END
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

-- name: key_range
-- The lowest and the highest key. Index: primary key.
SELECT (SELECT min(id) FROM forge_jobs), (SELECT max(id) FROM forge_jobs);

-- name: at_or_after
-- The first job at or above a key, for a binary search by time: keys rise with time. Index: primary
-- key.
SELECT id, enqueued_at FROM forge_jobs WHERE id >= ?1 ORDER BY id LIMIT 1;

-- name: shortest_retention
-- The shortest retention of any queue for any terminal state.
SELECT min(s) FROM (
    SELECT retain_done_s AS s FROM forge_queues
    UNION ALL SELECT retain_dead_s FROM forge_queues
    UNION ALL SELECT retain_cancelled_s FROM forge_queues
);

-- name: any_expired_key
-- Whether a dedupe key can be deleted. Index: forge_dedupe_until.
SELECT EXISTS (SELECT 1 FROM forge_dedupe WHERE until IS NOT NULL AND until <= ?1);
