-- name: get
-- A setting, unless it has expired. Index: primary key.
SELECT name, value, version, until FROM forge_settings
WHERE namespace = ?1 AND name = ?2 AND (until IS NULL OR until > ?3);

-- name: all
-- The settings of a namespace, by name, without expired ones. Index: primary key.
SELECT name, value, version, until FROM forge_settings
WHERE namespace = ?1 AND (until IS NULL OR until > ?2)
ORDER BY name;

-- name: put
-- Inserts or replaces a value. Index: primary key.
INSERT INTO forge_settings (namespace, name, value, version, until) VALUES (?1, ?2, ?3, 1, ?4)
ON CONFLICT (namespace, name) DO UPDATE SET
    value = excluded.value, version = version + 1, until = excluded.until;

-- name: delete
-- Deletes a setting. Index: primary key.
DELETE FROM forge_settings WHERE namespace = ?1 AND name = ?2;

-- name: trim
-- Deletes those beyond the number to keep, soonest to expire first. Index: primary key (the rows of
-- one namespace).
DELETE FROM forge_settings WHERE namespace = ?1 AND name IN (
    SELECT name FROM forge_settings WHERE namespace = ?1 AND until IS NOT NULL
    ORDER BY until DESC, name DESC LIMIT -1 OFFSET ?2);

-- name: purge
-- Deletes some expired settings. Index: forge_settings_expiry.
DELETE FROM forge_settings WHERE (namespace, name) IN (
    SELECT namespace, name FROM forge_settings
    WHERE until IS NOT NULL AND until <= ?1 ORDER BY until LIMIT ?2);
