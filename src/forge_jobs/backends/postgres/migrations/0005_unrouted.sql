-- compatibility: additive
-- Live jobs that were stored before anybody named their queue (core.declaration).
CREATE INDEX jobs_unrouted ON forge.jobs (kind, id) WHERE strpos(options, '"unrouted"') > 0;
