-- name: processes
-- Processes whose held slots count: those not declared dead, and dead ones that still own a running
-- job. A handful. Index: forge_jobs_running.
SELECT id, host_id, queues, quiet, dead_at IS NOT NULL
FROM forge_processes AS p
WHERE dead_at IS NULL
   OR EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id);

-- name: shares
-- The share of every process of every queue.
SELECT process, queue, slots, held, version FROM forge_shares;

-- name: queue_slots
-- The slots of all queues with settings.
SELECT name, slots FROM forge_queues ORDER BY name;

-- name: put_share
-- Writes a share. Index: primary key.
INSERT INTO forge_shares (process, queue, slots, held, version) VALUES (?1, ?2, ?3, ?4, 1)
ON CONFLICT (process, queue) DO UPDATE
SET slots = excluded.slots, held = excluded.held, version = version + 1;

-- name: share_of
-- The share of a process in a queue, if the process knows that version. Index: primary key.
SELECT slots, held FROM forge_shares WHERE process = ?1 AND queue = ?2 AND version = ?3;

-- name: set_held
-- A process holds fewer slots. Index: primary key.
UPDATE forge_shares SET held = ?3 WHERE process = ?1 AND queue = ?2;

-- name: delete_shares
-- Deletes the shares of a process. Index: primary key.
DELETE FROM forge_shares WHERE process = ?1;

-- name: delete_orphaned_shares
-- Deletes the shares of processes that are gone, or dead without a running job. Index:
-- forge_jobs_running.
DELETE FROM forge_shares WHERE NOT EXISTS (
    SELECT 1 FROM forge_processes AS p
    WHERE p.id = forge_shares.process
      AND (p.dead_at IS NULL
           OR EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id))
);
