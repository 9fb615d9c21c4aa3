-- Numbers by kind and by tag. No statement here reads jobs.

-- name: kind_counts
-- Jobs by queue, kind and state: counters plus the entries that are not rolled up yet.
SELECT c.queue, c.kind, c.status, sum(c.jobs)::bigint AS jobs FROM (
    SELECT queue, kind, status, jobs FROM forge.counters
    UNION ALL
    SELECT queue, kind, source, -jobs FROM forge.counter_entries WHERE source IS NOT NULL
    UNION ALL
    SELECT queue, kind, target, jobs FROM forge.counter_entries WHERE target IS NOT NULL
) AS c
GROUP BY c.queue, c.kind, c.status HAVING sum(c.jobs) <> 0 ORDER BY c.queue, c.kind, c.status;

-- name: periods
-- What happened per hour or day, queue and kind: the newest stored periods (source is '') and entries that are not
-- rolled up yet; one statement, so that both are of one snapshot. Index: the primary key.
(SELECT at, queue, kind, '' AS source, NULL AS target, 0 AS jobs, enqueued, started, done, retried,
    dead, cancelled, throttled, released, waited::text, ran::text, took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM forge.periods WHERE length = $1 AND at >= $2 AND at < $3 AND ($4::text IS NULL OR queue = $4)
ORDER BY at DESC LIMIT $5)
UNION ALL
SELECT minute - minute % $1, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries WHERE minute - minute % $1 >= $2 AND minute - minute % $1 < $3 AND ($4::text IS NULL OR queue = $4);

-- name: minute_periods
-- The same per minute. Index: the primary key.
(SELECT at, queue, kind, '' AS source, NULL AS target, 0 AS jobs, enqueued, started, done, retried,
    dead, cancelled, throttled, released, waited::text, ran::text, took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM forge.minutes WHERE at >= $1 AND at < $2 AND ($3::text IS NULL OR queue = $3)
ORDER BY at DESC LIMIT $4)
UNION ALL
SELECT minute, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries WHERE minute >= $1 AND minute < $2 AND ($3::text IS NULL OR queue = $3);

-- name: periods_of_kind
-- The same for one kind, whose queues are those of its totals: one search per start of a period and queue, however many
-- kinds there are; LIMIT keeps it from becoming a join that reads all. Index: the primary keys.
SELECT p.at, p.queue, p.kind, '' AS source, NULL AS target, 0 AS jobs, p.enqueued, p.started, p.done, p.retried,
    p.dead, p.cancelled, p.throttled, p.released, p.waited::text, p.ran::text, p.took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM unnest($2::bigint[]) AS n(at)
CROSS JOIN (SELECT queue FROM forge.totals WHERE kind = $3 AND ($4::text IS NULL OR queue = $4)) AS t
CROSS JOIN LATERAL (
    SELECT * FROM forge.periods p
    WHERE p.length = $1 AND p.at = n.at AND p.queue = t.queue AND p.kind = $3 LIMIT 1) AS p
UNION ALL
SELECT minute - minute % $1, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries WHERE minute - minute % $1 = ANY ($2::bigint[]) AND kind = $3 AND ($4::text IS NULL OR queue = $4);

-- name: minutes_of_kind
-- The same per minute. Index: the primary keys.
SELECT m.at, m.queue, m.kind, '' AS source, NULL AS target, 0 AS jobs, m.enqueued, m.started, m.done, m.retried,
    m.dead, m.cancelled, m.throttled, m.released, m.waited::text, m.ran::text, m.took::text,
    0::double precision AS waited_s, 0::double precision AS ran_s, NULL::bytea AS waited_b,
    NULL::bytea AS ran_b, NULL::bigint AS ended_at, NULL::bytea AS enqueued_b
FROM unnest($1::bigint[]) AS n(at)
CROSS JOIN (SELECT queue FROM forge.totals WHERE kind = $2 AND ($3::text IS NULL OR queue = $3)) AS t
CROSS JOIN LATERAL (
    SELECT * FROM forge.minutes m WHERE m.at = n.at AND m.queue = t.queue AND m.kind = $2 LIMIT 1) AS m
UNION ALL
SELECT minute, queue, kind, source, target, jobs, 0, 0, 0, retried, 0, 0, throttled, 0,
    NULL, NULL, NULL, waited_s, ran_s, waited, ran, ended_at, enqueued
FROM forge.counter_entries WHERE minute = ANY ($1::bigint[]) AND kind = $2 AND ($3::text IS NULL OR queue = $3);

-- name: add_periods
-- Adds to what happened in hours and days, in the order of their keys as in add_minutes. Index: the primary key.
INSERT INTO forge.periods AS m
SELECT p.length, p.at, p.queue, p.kind, p.enqueued, p.started, p.done, p.retried, p.dead, p.cancelled,
    p.throttled, p.released, p.waited, p.ran, p.took
FROM jsonb_to_recordset($1::jsonb) AS p(length bigint, at bigint, queue text, kind text, enqueued bigint,
    started bigint, done bigint, retried bigint, dead bigint, cancelled bigint, throttled bigint,
    released bigint, waited jsonb, ran jsonb, took jsonb)
