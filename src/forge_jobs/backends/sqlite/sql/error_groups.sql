-- name: load
-- The records of groups, as one JSON text. Index: primary key.
SELECT '[' || coalesce(group_concat(record), '') || ']' FROM forge_error_groups
WHERE id IN (SELECT value FROM json_each(?1));

-- name: put
-- Writes records. Index: primary key.
INSERT INTO forge_error_groups (id, last_at, record)
SELECT json_extract(w.value, '$[0]'), json_extract(w.value, '$[1]'), json_extract(w.value, '$[2]')
FROM json_each(?1) AS w WHERE true
ON CONFLICT (id) DO UPDATE SET last_at = excluded.last_at, record = excluded.record;

-- name: size
-- How many groups there are beside the one of the rest; read when a failure may begin a new one. At most 1,001 rows.
SELECT count(*) FROM forge_error_groups WHERE id <> 'other';

-- name: set_groups
-- The groups of jobs whose attempt failed. Index: primary key.
UPDATE forge_jobs SET error_group = json_extract(w.value, '$[1]')
FROM json_each(?1) AS w
WHERE forge_jobs.id = json_extract(w.value, '$[0]');

-- name: worker
-- The label and the version of a process. Index: primary key.
SELECT label, version FROM forge_processes WHERE id = ?1;

-- name: seen
-- Groups with a failure since then, newest first. Index: forge_error_groups_seen.
SELECT '[' || coalesce(group_concat(record), '') || ']' FROM (
    SELECT record FROM forge_error_groups WHERE last_at >= ?1 ORDER BY last_at DESC, id);

-- name: purge
-- Deletes groups that were last seen before then. Index: forge_error_groups_seen.
DELETE FROM forge_error_groups WHERE id IN (
    SELECT id FROM forge_error_groups WHERE last_at < ?1 ORDER BY last_at LIMIT ?2);
