-- name: current_claims
-- Those of these jobs that a process runs, with their epochs. The unary plus keeps the planner on
-- the primary key.
SELECT json_group_array(json_array(id, epoch)) FROM forge_jobs
WHERE id IN (SELECT value FROM json_each(?1)) AND +owner = ?2 AND +status = 'running';

-- name: find_steps
-- The stored ones of these steps, given as pairs of job and name. Index: primary key.
SELECT s.job, s.name, s.kind, s.epoch, s.began_at, s.ended_at, s.value, s.fingerprint,
       coalesce(length(s.value), 0)
FROM json_each(?1) AS w
CROSS JOIN forge_steps AS s ON s.job = json_extract(w.value, '$[0]')
                           AND s.name = json_extract(w.value, '$[1]');

-- name: first_steps
-- Steps of a job in the order of their names. Index: primary key, read in order.
SELECT job, name, kind, epoch, began_at, ended_at, value, fingerprint, coalesce(length(value), 0)
FROM forge_steps
WHERE job = ?1
ORDER BY name LIMIT ?2;

-- name: steps_of_jobs
-- Likewise of several jobs. Index: primary key, read in order.
SELECT job, name, kind, epoch, began_at, ended_at, value, fingerprint, coalesce(length(value), 0)
FROM forge_steps
WHERE job IN (SELECT value FROM json_each(?1))
ORDER BY job, name LIMIT ?2;

-- name: page_of_steps
-- A page of the steps of a job; without values if the last parameter is 0. Index: primary key, read
-- in order.
SELECT name, kind, epoch, began_at, ended_at, CASE WHEN ?4 THEN value END, fingerprint,
       coalesce(length(value), 0)
FROM forge_steps
WHERE job = ?1 AND name > ?2
ORDER BY name LIMIT ?3;

-- name: named_steps
-- Those with these names. Index: primary key.
SELECT name, kind, epoch, began_at, ended_at, CASE WHEN ?4 THEN value END, fingerprint,
       coalesce(length(value), 0)
FROM forge_steps
WHERE job = ?1 AND name > ?2 AND name IN (SELECT value FROM json_each(?5))
ORDER BY name LIMIT ?3;

-- name: jobs_with_steps
-- Those of these jobs that have steps. Index: primary key, one entry per job.
SELECT json_group_array(w.value) FROM json_each(?1) AS w
WHERE EXISTS (SELECT 1 FROM forge_steps AS s WHERE s.job = w.value);

