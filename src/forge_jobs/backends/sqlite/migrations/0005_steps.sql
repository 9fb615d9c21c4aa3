-- compatibility: additive
-- Steps, events and waits of jobs (core.steps, core.events). Steps and events are only inserted, so a
-- large value is in the row, as its last column: it is written once, and a search by name does not
-- read it.
CREATE TABLE forge_steps (
    job         INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    began_at    INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    fingerprint INTEGER,
    value       BLOB,
    PRIMARY KEY (job, name)
);

-- AUTOINCREMENT: the number of an event that was deleted is never used again. is_open is 1 while
-- jobs that wait for the event may not have got it, else NULL.
CREATE TABLE forge_events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    topic   TEXT    NOT NULL,
    sent_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    is_open INTEGER,
    payload BLOB    NOT NULL
);
CREATE INDEX forge_events_topic ON forge_events (topic);
CREATE INDEX forge_events_end   ON forge_events (ends_at);
CREATE INDEX forge_events_open  ON forge_events (is_open) WHERE is_open IS NOT NULL;

-- One row per topic of a suspended job's wait. epoch is that of the run that the wait ended.
CREATE TABLE forge_waits (
    topic    TEXT    NOT NULL,
    job      INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    step     TEXT    NOT NULL,
    began_at INTEGER NOT NULL,
    after    INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    deadline INTEGER,
    PRIMARY KEY (topic, job)
) WITHOUT ROWID;
CREATE INDEX forge_waits_job ON forge_waits (job);
