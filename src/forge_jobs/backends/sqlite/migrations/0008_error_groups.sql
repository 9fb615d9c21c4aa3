-- compatibility: additive
-- Error groups (core.error_groups): one JSON record per group, at most 1,001 rows.
CREATE TABLE forge_error_groups (
    id      TEXT    NOT NULL PRIMARY KEY,
    last_at INTEGER NOT NULL,
    record  TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX forge_error_groups_seen ON forge_error_groups (last_at);

-- The group of a job's last failed attempt. Only the transaction of a failure writes it.
ALTER TABLE forge_jobs ADD COLUMN error_group TEXT;
CREATE INDEX forge_jobs_error_group ON forge_jobs (error_group) WHERE error_group IS NOT NULL;
