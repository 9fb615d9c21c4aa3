-- compatibility: additive
-- Jobs that another job or a schedule made, by that (core.parent). Their link is in options, which no
-- hot statement writes after the insert.
CREATE INDEX forge_jobs_parent ON forge_jobs (json_extract(options, '$.rare.parent'))
    WHERE instr(options, '"parent"') > 0;
