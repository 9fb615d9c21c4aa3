-- compatibility: additive
-- Error groups (core.error_groups): one JSON record per group, at most 1,001 rows. record is text, because it is read and
-- written whole.
CREATE TABLE forge.error_groups (
    id      text   COLLATE "C" PRIMARY KEY,
    last_at bigint NOT NULL,
    record  text   NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);
CREATE INDEX error_groups_seen ON forge.error_groups (last_at);

-- Failures that are not merged into their group yet, one row per transaction, group, kind, queue and worker. Appended,
-- so that workers whose jobs fail alike never wait for each other; there is no index to maintain.
CREATE TABLE forge.error_entries (
    at          bigint   NOT NULL,
    failures    bigint   NOT NULL,
    error_group text     NOT NULL,
    kind        text     NOT NULL,
    queue       text     NOT NULL,
    worker      text,
    version     text,
    -- [type, message, frame] of the group, as JSON.
    heading     text     NOT NULL,
    latest      text     NOT NULL,
    -- Some of its jobs, the newest first, and when they were enqueued.
    jobs        bigint[] NOT NULL,
    enqueued    bigint[] NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The group of a job's last failed attempt; NULL for most.
ALTER TABLE forge.jobs ADD COLUMN error_group text COLLATE "C";
ALTER TABLE forge.history ADD COLUMN error_group text COLLATE "C";
CREATE INDEX jobs_error_group ON forge.jobs (error_group, id) WHERE error_group IS NOT NULL;
CREATE INDEX history_error_group ON forge.history (error_group, id) WHERE error_group IS NOT NULL;
