-- Steps, events and waits. Most writes are calls of functions (functions/steps_v1.sql, functions/events_v1.sql).

-- name: steps
-- Steps of a job by name, behind a name; with $6 only those named. $2 is when the job was enqueued, in milliseconds. The
-- length of a value is known without reading it. Index: the primary keys.
SELECT s.name, s.kind, s.epoch, s.began_at, s.ended_at, CASE WHEN $5 THEN s.value END AS value, s.fingerprint,
    COALESCE(octet_length(s.value), 0) AS size
FROM forge.steps s
WHERE s.job = $1 AND s.name > $3 AND ($6::text[] IS NULL OR s.name = ANY ($6)) AND $2 = (
    SELECT r.enqueued_at / 1000 FROM (
        SELECT id, enqueued_at FROM forge.jobs UNION ALL SELECT id, enqueued_at FROM forge.history) AS r
    WHERE r.id = $1)
ORDER BY s.name LIMIT $4;

-- name: step_began
-- When a step began. Index: the primary key.
SELECT began_at FROM forge.steps WHERE job = $1 AND name = $2;

-- name: delete_steps_from
-- Deletes the steps of a job that began at an instant or later. Index: the primary key.
DELETE FROM forge.steps WHERE job = $1 AND began_at >= $2;

-- name: send
-- Stores events and resumes the jobs that wait for them.
SELECT duplicates, taken, queues FROM forge.send_v1($1, $2, $3, $4, $5, $6, $7);

-- name: deliver
-- Resumes jobs that wait for open events.
SELECT resumed, queues FROM forge.deliver_open_v1(forge.store_now_v1($1), $2);

-- name: sweep_waits
-- The safety net: opens events again that a job still waits for.
SELECT last_topic, last_job FROM forge.sweep_waits_v1($1, $2, $3);

-- name: undelivered_events
-- Events of users' own transactions that have no place yet, the newest first: of a range of topics. Index: events_open.
SELECT NULL::bigint AS seq, topic, at, ends_at, payload FROM forge.events
WHERE open AND seq < 0 AND topic >= $1 AND topic < $2
ORDER BY seq LIMIT $3;

-- name: events
-- Events by place, the newest first: of a range of topics. Index: the primary key or events_topic.
SELECT seq, topic, at, ends_at, payload FROM forge.events
WHERE topic >= $1 AND topic < $2 AND seq > 0 AND seq < $4
ORDER BY seq DESC LIMIT $3;

-- name: waits
-- What suspended jobs wait for, of a range of topics, behind a topic and job. Index: the primary keys.
SELECT w.topic, w.job, w.step, w.began_at, w.deadline, j.kind, j.queue, j.enqueued_at
FROM forge.waits w JOIN forge.jobs j ON j.id = w.job
WHERE w.topic >= $1 AND w.topic < $2 AND (w.topic, w.job) > ($3 COLLATE "C", $4)
ORDER BY w.topic, w.job LIMIT $5;

-- name: waits_of_job
-- The same for one job. Index: waits_job.
SELECT w.topic, w.job, w.step, w.began_at, w.deadline, j.kind, j.queue, j.enqueued_at
FROM forge.waits w JOIN forge.jobs j ON j.id = w.job
WHERE w.job = $6 AND w.topic >= $1 AND w.topic < $2 AND (w.topic, w.job) > ($3 COLLATE "C", $4)
ORDER BY w.topic, w.job LIMIT $5;

-- name: delete_ended_events
-- Deletes events that are kept no longer, unless jobs wait for them. Index: events_ended.
DELETE FROM forge.events e WHERE e.ctid = ANY (ARRAY(
    SELECT v.ctid FROM forge.events v WHERE v.ends_at <= $1 AND v.open IS NOT TRUE
    ORDER BY v.ends_at LIMIT $2 FOR UPDATE SKIP LOCKED));
