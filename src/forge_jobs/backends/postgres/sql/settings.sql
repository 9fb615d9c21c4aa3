-- Small named values with an optional end. None of these is on a hot path.

-- name: get
-- What stands under a name, unless its end has passed. Index: the primary key.
SELECT name, value, version, until FROM forge.settings
WHERE namespace = $2 AND name = $3 AND (until IS NULL OR until > forge.present($1));

-- name: put
-- A value in place of what stood there. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.present($1) + $5::bigint)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = EXCLUDED.value, version = s.version + 1, until = EXCLUDED.until
RETURNING name, value, version, until;

-- name: put_if_absent
-- The same where nothing stands, or what stood there has ended. Index: the primary key.
INSERT INTO forge.settings AS s (namespace, name, value, version, until)
VALUES ($2, $3, $4, 1, forge.present($1) + $5::bigint)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = EXCLUDED.value, version = s.version + 1, until = EXCLUDED.until
WHERE s.until <= forge.present($1)
RETURNING name, value, version, until;

-- name: delete
-- A setting is gone; whether it had not ended before. Index: the primary key.
DELETE FROM forge.settings WHERE namespace = $2 AND name = $3
RETURNING until IS NULL OR until > forge.present($1) AS stood;

-- name: trim
-- Those beyond the number to keep, soonest to end. Index: the primary key (the rows of one namespace).
DELETE FROM forge.settings WHERE namespace = $1 AND name IN (
    SELECT name FROM forge.settings WHERE namespace = $1 AND until IS NOT NULL
    ORDER BY until DESC, name DESC OFFSET $2)
RETURNING 1;

-- name: purge
-- Some whose end has passed; the time is asked once, so that the index can be used. Index: settings_ending.
DELETE FROM forge.settings WHERE (namespace, name) IN (
    SELECT namespace, name FROM forge.settings
    WHERE until <= (SELECT forge.present($1)) ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING 1;
