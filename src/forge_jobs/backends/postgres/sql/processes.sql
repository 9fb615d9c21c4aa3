-- Who is alive. There are few rows here, so that reading them all costs nothing.

-- name: register
-- A new process; whoever bore its name, or the name it replaces, is dead.
WITH buried AS (
    UPDATE forge.processes SET dead = true WHERE NOT dead AND host_id IN ($2, $9)
)
INSERT INTO forge.processes
    (host_id, label, queues, pid, hostname, version, lease_s, started_at, beat_at)
SELECT $2, $3, $4, $5, $6, $7, $8, t.now, t.now FROM (SELECT forge.present($1) AS now) AS t
RETURNING id;

-- name: beat
-- Renew a lease; the dead stay dead. Stays within its page. Index: the primary key.
WITH t AS MATERIALIZED (SELECT forge.present($1) AS now),
renewed AS (
    UPDATE forge.processes p
    SET beat_at = t.now, running = $3, slots = $4, memory_bytes = $5,
        cores = $6, disk_share = $7
    FROM t WHERE p.id = $2 AND NOT p.dead RETURNING 1
)
SELECT t.now, EXISTS (SELECT 1 FROM renewed) AS alive FROM t;

-- name: held_by
-- What a process that leaves still holds. Index: jobs_owner.
SELECT id, epoch FROM forge.jobs WHERE owner = $1 AND status = 'running' ORDER BY id;

-- name: release
-- Hand claims back.
SELECT forge.release($1, $2, $3, $4) AS queues;

-- name: leave
-- The process is gone, with its leaderships and shares. Index: the primary keys.
WITH led AS (DELETE FROM forge.leads WHERE process = $1),
shared AS (DELETE FROM forge.shares WHERE process = $1)
DELETE FROM forge.processes WHERE id = $1;

-- name: bury
-- Forget the dead that own nothing. Index: jobs_owner.
DELETE FROM forge.processes p
WHERE p.dead AND NOT EXISTS (
    SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')
RETURNING 1;

-- name: alive
-- All living processes, by host_id.
SELECT p.*, (
        SELECT json_object_agg(s.queue, json_build_array(s.slots, s.held, s.version))::text
        FROM forge.shares s WHERE s.process = p.id
    ) AS shares
FROM forge.processes p
WHERE NOT p.dead AND p.beat_at + round(p.lease_s * 1000000)::bigint > forge.present($1)
ORDER BY p.host_id, p.id;

-- name: control
-- What operators want of one process. Index: cancels_owner, the primary keys.
SELECT (SELECT version FROM forge.control WHERE id = 1) AS version,
    ARRAY(SELECT job FROM forge.cancels WHERE owner = $1 ORDER BY job) AS cancels,
    COALESCE((SELECT quiet FROM forge.processes WHERE id = $1), false) AS quiet;

-- name: quiet
-- Ask a process to stop or go on claiming.
UPDATE forge.processes p SET quiet = $3
WHERE p.host_id = $2 AND NOT p.dead
    AND p.beat_at + round(p.lease_s * 1000000)::bigint > forge.present($1)
RETURNING 1;

-- name: next_expiry
-- When the next lease of a living process runs out.
SELECT min(e.at) AS at FROM (
    SELECT p.beat_at + round(p.lease_s * 1000000)::bigint AS at
    FROM forge.processes p WHERE NOT p.dead
) AS e WHERE e.at > forge.present($1);

-- name: lead
-- Take or renew a leadership that is free, lapsed or already ours; a lease that reaches much further
-- than ours would is from before the clock was set back. Index: the primary key.
INSERT INTO forge.leads (name, process, until)
SELECT $2, p.id, t.now + round($4::double precision * 1000000)::bigint
FROM (SELECT forge.present($1) AS now) AS t
JOIN forge.processes p ON p.id = $3 AND NOT p.dead
    AND p.beat_at + round(p.lease_s * 1000000)::bigint > t.now
ON CONFLICT (name) DO UPDATE SET process = EXCLUDED.process, until = EXCLUDED.until
WHERE leads.process = EXCLUDED.process OR leads.until <= forge.present($1)
    OR leads.until > EXCLUDED.until + round($4::double precision * 1000000)::bigint
RETURNING 1;

-- name: yield_lead
-- Give a leadership up. Index: the primary key.
DELETE FROM forge.leads WHERE name = $1 AND process = $2;

-- name: share_changes
-- Whether sharing out would change anything; the usual answer is no.
SELECT EXISTS (SELECT 1 FROM forge.share_changes(forge.present($1), $2)) AS changes;

-- name: share
-- Share the slots of all queues out.
SELECT forge.share(forge.present($1), $2, $3) AS changed;

-- name: give_up
-- A process holds less of some queues. Index: the primary key.
WITH kept AS (
    SELECT k.queue, k.version, k.running
    FROM json_to_recordset($2::text::json) AS k(queue text, version integer, running integer)
),
had AS MATERIALIZED (
    SELECT s.queue, s.held, greatest(s.slots, k.running) AS held_on
    FROM forge.shares s JOIN kept k ON k.queue = s.queue AND k.version = s.version
    WHERE s.process = $1 AND s.held > greatest(s.slots, k.running)
    ORDER BY s.queue FOR UPDATE OF s
),
given AS (
    UPDATE forge.shares s SET held = had.held_on FROM had
    WHERE s.process = $1 AND s.queue = had.queue RETURNING had.held - had.held_on AS slots
)
SELECT COALESCE(sum(slots), 0)::bigint AS freed FROM given;
