-- name: sharers
-- All processes whose holdings count: those nobody declared dead, and dead ones that still own a
-- running job. A handful. Index: forge_jobs_busy.
SELECT id, host_id, queues, quiet, dead_at IS NOT NULL
FROM forge_processes AS p
WHERE dead_at IS NULL
   OR EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id);

-- name: shares
-- What every process has of every queue.
SELECT process, queue, slots, held, version FROM forge_shares;

-- name: totals
-- The slots of all queues with settings.
SELECT name, slots FROM forge_queues ORDER BY name;

-- name: grant
-- A share as it is from now on. Index: primary key.
INSERT INTO forge_shares (process, queue, slots, held, version) VALUES (?1, ?2, ?3, ?4, 1)
ON CONFLICT (process, queue) DO UPDATE
SET slots = excluded.slots, held = excluded.held, version = version + 1;

-- name: held
-- What a process holds of a queue, if it follows that version. Index: primary key.
SELECT slots, held FROM forge_shares WHERE process = ?1 AND queue = ?2 AND version = ?3;

-- name: hold
-- A process holds less. Index: primary key.
UPDATE forge_shares SET held = ?3 WHERE process = ?1 AND queue = ?2;

-- name: drop_shares
-- A process is gone. Index: primary key.
DELETE FROM forge_shares WHERE process = ?1;

-- name: drop_lost_shares
-- What is left of processes that are gone, or dead without a running job. Index: forge_jobs_busy.
DELETE FROM forge_shares WHERE NOT EXISTS (
    SELECT 1 FROM forge_processes AS p
    WHERE p.id = forge_shares.process
      AND (p.dead_at IS NULL
           OR EXISTS (SELECT 1 FROM forge_jobs AS j WHERE j.status = 'running' AND j.owner = p.id))
);
