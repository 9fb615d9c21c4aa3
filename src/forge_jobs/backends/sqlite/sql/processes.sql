-- name: register
-- A new worker process; its key is the owner of its claims.
INSERT INTO forge_processes (host_id, label, queues, pid, hostname, version, lease_s, started_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: condemn_host
-- A process is declared dead: somebody saw it die, or it begins a new life. Index: forge_processes_host.
UPDATE forge_processes SET dead_at = ?2 WHERE host_id = ?1 AND dead_at IS NULL;

-- name: condemn
-- Processes without a sign of life are declared dead. Index: primary key.
UPDATE forge_processes SET dead_at = ?2
WHERE id IN (SELECT value FROM json_each(?1)) AND dead_at IS NULL;

-- name: standing
-- Processes that nobody declared dead; a handful.
SELECT id, host_id FROM forge_processes WHERE dead_at IS NULL ORDER BY host_id;

-- name: records
-- The same as people read them.
SELECT id, host_id, label, queues, pid, hostname, version, lease_s, started_at, quiet
FROM forge_processes WHERE dead_at IS NULL ORDER BY host_id;

-- name: of_host
-- The process behind a host id. Index: forge_processes_host.
SELECT id FROM forge_processes WHERE host_id = ?1 AND dead_at IS NULL;

-- name: host_of
-- The host id behind a key, unless it was declared dead. Index: primary key.
SELECT host_id FROM forge_processes WHERE id = ?1 AND dead_at IS NULL;

-- name: leave
-- The process is gone. Index: primary key.
DELETE FROM forge_processes WHERE id = ?1;

-- name: leave_leads
-- With everything it led.
DELETE FROM forge_leads WHERE process = ?1;

-- name: leave_cancels
-- And every request to it. Index: primary key.
DELETE FROM forge_cancels WHERE owner = ?1;

-- name: buried
-- Dead processes that own nothing any more. Index: forge_jobs_busy.
SELECT id, host_id FROM forge_processes AS p
WHERE dead_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id);

-- name: set_quiet
-- An operator asks a process to stop or go on claiming. Index: primary key.
UPDATE forge_processes SET quiet = ?2 WHERE id = ?1;

-- name: control
-- What operators want of a process. Index: primary keys.
SELECT control_version,
       (SELECT json_group_array(job) FROM forge_cancels WHERE owner = ?1),
       coalesce((SELECT quiet FROM forge_processes WHERE id = ?1 AND dead_at IS NULL), 0)
FROM forge_marks;

-- name: take_lead
-- A leadership is taken or renewed unless another process holds it; a lease that reaches much
-- further than ours would is from before the clock was set back. Index: primary key.
INSERT INTO forge_leads (name, process, until) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET process = excluded.process, until = excluded.until
WHERE forge_leads.process = excluded.process OR forge_leads.until <= ?4
   OR forge_leads.until > 2 * excluded.until - ?4;

-- name: drop_lead
-- A leadership is given up. Index: primary key.
DELETE FROM forge_leads WHERE name = ?1 AND process = ?2;
