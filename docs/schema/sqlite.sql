-- Made by `python -m scripts.schema_dump`; kept true by tests/repository/test_schema_dump.py.

CREATE TABLE forge_audit (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at   INTEGER NOT NULL,
    data TEXT    NOT NULL
);

CREATE TABLE forge_bodies (
    job     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

CREATE TABLE forge_cancels (
    owner INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    PRIMARY KEY (owner, job)
) WITHOUT ROWID;

CREATE TABLE forge_counter_entries (
    id   INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

CREATE TABLE forge_counts (
    queue  TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    status TEXT    NOT NULL,
    jobs   INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, status)
) WITHOUT ROWID;

CREATE TABLE forge_dedupe (
    kind  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    job   INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

CREATE TABLE forge_error_groups (
    id      TEXT    NOT NULL PRIMARY KEY,
    last_at INTEGER NOT NULL,
    record  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    topic   TEXT    NOT NULL,
    sent_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    is_open INTEGER,
    payload BLOB    NOT NULL
);

CREATE TABLE forge_fires (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule     TEXT NOT NULL,
    tick         INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    outcome      TEXT NOT NULL,
    job_id       TEXT,
    missed       INTEGER NOT NULL
);

CREATE TABLE forge_gates (
    queue TEXT PRIMARY KEY,
    until INTEGER,
    count INTEGER NOT NULL
) WITHOUT ROWID;

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
    
    
    slow_path      INTEGER NOT NULL DEFAULT 0,
    enqueued_at    INTEGER NOT NULL,
    
    owner          INTEGER,
    exchange       INTEGER,
    started_at     INTEGER,
    finished_at    INTEGER,
    
    due_at         INTEGER,
    
    expires_at     INTEGER,
    
    
    claimable      INTEGER,
    
    options        TEXT,
    details        TEXT,
    last_error     TEXT,
    
    indexed_status TEXT,
    dedupe_key     TEXT,
    limit_key      TEXT,
    lane           TEXT,
    
    
    track          TEXT,
    claim_track    TEXT,
    
    bucket         TEXT,
    
    lane_slot      TEXT,
    limit_slot     TEXT,
    
    live_lane      TEXT,
    result         BLOB,
    
    payload        BLOB
, error_group TEXT);

CREATE TABLE forge_kinds (
    kind  TEXT PRIMARY KEY,
    queue TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_leads (
    name    TEXT PRIMARY KEY,
    process INTEGER NOT NULL,
    until   INTEGER NOT NULL
) WITHOUT ROWID;

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

CREATE TABLE forge_logs (
    id      INTEGER PRIMARY KEY,
    job     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT    NOT NULL,
    message TEXT    NOT NULL
);

CREATE TABLE forge_meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    ingested        INTEGER NOT NULL,
    control_version INTEGER NOT NULL,
    tag             INTEGER NOT NULL
);

CREATE TABLE forge_minutes (
    at    INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    data  TEXT    NOT NULL,
    PRIMARY KEY (at, queue, kind)
) WITHOUT ROWID;

CREATE TABLE forge_periods (
    length INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    queue  TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    data   TEXT    NOT NULL,
    PRIMARY KEY (length, at, queue, kind)
) WITHOUT ROWID;

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
, signatures TEXT);

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

CREATE TABLE forge_schema (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL, breaking INTEGER NOT NULL);

