-- compatibility: additive
-- Lists of dead and cancelled jobs by their end. The marker indexed_status is null in done jobs, so
-- that finishing a job successfully writes no entry.
CREATE INDEX forge_jobs_ended ON forge_jobs (indexed_status, finished_at)
    WHERE indexed_status IS NOT NULL AND finished_at IS NOT NULL;
