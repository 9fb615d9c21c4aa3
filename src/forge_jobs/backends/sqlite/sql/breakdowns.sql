-- name: kind_counts
-- Jobs by queue, kind and state, including those that are not ingested yet. Index: primary keys.
SELECT queue, kind, status, sum(jobs)
FROM (
    SELECT queue, kind, status, jobs FROM forge_counts
    UNION ALL
    SELECT queue, kind, status, 1 FROM forge_jobs WHERE id > (SELECT ingested FROM forge_meta)
)
GROUP BY queue, kind, status
HAVING sum(jobs) <> 0
ORDER BY queue, kind, status;

-- name: stored_periods
-- The stored values of these periods. CROSS JOIN: in this order. Index: primary key.
SELECT json_group_array(json(p.data))
FROM json_each(?2) AS n CROSS JOIN forge_periods AS p
  ON p.length = ?1 AND p.at = json_extract(n.value, '$[0]')
 AND p.queue = json_extract(n.value, '$[1]') AND p.kind = json_extract(n.value, '$[2]');

-- name: put_periods
-- Writes the merged values of these periods. Index: primary key.
INSERT OR REPLACE INTO forge_periods (length, at, queue, kind, data)
SELECT ?1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]')
FROM json_each(?2);

-- name: periods
-- Counters per hour or day: the newest stored ones, those in entries, and jobs that were only
-- inserted. One row, so that all parts come from one snapshot. The texts are put together as they are:
-- to parse thousands of them here as well would be half of the work. Index: primary keys.
SELECT
    (SELECT '[' || coalesce(group_concat(data), '') || ']'
     FROM (SELECT data FROM forge_periods
           WHERE length = ?1 AND at >= ?2 AND at < ?3
             AND (?4 IS NULL OR queue = ?4)
           ORDER BY at DESC LIMIT ?5)),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: minute_periods
-- The same per minute. Index: primary keys.
SELECT
    (SELECT '[' || coalesce(group_concat(data), '') || ']'
     FROM (SELECT data FROM forge_minutes
           WHERE at >= ?1 AND at < ?2
             AND (?3 IS NULL OR queue = ?3)
           ORDER BY at DESC LIMIT ?4)),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: periods_of_kind
-- The same for one kind, whose queues are those of its totals: one search per start of a period and
-- queue, however many kinds there are. Index: primary keys.
SELECT
    (SELECT '[' || coalesce(group_concat(p.data), '') || ']'
     FROM json_each(?2) AS n
     JOIN (SELECT queue FROM forge_totals WHERE kind = ?3 AND (?4 IS NULL OR queue = ?4)) AS t
     CROSS JOIN forge_periods AS p
       ON p.length = ?1 AND p.at = n.value AND p.queue = t.queue AND p.kind = ?3),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: minutes_of_kind
-- The same per minute. Index: primary keys.
SELECT
    (SELECT '[' || coalesce(group_concat(m.data), '') || ']'
     FROM json_each(?1) AS n
     JOIN (SELECT queue FROM forge_totals WHERE kind = ?2 AND (?3 IS NULL OR queue = ?3)) AS t
     CROSS JOIN forge_minutes AS m ON m.at = n.value AND m.queue = t.queue AND m.kind = ?2),
    (SELECT json_group_array(json(data)) FROM forge_counter_entries),
    (SELECT json_group_array(json_object('at', minute, 'queue', queue, 'kind', kind,
                                         'enqueued', jobs))
     FROM (
         SELECT enqueued_at / 60000000 * 60000000 AS minute, queue, kind, count(*) AS jobs
         FROM forge_jobs
         WHERE id > (SELECT ingested FROM forge_meta)
         GROUP BY minute, queue, kind
     ));

-- name: purge_periods
-- Deletes old periods of a length, oldest first, up to a limit. Index: primary key.
DELETE FROM forge_periods
WHERE (length, at, queue, kind) IN (
    SELECT length, at, queue, kind FROM forge_periods
    WHERE length = ?1 AND at < ?2 ORDER BY at, queue, kind LIMIT ?3
);

-- name: purge_short_periods
-- Deletes periods of a length that lie two days before the newest one. Index: primary key.
DELETE FROM forge_periods
WHERE (length, at, queue, kind) IN (
    SELECT length, at, queue, kind FROM forge_periods
    WHERE length = ?1
      AND at < (SELECT max(at) FROM forge_periods WHERE length = ?1) - 172800000000
    ORDER BY at, queue, kind LIMIT ?2
);

-- name: add_tag_entry
-- Appends what the runs of one transaction came to by tag.
INSERT INTO forge_tag_entries (data) VALUES (?1);

-- name: oldest_tag_entries
-- The oldest entries as one row: the last id, and all of them as JSON. Index: primary key.
SELECT max(id), json_group_array(json(data))
FROM (SELECT id, data FROM forge_tag_entries ORDER BY id LIMIT ?1);

-- name: delete_tag_entries
-- Deletes entries that were rolled up. Index: primary key.
DELETE FROM forge_tag_entries WHERE id <= ?1;

-- name: tag_weights
-- The tags that have a row for a day; 501 at most. Index: primary key.
SELECT tag, weight FROM forge_tag_days WHERE day = ?1;

-- name: tag_rows
-- Rows of a day. Index: primary key.
SELECT d.whole FROM json_each(?2) AS n CROSS JOIN forge_tag_days AS d ON d.day = ?1 AND d.tag = n.value;

-- name: put_tag_row
-- Writes the row of a tag. Index: primary key.
INSERT OR REPLACE INTO forge_tag_days (day, tag, weight, summary, whole) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: delete_tag_rows
-- Deletes the rows of tags that have no place of their own any more. Index: primary key.
DELETE FROM forge_tag_days WHERE day = ?1 AND tag IN (SELECT value FROM json_each(?2));

-- name: tag_days
-- The rows of a range of days, at most 501 for each, whole only if that is asked for; and the entries
-- that are not rolled up yet. The texts are put together as they are. Index: primary key.
SELECT
    (SELECT '[' || coalesce(group_concat(iif(?3, whole, summary)), '') || ']'
     FROM forge_tag_days WHERE day >= ?1 AND day < ?2),
    (SELECT '[' || coalesce(group_concat(data), '') || ']' FROM forge_tag_entries);

-- name: days_of_tag
-- The same for one tag. Index: primary key, once per day.
SELECT
    (SELECT '[' || coalesce(group_concat(d.whole), '') || ']'
     FROM json_each(?1) AS n CROSS JOIN forge_tag_days AS d ON d.day = n.value AND d.tag = ?2),
    (SELECT '[' || coalesce(group_concat(data), '') || ']' FROM forge_tag_entries);

-- name: purge_tag_days
-- Deletes the rows of old days, oldest first, up to a limit. Index: primary key.
DELETE FROM forge_tag_days
WHERE (day, tag) IN (
    SELECT day, tag FROM forge_tag_days WHERE day < ?1 ORDER BY day, tag LIMIT ?2
);
