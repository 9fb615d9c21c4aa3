-- compatibility: additive
-- Counters per five minutes, hour and day, as JSON (core.counters.Minute). length is that of the period.
CREATE TABLE forge_periods (
    length INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    queue  TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    data   TEXT    NOT NULL,
    PRIMARY KEY (length, at, queue, kind)
) WITHOUT ROWID;

-- What runs of jobs with tags came to: one entry per transaction, rolled up into days. A JSON list of
-- core.tag_counts.TagPart.
CREATE TABLE forge_tag_entries (
    id   INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

-- Tags per day (core.tag_counts.TagDay) as JSON: whole, and without hours and tasks, which is what long
-- ranges read.
CREATE TABLE forge_tag_days (
    day     INTEGER NOT NULL,
    tag     TEXT    NOT NULL,
    weight  REAL    NOT NULL,
    summary TEXT    NOT NULL,
    whole   TEXT    NOT NULL,
    PRIMARY KEY (day, tag)
) WITHOUT ROWID;
