-- name: register
-- Registers a worker process; its key is the owner of its claims.
INSERT INTO forge_processes
    (host_id, label, queues, pid, hostname, version, lease_s, started_at, signatures)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: mark_host_dead
-- Declares the process of a host id dead: it was seen to exit, or it registers again. Index:
-- forge_processes_host.
UPDATE forge_processes SET dead_at = ?2 WHERE host_id = ?1 AND dead_at IS NULL;

-- name: mark_dead
-- Declares processes dead whose liveness file is unlocked or expired. Index: primary key.
UPDATE forge_processes SET dead_at = ?2
WHERE id IN (SELECT value FROM json_each(?1)) AND dead_at IS NULL;

-- name: presumed_alive
-- Processes that are not declared dead; a handful.
SELECT id, host_id FROM forge_processes WHERE dead_at IS NULL ORDER BY host_id;

-- name: records
-- The same with all columns.
SELECT id, host_id, label, queues, pid, hostname, version, lease_s, started_at, quiet
FROM forge_processes WHERE dead_at IS NULL ORDER BY host_id;

-- name: signatures
-- What each process published about one kind; those without it are left out.
SELECT p.id, p.host_id, p.queues, s.value
FROM forge_processes p JOIN json_each(p.signatures) AS s ON s.key = ?1
WHERE p.dead_at IS NULL ORDER BY p.id;

-- name: key_of_host
-- The key of a host id. Index: forge_processes_host.
SELECT id FROM forge_processes WHERE host_id = ?1 AND dead_at IS NULL;

-- name: host_of_key
-- The host id of a key, unless the process was declared dead. Index: primary key.
SELECT host_id FROM forge_processes WHERE id = ?1 AND dead_at IS NULL;

-- name: delete_process
-- Deletes a registration. Index: primary key.
DELETE FROM forge_processes WHERE id = ?1;

-- name: delete_leads
-- Deletes its leaderships.
DELETE FROM forge_leads WHERE process = ?1;

-- name: delete_cancels
-- Deletes the cancel requests for its jobs. Index: primary key.
DELETE FROM forge_cancels WHERE owner = ?1;

-- name: dead_without_jobs
-- Dead processes that own no running job. Index: forge_jobs_running.
SELECT id, host_id FROM forge_processes AS p
WHERE dead_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id);

-- name: set_quiet
-- An operator asks a process to stop or resume claiming. Index: primary key.
UPDATE forge_processes SET quiet = ?2 WHERE id = ?1;

-- name: control
-- What operators ask of a process: control version, cancel requests, quiet. Index: primary keys.
SELECT control_version,
       (SELECT json_group_array(job) FROM forge_cancels WHERE owner = ?1),
       coalesce((SELECT quiet FROM forge_processes WHERE id = ?1 AND dead_at IS NULL), 0)
FROM forge_meta;

-- name: take_lead
-- Takes or renews a leadership unless another process holds it. A lease that reaches much further
-- than ours would was written before the clock was set back. Index: primary key.
INSERT INTO forge_leads (name, process, until) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET process = excluded.process, until = excluded.until
WHERE forge_leads.process = excluded.process OR forge_leads.until <= ?4
   OR forge_leads.until > 2 * excluded.until - ?4;

-- name: release_lead
-- Releases a leadership. Index: primary key.
DELETE FROM forge_leads WHERE name = ?1 AND process = ?2;
