-- Reading jobs. One statement looks into both tables: a job that moves between them is seen once.
-- Keys come as text, "1,2,3", so that a new connection can be used without asking about array types.

-- name: job
-- One job, whole. Index: the primary keys.
SELECT r.*, c.at AS cancel_requested_at, b.payload AS body
FROM (
    SELECT * FROM forge.jobs WHERE id = ANY (string_to_array($1, ',')::bigint[])
    UNION ALL
    SELECT * FROM forge.history WHERE id = ANY (string_to_array($1, ',')::bigint[])
) AS r
LEFT JOIN forge.cancels c ON c.job = r.id
LEFT JOIN forge.bodies b ON b.job = r.id
ORDER BY r.id DESC;

-- name: peek
-- State and result of jobs somebody waits for. Index: the primary keys.
SELECT id, enqueued_at, status, NULL::bytea AS result, last_error
FROM forge.jobs WHERE id = ANY (string_to_array($1, ',')::bigint[])
UNION ALL
SELECT id, enqueued_at, status, result, last_error
FROM forge.history WHERE id = ANY (string_to_array($1, ',')::bigint[]);

-- name: logs
-- What the handlers of a job wrote. Index: the primary key.
SELECT at, level, message FROM forge.logs WHERE job = $1 ORDER BY id;