-- name: add_steps
-- New steps; the row of values is repeated per step.
INSERT INTO forge_steps (job, name, kind, epoch, began_at, ended_at, fingerprint, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_steps_of
-- The steps of a job that began at an instant or later. Index: primary key.
DELETE FROM forge_steps WHERE job = ?1 AND began_at >= ?2;

-- name: delete_steps
-- The steps of deleted jobs. Index: primary key.
DELETE FROM forge_steps WHERE job IN (SELECT value FROM json_each(?1));

-- name: delete_waits
-- The waits of jobs that are not suspended any more. Index: forge_waits_job.
DELETE FROM forge_waits WHERE job IN (SELECT value FROM json_each(?1));

-- name: delete_wait
-- The waits of one job. Index: forge_waits_job.
DELETE FROM forge_waits WHERE job = ?1;

-- name: add_wait
-- One topic of a wait. A job that names a topic twice waits for it once.
INSERT OR REPLACE INTO forge_waits (topic, job, epoch, step, began_at, after, since, deadline)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: waits_of
-- The waits of these jobs. Index: forge_waits_job.
SELECT job, epoch, step, began_at, deadline, topic, after, since
FROM forge_waits INDEXED BY forge_waits_job
WHERE job IN (SELECT value FROM json_each(?1));

-- name: waiting_for
-- The first jobs with a wait that may take an event. Index: primary key, read in order.
SELECT json_group_array(job) FROM (
    SELECT job FROM forge_waits
    WHERE topic = ?1 AND after < ?2 AND since <= ?3 AND began_at <= ?4
    ORDER BY job LIMIT ?5
);

-- name: first_event
-- The oldest event that a topic of a wait takes. Index: forge_events_topic, read in order.
SELECT seq, topic, sent_at, ends_at, payload FROM forge_events INDEXED BY forge_events_topic
WHERE topic = ?1 AND seq > ?2 AND sent_at >= ?3 AND ends_at >= ?4 AND (?5 IS NULL OR sent_at <= ?5)
ORDER BY seq LIMIT 1;

-- name: add_event
-- A new event; the table draws its number.
INSERT INTO forge_events (topic, sent_at, ends_at, is_open, payload) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: take_event_key
-- Takes a dedupe key until the end of its event, if it is free. Index: primary key.
INSERT INTO forge_dedupe (kind, key, job, until) VALUES (?1, ?2, 0, ?3)
ON CONFLICT (kind, key) DO UPDATE SET until = excluded.until WHERE until <= ?4;

-- name: open_events
-- The oldest events that are not delivered to all jobs. Index: forge_events_open, read in order.
SELECT seq, topic, sent_at, ends_at, payload FROM forge_events INDEXED BY forge_events_open
WHERE is_open IS NOT NULL
ORDER BY is_open, seq LIMIT ?1;

-- name: set_open
-- Marks an event as open, or as delivered. Index: primary key.
UPDATE forge_events SET is_open = ?2 WHERE seq = ?1;

-- name: any_ended_event
-- Whether an event can be deleted. Index: forge_events_end.
SELECT EXISTS (SELECT 1 FROM forge_events INDEXED BY forge_events_end
               WHERE ends_at <= ?1 AND is_open IS NULL);

-- name: delete_ended_events
-- Events that are delivered and kept no longer. Index: forge_events_end.
DELETE FROM forge_events WHERE seq IN (
    SELECT seq FROM forge_events INDEXED BY forge_events_end
    WHERE ends_at <= ?1 AND is_open IS NULL LIMIT ?2
);

-- name: set_payload
-- The payload of a job that restarts; NULL if it is in forge_bodies. Index: primary key.
UPDATE forge_jobs SET payload = ?2 WHERE id = ?1;

-- name: set_body
-- Its large payload.
INSERT OR REPLACE INTO forge_bodies (job, payload) VALUES (?1, ?2);

-- name: delete_body
-- Its former large payload. Index: primary key.
DELETE FROM forge_bodies WHERE job = ?1;

-- name: queues_waiting
-- Some queues whose jobs wait for a topic. Index: primary keys.
SELECT DISTINCT j.queue
FROM (SELECT job FROM forge_waits WHERE topic = ?1 LIMIT 100) AS w
CROSS JOIN forge_jobs AS j ON j.id = w.job;

-- name: page_of_events
-- The newest events. Index: primary key, read in order.
SELECT topic, sent_at, ends_at, payload, seq FROM forge_events
WHERE seq < ?1
ORDER BY seq DESC LIMIT ?2;

-- name: events_of_topic
-- The newest events of a topic. Index: forge_events_topic, read in order.
SELECT topic, sent_at, ends_at, payload, seq FROM forge_events INDEXED BY forge_events_topic
WHERE seq < ?1 AND topic = ?3
ORDER BY seq DESC LIMIT ?2;

-- name: events_of_name
-- The newest events of a name, a range of topics: only their numbers are sorted. Index:
-- forge_events_topic, covering.
SELECT e.topic, e.sent_at, e.ends_at, e.payload, e.seq
FROM (SELECT seq FROM forge_events INDEXED BY forge_events_topic
      WHERE topic >= ?3 AND topic < ?4 AND seq < ?1
      ORDER BY seq DESC LIMIT ?2) AS n
CROSS JOIN forge_events AS e ON e.seq = n.seq
ORDER BY e.seq DESC;

-- name: page_of_waits
-- What jobs wait for, in a range of topics, after a topic and job. Index: primary keys, read in
-- order.
SELECT w.job, j.enqueued_at, j.kind, j.queue, w.topic, w.step, w.began_at, w.deadline
FROM forge_waits AS w CROSS JOIN forge_jobs AS j ON j.id = w.job
WHERE w.topic >= ?1 AND w.topic < ?2 AND (w.topic, w.job) > (?3, ?4)
ORDER BY w.topic, w.job LIMIT ?5;

-- name: waits_of_job
-- The same for one job. Index: forge_waits_job, primary key.
SELECT w.job, j.enqueued_at, j.kind, j.queue, w.topic, w.step, w.began_at, w.deadline
FROM forge_waits AS w INDEXED BY forge_waits_job CROSS JOIN forge_jobs AS j ON j.id = w.job
WHERE w.job = ?6 AND w.topic >= ?1 AND w.topic < ?2 AND (w.topic, w.job) > (?3, ?4)
ORDER BY w.topic LIMIT ?5;
