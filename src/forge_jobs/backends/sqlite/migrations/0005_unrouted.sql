-- compatibility: additive
-- Jobs that were stored before anybody named their queue (core.declaration). Their mark is in options,
-- which no hot statement writes.
CREATE INDEX forge_jobs_unrouted ON forge_jobs (kind) WHERE instr(options, '"unrouted"') > 0;