ORDER BY p.length, p.at, p.queue COLLATE "C", p.kind COLLATE "C"
ON CONFLICT (length, at, queue, kind) DO UPDATE SET
    enqueued = m.enqueued + EXCLUDED.enqueued, started = m.started + EXCLUDED.started,
    done = m.done + EXCLUDED.done, retried = m.retried + EXCLUDED.retried,
    dead = m.dead + EXCLUDED.dead, cancelled = m.cancelled + EXCLUDED.cancelled,
    throttled = m.throttled + EXCLUDED.throttled, released = m.released + EXCLUDED.released,
    waited = forge.merge_histograms_v1(m.waited, EXCLUDED.waited), ran = forge.merge_histograms_v1(m.ran, EXCLUDED.ran),
    took = forge.merge_histograms_v1(m.took, EXCLUDED.took);

-- name: purge_periods
-- Deletes old periods of a length. Index: the primary key.
DELETE FROM forge.periods WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.periods WHERE length = $1 AND at < $2
    ORDER BY at, queue, kind LIMIT $3 FOR UPDATE SKIP LOCKED));

-- name: purge_short_periods
-- Deletes periods of a length that lie two days before the newest one. Index: the primary key.
DELETE FROM forge.periods WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.periods
    WHERE length = $1 AND at < (SELECT max(at) FROM forge.periods WHERE length = $1) - 172800000000
    ORDER BY at, queue, kind LIMIT $2 FOR UPDATE SKIP LOCKED));

-- name: any_tag_entry
-- Whether there is anything to roll up.
SELECT 1 AS any FROM forge.tag_entries LIMIT 1;

-- name: lock_tag_days
-- Lets one roll-up at a time change days: which tags have a place depends on all rows of a day.
SELECT pg_advisory_xact_lock(hashtextextended('forge-jobs tag_days:' || 'forge.tag_days'::regclass::oid, 0));

-- name: take_tag_entries
-- Takes entries for the roll-up.
DELETE FROM forge.tag_entries WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.tag_entries LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING minute, tag, queue, kind, runs, done, retried, dead, ran_s, waited_s;

-- name: tag_weights
-- The tags that have a row for a day; 501 at most. Index: the primary key.
SELECT tag, weight FROM forge.tag_days WHERE day = $1;

-- name: tag_rows
-- Rows of a day. Index: the primary key.
SELECT whole FROM forge.tag_days WHERE day = $1 AND tag = ANY ($2::text[]);

-- name: put_tag_rows
-- Writes rows of a day. Index: the primary key.
INSERT INTO forge.tag_days AS d (day, tag, weight, summary, whole)
SELECT $1, r.tag, r.weight, r.summary, r.whole
FROM unnest($2::text[], $3::double precision[], $4::text[], $5::text[]) AS r(tag, weight, summary, whole)
ON CONFLICT (day, tag) DO UPDATE SET weight = EXCLUDED.weight, summary = EXCLUDED.summary, whole = EXCLUDED.whole;

-- name: delete_tag_rows
-- Deletes the rows of tags that have no place of their own any more. Index: the primary key.
DELETE FROM forge.tag_days WHERE day = $1 AND tag = ANY ($2::text[]);

-- name: tag_days
-- The rows of a range of days, at most 501 for each, whole only if that is asked for; and the entries that are not
-- rolled up yet. Index: the primary key.
SELECT
    (SELECT '[' || COALESCE(string_agg(CASE WHEN $3 THEN whole ELSE summary END, ','), '') || ']'
     FROM forge.tag_days WHERE day >= $1 AND day < $2) AS days,
    (SELECT '[' || COALESCE(string_agg(json_build_array(minute, tag, queue, kind, json_build_object('runs', runs,
        'done', done, 'retried', retried, 'dead', dead, 'ran_s', ran_s, 'waited_s', waited_s))::text, ','), '') || ']'
     FROM forge.tag_entries WHERE minute >= $1 AND minute < $2) AS entries;

-- name: days_of_tag
-- The same for one tag. Index: the primary key, once per day.
SELECT
    (SELECT '[' || COALESCE(string_agg(d.whole, ','), '') || ']'
     FROM generate_series($1::bigint, $2::bigint - 1, 86400000000) AS n(day)
     CROSS JOIN LATERAL (
        SELECT * FROM forge.tag_days d WHERE d.day = n.day AND d.tag = $3 LIMIT 1) AS d) AS days,
    (SELECT '[' || COALESCE(string_agg(json_build_array(minute, tag, queue, kind, json_build_object('runs', runs,
        'done', done, 'retried', retried, 'dead', dead, 'ran_s', ran_s, 'waited_s', waited_s))::text, ','), '') || ']'
     FROM forge.tag_entries WHERE minute >= $1 AND minute < $2 AND tag = $3) AS entries;

-- name: purge_tag_days
-- Deletes the rows of old days. Index: the primary key.
DELETE FROM forge.tag_days WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forge.tag_days WHERE day < $1 ORDER BY day, tag LIMIT $2 FOR UPDATE SKIP LOCKED));
