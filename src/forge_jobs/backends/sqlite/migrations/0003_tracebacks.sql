-- compatibility: additive
-- Tracebacks of failed attempts, at most 32 per job. at and attempt are those of the error in
-- forge_jobs.details, to which a traceback is added when one job is read.
CREATE TABLE forge_tracebacks (
    job       INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    traceback TEXT    NOT NULL,
    PRIMARY KEY (job, epoch)
);
