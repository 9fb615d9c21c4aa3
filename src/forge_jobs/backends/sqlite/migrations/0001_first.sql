-- The first schema. All names begin with forge_, because a program may keep its own tables in the
-- same file (that is what tx= is for). Instants are whole microseconds since 1970 (UTC); time spans
-- are seconds. Every index of forge_jobs is partial, on columns that the hot path does not write,
-- because an UPDATE of a column in an index or its condition costs every job a page write.

-- One row per job, also after its end (docs/decisions/0010). The store assigns the keys: one more
-- than both the highest key present and forge_meta.ingested, so that a key is never used twice,
-- without the page that AUTOINCREMENT would write with every insert.
CREATE TABLE forge_jobs (
    id             INTEGER PRIMARY KEY,
    status         TEXT    NOT NULL,
    queue          TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    run_at         INTEGER NOT NULL,
    epoch          INTEGER NOT NULL DEFAULT 0,
    attempts       INTEGER NOT NULL DEFAULT 0,
    max_attempts   INTEGER NOT NULL,
    -- Bits: 1 = its finish cannot take the short path (dedupe key, cancel request, limit, lane),
    --       2 = its start cannot (expiry, a dedupe key that is held only while waiting).
    slow_path      INTEGER NOT NULL DEFAULT 0,
    enqueued_at    INTEGER NOT NULL,
    -- The process that holds or held the current epoch, to recognise a repeated finish.
    owner          INTEGER,
    exchange       INTEGER,
    started_at     INTEGER,
    finished_at    INTEGER,
    -- run_at while scheduled or failed, else NULL.
    due_at         INTEGER,
    -- The expiry while waiting, else NULL; options keep the original.
    expires_at     INTEGER,
    -- 1 while pending, not on a track and in the claim index, else NULL. A single enqueue leaves it
    -- to the next ingest (docs/decisions/0011), which saves the page of the claim index.
    claimable      INTEGER,
    -- Rarely used options and rarely changed fields as JSON: narrow rows are fast.
    options        TEXT,
    details        TEXT,
    last_error     TEXT,
    -- A copy of status for failed, held, dead and cancelled, else NULL.
    indexed_status TEXT,
    dedupe_key     TEXT,
    limit_key      TEXT,
    lane           TEXT,
    -- The kind of a limited task, whose jobs are claimed apart from the rest of their queue.
    -- claim_track repeats it while pending; claimable is NULL then.
    track          TEXT,
    claim_track    TEXT,
    -- While held: the limit bucket in which it waits.
    bucket         TEXT,
    -- While it holds them: the slot of its lane, a slot of its limit key.
    lane_slot      TEXT,
    limit_slot     TEXT,
    -- While not ended: its lane, unless the lane's order is none.
    live_lane      TEXT,
    result         BLOB,
    -- NULL when it is in forge_bodies.
    payload        BLOB
);
CREATE INDEX forge_jobs_claim      ON forge_jobs (queue, priority, run_at) WHERE claimable IS NOT NULL;
CREATE INDEX forge_jobs_running    ON forge_jobs (owner) WHERE status = 'running';
CREATE INDEX forge_jobs_due        ON forge_jobs (queue, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX forge_jobs_expiry     ON forge_jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX forge_jobs_status     ON forge_jobs (indexed_status) WHERE indexed_status IS NOT NULL;
CREATE INDEX forge_jobs_dedupe     ON forge_jobs (dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX forge_jobs_track      ON forge_jobs (queue, claim_track, priority, run_at)
    WHERE claim_track IS NOT NULL;
CREATE INDEX forge_jobs_bucket     ON forge_jobs (bucket, priority) WHERE bucket IS NOT NULL;
CREATE INDEX forge_jobs_lane_slot  ON forge_jobs (lane_slot) WHERE lane_slot IS NOT NULL;
CREATE INDEX forge_jobs_limit_slot ON forge_jobs (limit_slot) WHERE limit_slot IS NOT NULL;
CREATE INDEX forge_jobs_lane       ON forge_jobs (live_lane) WHERE live_lane IS NOT NULL;

-- Payloads over 2 KB: written once instead of with every transition of their job.
CREATE TABLE forge_bodies (
    job     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

-- The holders of dedupe keys; until is set once that job has ended.
CREATE TABLE forge_dedupe (
    kind  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    job   INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX forge_dedupe_until ON forge_dedupe (until) WHERE until IS NOT NULL;

-- Running jobs that were asked to stop, by owner.
CREATE TABLE forge_cancels (
    owner INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    PRIMARY KEY (owner, job)
) WITHOUT ROWID;

-- Log lines of handlers.
CREATE TABLE forge_logs (
    id      INTEGER PRIMARY KEY,
    job     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT    NOT NULL,
    message TEXT    NOT NULL
);
CREATE INDEX forge_logs_job ON forge_logs (job);

-- Jobs by queue, kind and state, for all keys up to forge_meta.ingested.
CREATE TABLE forge_counts (
    queue  TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    status TEXT    NOT NULL,
    jobs   INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, status)
) WITHOUT ROWID;

-- Counter entries: each writing transaction appends one, a JSON list (core.counters.Minute). They are
-- rolled up into minutes and totals soon after; readers add those that are not.
CREATE TABLE forge_counter_entries (
    id   INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

-- Counters per minute, and over all time, as JSON (core.counters.Minute).
CREATE TABLE forge_minutes (
    at    INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    data  TEXT    NOT NULL,
    PRIMARY KEY (at, queue, kind)
) WITHOUT ROWID;

CREATE TABLE forge_totals (
    queue TEXT NOT NULL,
    kind  TEXT NOT NULL,
    data  TEXT NOT NULL,
    PRIMARY KEY (queue, kind)
) WITHOUT ROWID;

-- Samples of worker processes per minute, as JSON (core.vitals.Vitals).
CREATE TABLE forge_vitals (
    at      INTEGER NOT NULL,
    host_id TEXT    NOT NULL,
    data    TEXT    NOT NULL,
    PRIMARY KEY (at, host_id)
) WITHOUT ROWID;

-- The audit of operator actions, as JSON (core.audit.AuditEntry).
CREATE TABLE forge_audit (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at   INTEGER NOT NULL,
    data TEXT    NOT NULL
);
CREATE INDEX forge_audit_by_age ON forge_audit (at);

-- One row. ingested: jobs with a higher key are not in counts and minutes yet, may not be in the
-- claim index, and have only been enqueued.
CREATE TABLE forge_meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    ingested        INTEGER NOT NULL,
    control_version INTEGER NOT NULL,
    tag             INTEGER NOT NULL
);

CREATE TABLE forge_queues (
    name               TEXT PRIMARY KEY,
    slots              INTEGER NOT NULL,
    paused             INTEGER NOT NULL,
    retain_done_s      REAL,
    retain_dead_s      REAL,
    retain_cancelled_s REAL,
    backoff_enabled    INTEGER NOT NULL,
    backoff_base_s     REAL NOT NULL,
    backoff_max_s      REAL NOT NULL,
    updated_at         INTEGER NOT NULL
) WITHOUT ROWID;

-- Limits of queues and tasks: what code declared or an operator set, and the tokens left.
CREATE TABLE forge_limits (
    name        TEXT PRIMARY KEY,
    concurrency INTEGER,
    per         TEXT,
    rate_per_s  REAL,
    burst       REAL    NOT NULL,
    scopes      TEXT    NOT NULL,
    tokens      REAL    NOT NULL,
    at          INTEGER NOT NULL,
    by_operator INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Throttle gates of queues and, as scope:…, of scopes; independent of the settings of a queue.
CREATE TABLE forge_gates (
    queue TEXT PRIMARY KEY,
    until INTEGER,
    count INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_kinds (
    kind  TEXT PRIMARY KEY,
    queue TEXT NOT NULL
) WITHOUT ROWID;

-- Worker processes. AUTOINCREMENT: the key of a dead process is never used again.
CREATE TABLE forge_processes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    host_id    TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    queues     TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    hostname   TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    lease_s    REAL    NOT NULL,
    started_at INTEGER NOT NULL,
    quiet      INTEGER NOT NULL DEFAULT 0,
    dead_at    INTEGER
);
CREATE INDEX forge_processes_host ON forge_processes (host_id);

-- The slots of a queue that a process may use, and those that the others must leave to it.
CREATE TABLE forge_shares (
    process INTEGER NOT NULL,
    queue   TEXT    NOT NULL,
    slots   INTEGER NOT NULL,
    held    INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (process, queue)
) WITHOUT ROWID;

CREATE TABLE forge_leads (
    name    TEXT PRIMARY KEY,
    process INTEGER NOT NULL,
    until   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_schedules (
    name         TEXT PRIMARY KEY,
    expression   TEXT NOT NULL,
    kind         TEXT NOT NULL,
    queue        TEXT,
    payload      BLOB NOT NULL,
    zone         TEXT NOT NULL,
    missed       TEXT NOT NULL,
    missed_limit INTEGER NOT NULL,
    overlap      TEXT NOT NULL,
    jitter_s     REAL NOT NULL,
    max_attempts INTEGER,
    template     BLOB NOT NULL,
    enabled      INTEGER NOT NULL,
    declared     INTEGER NOT NULL,
    edited       INTEGER NOT NULL,
    next_at      INTEGER,
    last_at      INTEGER,
    error        TEXT,
    version      INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX forge_schedules_due ON forge_schedules (next_at) WHERE enabled;

-- The last ticks of each schedule; a fire keeps FIRES_KEPT of them.
CREATE TABLE forge_fires (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule     TEXT NOT NULL,
    tick         INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    outcome      TEXT NOT NULL,
    job_id       TEXT,
    missed       INTEGER NOT NULL
);

CREATE INDEX forge_fires_of ON forge_fires (schedule, id);

-- Token buckets of rate limits.
CREATE TABLE forge_token_buckets (
    scope        TEXT PRIMARY KEY,
    capacity     REAL NOT NULL,
    refill_per_s REAL NOT NULL,
    tokens       REAL NOT NULL,
    at           INTEGER NOT NULL
) WITHOUT ROWID;
