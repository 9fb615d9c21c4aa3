-- Registrations, leases, leaderships and slot shares. These tables have few rows, so that reading them all is cheap.

-- name: register
-- A new process. An older registration with its name, or with the name it replaces, is declared dead.
WITH replaced AS (
    UPDATE forge.processes SET dead = true WHERE NOT dead AND host_id IN ($2, $9)
)
INSERT INTO forge.processes
    (host_id, label, queues, pid, hostname, version, lease_s, signatures, machine, started_at, heartbeat_at)
SELECT $2, $3, $4, $5, $6, $7, $8, $10, $11, t.now, t.now FROM (SELECT forge.store_now_v1($1) AS now) AS t
RETURNING id;

-- name: heartbeat
-- Renews a lease; a process that was declared dead stays dead. A HOT update within one page. Index: the primary key.
WITH t AS MATERIALIZED (SELECT forge.store_now_v1($1) AS now),
renewed AS (
    UPDATE forge.processes p
    SET heartbeat_at = t.now, running = $3, slots = $4, memory_bytes = $5,
        cores = $6, disk_share = $7
    FROM t WHERE p.id = $2 AND NOT p.dead RETURNING 1
)
SELECT t.now, EXISTS (SELECT 1 FROM renewed) AS alive FROM t;

-- name: places
-- Where living processes run, and when they will have missed a heartbeat: they send five per lease.
SELECT p.id, p.machine, p.heartbeat_at + round(p.lease_s / 3 * 1000000)::bigint AS silent_at
FROM forge.processes p WHERE NOT p.dead AND p.machine IS NOT NULL;

-- name: declare_dead
-- Declares processes dead that ended without deregistering. Index: the primary key.
UPDATE forge.processes SET dead = true WHERE id = ANY ($1::bigint[]) AND NOT dead;

-- name: claims_of
-- The claims that a process still holds at its shutdown. Index: jobs_owner.
SELECT id, epoch FROM forge.jobs WHERE owner = $1 AND status = 'running' ORDER BY id + 0;

-- name: release_claims
-- Releases claims.
SELECT forge.release_claims_v1($1, $2, $3, $4) AS queues;

-- name: deregister
-- Deletes a process with its leaderships and slot shares. Index: the primary keys.
WITH leaderships AS (DELETE FROM forge.leaderships WHERE process = $1),
shares AS (DELETE FROM forge.slot_shares WHERE process = $1)
DELETE FROM forge.processes WHERE id = $1;

-- name: delete_dead
-- Deletes dead processes that own no running job. Index: jobs_owner.
DELETE FROM forge.processes p
WHERE p.dead AND NOT EXISTS (
    SELECT 1 FROM forge.jobs j WHERE j.owner = p.id AND j.status = 'running')
RETURNING 1;

-- name: alive
-- All living processes, by host_id.
SELECT p.id, p.host_id, p.label, p.queues, p.pid, p.hostname, p.version, p.lease_s, p.started_at,
    p.heartbeat_at, p.running, p.slots, p.memory_bytes, p.cores, p.disk_share, p.quiet, (
        SELECT json_object_agg(s.queue, json_build_array(s.slots, s.held, s.version))::text
        FROM forge.slot_shares s WHERE s.process = p.id
    ) AS shares
FROM forge.processes p
WHERE NOT p.dead AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > forge.store_now_v1($1)
ORDER BY p.host_id, p.id;

-- name: signatures
-- What each living process published about one kind; those without it are left out.
SELECT p.id, p.queues, p.signatures::jsonb ->> $2 AS signature
FROM forge.processes p
WHERE NOT p.dead AND p.signatures::jsonb -> $2 IS NOT NULL
    AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > forge.store_now_v1($1)
ORDER BY p.id;

-- name: control
-- Control version, cancel requests and the quiet flag for one process. Index: cancel_requests_owner, the primary keys.
SELECT (SELECT version FROM forge.control WHERE id = 1) AS version,
    ARRAY(SELECT job FROM forge.cancel_requests WHERE owner = $1 ORDER BY job) AS cancels,
    COALESCE((SELECT quiet FROM forge.processes WHERE id = $1), false) AS quiet;

-- name: set_quiet
-- Asks a process to stop or resume claiming.
UPDATE forge.processes p SET quiet = $3
WHERE p.host_id = $2 AND NOT p.dead
    AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > forge.store_now_v1($1)
RETURNING 1;

-- name: next_expiry
-- When the next lease of a living process expires.
SELECT min(e.at) AS at FROM (
    SELECT p.heartbeat_at + round(p.lease_s * 1000000)::bigint AS at
    FROM forge.processes p WHERE NOT p.dead
) AS e WHERE e.at > forge.store_now_v1($1);

-- name: acquire_leadership
-- Acquires or renews a leadership that is free, expired, of a dead process or already held by this process. A lease that ends much later
-- than a new one would is from before the clock was set back. Index: the primary key.
INSERT INTO forge.leaderships (name, process, until)
SELECT $2, p.id, t.now + round($4::double precision * 1000000)::bigint
FROM (SELECT forge.store_now_v1($1) AS now) AS t
JOIN forge.processes p ON p.id = $3 AND NOT p.dead
    AND p.heartbeat_at + round(p.lease_s * 1000000)::bigint > t.now
ON CONFLICT (name) DO UPDATE SET process = EXCLUDED.process, until = EXCLUDED.until
WHERE leaderships.process = EXCLUDED.process OR leaderships.until <= forge.store_now_v1($1)
    OR NOT EXISTS (SELECT 1 FROM forge.processes h WHERE h.id = leaderships.process AND NOT h.dead)
    OR leaderships.until > EXCLUDED.until + round($4::double precision * 1000000)::bigint
RETURNING 1;

-- name: release_leadership
-- Releases a leadership. Index: the primary key.
DELETE FROM forge.leaderships WHERE name = $1 AND process = $2;

-- name: slot_share_changes
-- Whether dividing the slots anew would change anything; the usual answer is no.
SELECT EXISTS (SELECT 1 FROM forge.slot_share_changes_v1(forge.store_now_v1($1), $2)) AS changes;

-- name: assign_slot_shares
-- Divides the slots of all queues.
SELECT forge.assign_slot_shares_v1(forge.store_now_v1($1), $2, $3) AS changed;

-- name: release_slots
-- A process holds fewer slots of some queues. Index: the primary key.
WITH kept AS (
    SELECT k.queue, k.version, k.running
    FROM json_to_recordset($2::text::json) AS k(queue text, version integer, running integer)
),
had AS MATERIALIZED (
    SELECT s.queue, s.held, greatest(s.slots, k.running) AS held_on
    FROM forge.slot_shares s JOIN kept k ON k.queue = s.queue AND k.version = s.version
    WHERE s.process = $1 AND s.held > greatest(s.slots, k.running)
    ORDER BY s.queue FOR UPDATE OF s
),
released AS (
    UPDATE forge.slot_shares s SET held = had.held_on FROM had
    WHERE s.process = $1 AND s.queue = had.queue RETURNING had.held - had.held_on AS slots
)
SELECT COALESCE(sum(slots), 0)::bigint AS freed FROM released;
