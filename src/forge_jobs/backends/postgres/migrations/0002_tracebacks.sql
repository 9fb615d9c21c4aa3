-- compatibility: additive

-- Tracebacks of failed attempts, at most 32 per job. at and attempt are those of the error in jobs.errors or
-- history.errors, to which a traceback is added when one job is read.
CREATE TABLE forge.job_tracebacks (
    job       bigint  NOT NULL,
    epoch     integer NOT NULL,
    at        bigint  NOT NULL,
    attempt   integer NOT NULL,
    traceback text    NOT NULL,
    PRIMARY KEY (job, epoch)
);
