-- Small named values with an optional expiry. None of these is on a hot path. The statements of typed settings (queues,
-- kinds, limits, schedules, token buckets) are made from shared/setting_tables.py.

-- name: get
-- The value of a name, unless it has expired. Index: the primary key.
SELECT name, value, version, until FROM forge.settings
WHERE namespace = $2 AND name = $3 AND (until IS NULL OR until > forge.store_now_v1($1));

-- name: all
-- The values of a namespace, by name, without expired ones. Index: the primary key.
SELECT name, value, version, until FROM forge.settings
WHERE namespace = $2 AND (until IS NULL OR until > forge.store_now_v1($1))
ORDER BY name;

-- name: put
-- Stores or replaces a value. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.store_now_v1($1) + $5::bigint)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = EXCLUDED.value, version = s.version + 1, until = EXCLUDED.until
RETURNING name, value, version, until;

-- name: insert
-- Stores a value where there is none, not even an expired one. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.store_now_v1($1) + $5::bigint)
ON CONFLICT (namespace, name) DO NOTHING
RETURNING name, value, version, until;

-- name: lock
-- Locks values for a change, expired ones too. Index: the primary key.
SELECT name, value, version, until FROM forge.settings
WHERE namespace = $1 AND name = ANY ($2::text[]) ORDER BY name FOR UPDATE;

-- name: now
-- Store time, after the locks.
SELECT forge.store_now_v1($1) AS now;

-- name: raise_control_version
-- Every process re-reads settings. Index: the primary key.
UPDATE forge.control SET version = version + 1 WHERE id = 1;

-- name: delete
-- Deletes a value; returns whether it had not expired. Index: the primary key.
DELETE FROM forge.settings WHERE namespace = $2 AND name = $3
RETURNING until IS NULL OR until > forge.store_now_v1($1) AS existed;

-- name: trim
-- Deletes those beyond the number to keep, the first to expire first. Index: the primary key (the rows of one
-- namespace).
DELETE FROM forge.settings WHERE namespace = $1 AND name IN (
    SELECT name FROM forge.settings WHERE namespace = $1 AND until IS NOT NULL
    ORDER BY until DESC, name DESC OFFSET $2)
RETURNING 1;

-- name: purge
-- Deletes some that have expired; the time is read once, so that the index can be used. Index: settings_expiry.
DELETE FROM forge.settings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.settings
    WHERE until <= (SELECT forge.store_now_v1($1)) ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1;
