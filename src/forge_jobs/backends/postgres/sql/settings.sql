-- Small named values with an optional expiry. None of these is on a hot path.

-- name: get
-- The value of a name, unless it has expired. Index: the primary key.
SELECT name, value, version, until FROM forge.settings
WHERE namespace = $2 AND name = $3 AND (until IS NULL OR until > forge.store_now_v1($1));

-- name: put
-- Stores or replaces a value. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.store_now_v1($1) + $5::bigint)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = EXCLUDED.value, version = s.version + 1, until = EXCLUDED.until
RETURNING name, value, version, until;

-- name: put_if_absent
-- Stores a value where there is none, or an expired one. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.store_now_v1($1) + $5::bigint)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = EXCLUDED.value, version = s.version + 1, until = EXCLUDED.until
WHERE s.until <= forge.store_now_v1($1)
RETURNING name, value, version, until;

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
DELETE FROM forge.settings WHERE (namespace, name) IN (
    SELECT namespace, name FROM forge.settings
    WHERE until <= (SELECT forge.store_now_v1($1)) ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING 1;