CREATE TABLE forge_settings (
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    value     BLOB    NOT NULL,
    version   INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE TABLE forge_shares (
    process INTEGER NOT NULL,
    queue   TEXT    NOT NULL,
    slots   INTEGER NOT NULL,
    held    INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (process, queue)
) WITHOUT ROWID;

CREATE TABLE forge_steps (
    job         INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    began_at    INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    fingerprint INTEGER,
    value       BLOB,
    PRIMARY KEY (job, name)
);

CREATE TABLE forge_tag_days (
    day     INTEGER NOT NULL,
    tag     TEXT    NOT NULL,
    weight  REAL    NOT NULL,
    summary TEXT    NOT NULL,
    whole   TEXT    NOT NULL,
    PRIMARY KEY (day, tag)
) WITHOUT ROWID;

CREATE TABLE forge_tag_entries (
    id   INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

CREATE TABLE forge_token_buckets (
    scope        TEXT PRIMARY KEY,
    capacity     REAL NOT NULL,
    refill_per_s REAL NOT NULL,
    tokens       REAL NOT NULL,
    at           INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_totals (
    queue TEXT NOT NULL,
    kind  TEXT NOT NULL,
    data  TEXT NOT NULL,
    PRIMARY KEY (queue, kind)
) WITHOUT ROWID;

CREATE TABLE forge_tracebacks (
    job       INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    traceback TEXT    NOT NULL,
    PRIMARY KEY (job, epoch)
);

CREATE TABLE forge_vitals (
    at      INTEGER NOT NULL,
    host_id TEXT    NOT NULL,
    data    TEXT    NOT NULL,
    PRIMARY KEY (at, host_id)
) WITHOUT ROWID;

CREATE TABLE forge_waits (
    topic    TEXT    NOT NULL,
    job      INTEGER NOT NULL,
    epoch    INTEGER NOT NULL,
    step     TEXT    NOT NULL,
    began_at INTEGER NOT NULL,
    after    INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    deadline INTEGER,
    PRIMARY KEY (topic, job)
) WITHOUT ROWID;

CREATE INDEX forge_audit_by_age ON forge_audit (at);

CREATE INDEX forge_dedupe_until ON forge_dedupe (until) WHERE until IS NOT NULL;

CREATE INDEX forge_error_groups_seen ON forge_error_groups (last_at);

CREATE INDEX forge_events_end   ON forge_events (ends_at);

CREATE INDEX forge_events_open  ON forge_events (is_open) WHERE is_open IS NOT NULL;

CREATE INDEX forge_events_topic ON forge_events (topic);

CREATE INDEX forge_fires_of ON forge_fires (schedule, id);

CREATE INDEX forge_jobs_bucket     ON forge_jobs (bucket, priority) WHERE bucket IS NOT NULL;

CREATE INDEX forge_jobs_claim      ON forge_jobs (queue, priority, run_at) WHERE claimable IS NOT NULL;

CREATE INDEX forge_jobs_dedupe     ON forge_jobs (dedupe_key) WHERE dedupe_key IS NOT NULL;

CREATE INDEX forge_jobs_due        ON forge_jobs (queue, due_at) WHERE due_at IS NOT NULL;

CREATE INDEX forge_jobs_ended ON forge_jobs (indexed_status, finished_at)
    WHERE indexed_status IS NOT NULL AND finished_at IS NOT NULL;

CREATE INDEX forge_jobs_error_group ON forge_jobs (error_group) WHERE error_group IS NOT NULL;

CREATE INDEX forge_jobs_expiry     ON forge_jobs (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX forge_jobs_lane       ON forge_jobs (live_lane) WHERE live_lane IS NOT NULL;

CREATE INDEX forge_jobs_lane_slot  ON forge_jobs (lane_slot) WHERE lane_slot IS NOT NULL;

CREATE INDEX forge_jobs_limit_slot ON forge_jobs (limit_slot) WHERE limit_slot IS NOT NULL;

CREATE INDEX forge_jobs_parent ON forge_jobs (json_extract(options, '$.rare.parent'))
    WHERE instr(options, '"parent"') > 0;

CREATE INDEX forge_jobs_running    ON forge_jobs (owner) WHERE status = 'running';

CREATE INDEX forge_jobs_status     ON forge_jobs (indexed_status) WHERE indexed_status IS NOT NULL;

CREATE INDEX forge_jobs_track      ON forge_jobs (queue, claim_track, priority, run_at)
    WHERE claim_track IS NOT NULL;

CREATE INDEX forge_jobs_unrouted ON forge_jobs (kind) WHERE instr(options, '"unrouted"') > 0;

CREATE INDEX forge_logs_job ON forge_logs (job);

CREATE INDEX forge_processes_host ON forge_processes (host_id);

CREATE INDEX forge_schedules_due ON forge_schedules (next_at) WHERE enabled;

CREATE INDEX forge_settings_expiry ON forge_settings (until) WHERE until IS NOT NULL;

CREATE INDEX forge_waits_job ON forge_waits (job);
