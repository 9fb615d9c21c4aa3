-- name: poll
-- Whether a worker of these queues should run an exchange: the control version, whether a job is
-- claimable or not ingested yet, the earliest due time. Index: forge_jobs_claim, forge_jobs_track
-- and forge_jobs_due, one entry per queue; named, because with statistics of a table that is mostly
-- pending the planner prefers to scan the table.
SELECT
    control_version,
    EXISTS (SELECT 1 FROM forge_jobs AS n
            WHERE n.id > ingested AND n.queue IN (SELECT value FROM json_each(?1)))
        OR EXISTS (SELECT 1 FROM json_each(?1) AS w
                   WHERE EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_claim
                                 WHERE j.claimable IS NOT NULL AND j.queue = w.value)
                      OR EXISTS (SELECT 1 FROM forge_jobs AS j INDEXED BY forge_jobs_track
                                 WHERE j.claim_track IS NOT NULL AND j.queue = w.value)),
    (SELECT min((SELECT min(j.due_at) FROM forge_jobs AS j
                 WHERE j.queue = w.value AND j.due_at IS NOT NULL))
     FROM json_each(?1) AS w)
FROM forge_meta;
