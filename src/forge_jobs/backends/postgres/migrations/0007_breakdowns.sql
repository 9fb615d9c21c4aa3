-- compatibility: additive
-- What happened per five minutes, hour and day; length is that of the period. As in minutes.
CREATE TABLE forge.periods (
    length bigint NOT NULL,
    LIKE forge.minutes,
    PRIMARY KEY (length, at, queue, kind)
) WITH (fillfactor = 70);

-- What runs of jobs with tags came to: entries are appended and rolled up as counter_entries are.
CREATE TABLE forge.tag_entries (
    minute   bigint  NOT NULL,
    tag      text    COLLATE "C" NOT NULL,
    queue    text    COLLATE "C" NOT NULL,
    kind     text    COLLATE "C" NOT NULL,
    runs     integer NOT NULL,
    done     integer NOT NULL,
    retried  integer NOT NULL,
    dead     integer NOT NULL,
    ran_s    double precision NOT NULL,
    waited_s double precision NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Tags per day (core.tag_counts.TagDay) as JSON: whole, and without hours and tasks, which is what long ranges read. At
-- most 501 rows a day.
CREATE TABLE forge.tag_days (
    day     bigint NOT NULL,
    tag     text   COLLATE "C" NOT NULL,
    weight  double precision NOT NULL,
    summary text   NOT NULL,
    whole   text   NOT NULL,
    PRIMARY KEY (day, tag)
) WITH (fillfactor = 50);
