-- compatibility: additive
-- Jobs that another job or a schedule made, by that (core.parent). Their link is in options, which no hot statement
-- writes after the insert.
CREATE INDEX jobs_parent ON forge.jobs ((options::json->>'parent'), id) WHERE strpos(options, '"parent"') > 0;
CREATE INDEX history_parent ON forge.history ((options::json->>'parent'), id) WHERE strpos(options, '"parent"') > 0;
