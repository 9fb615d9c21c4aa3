-- Error groups: failures that are written, and the records that they are merged into.

-- name: any_entry
-- Whether there is anything to merge.
SELECT 1 AS any FROM forge.error_entries LIMIT 1;

-- name: lock
-- One merge at a time: two would read the same records. Readers wait for it, workers do not.
SELECT pg_advisory_xact_lock(hashtext('forge.error_groups'));

-- name: take_entries
-- Takes failures for the roll-up.
DELETE FROM forge.error_entries WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.error_entries LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING at, failures, error_group, kind, queue, worker, version, heading, latest, jobs, enqueued;

-- name: load
-- The records of groups. Index: the primary key.
SELECT record FROM forge.error_groups WHERE id = ANY ($1::text[]);

-- name: size
-- How many groups there are beside the one of the rest; read when a failure may begin a new one. At most 1,001 rows.
SELECT count(*) AS groups FROM forge.error_groups WHERE id <> 'other';

-- name: put
-- Writes records. Index: the primary key.
INSERT INTO forge.error_groups (id, last_at, record)
SELECT w.id, w.last_at, w.record
FROM jsonb_to_recordset($1::jsonb) AS w(id text, last_at bigint, record text)
ORDER BY w.id COLLATE "C"
ON CONFLICT (id) DO UPDATE SET last_at = EXCLUDED.last_at, record = EXCLUDED.record;

-- name: seen
-- Groups with a failure since then, newest first. Index: error_groups_seen.
SELECT record FROM forge.error_groups WHERE last_at >= $1 ORDER BY last_at DESC, id;

-- name: purge
-- Deletes groups that were last seen before then. Index: error_groups_seen.
DELETE FROM forge.error_groups WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.error_groups WHERE last_at < $1 ORDER BY last_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1;
