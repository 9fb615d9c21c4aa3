-- The first schema. All names begin with forge_, because a program may keep its own tables in the
-- same file (that is what tx= is for). Instants are whole microseconds since 1970 (UTC); spans are seconds.
-- Every index of jobs is partial and keyed on columns that the hot path leaves alone, because each
-- index whose columns or condition an UPDATE touches is paid for by every job.

-- One row per job, also after its end (docs/decisions/0010). Keys are given out by us: one more than
-- both the highest key present and forge_marks.folded, so that a key is never used twice without the page
-- that AUTOINCREMENT would write with every insert.
CREATE TABLE forge_jobs (
    id           INTEGER PRIMARY KEY,
    status       TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    epoch        INTEGER NOT NULL DEFAULT 0,
    attempts     INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    -- Bits: 1 = its end needs more than a done mark (key, cancel request, limit, lane),
    --       2 = its start does (expiry, key that is held only while waiting).
    special      INTEGER NOT NULL DEFAULT 0,
    enqueued_at  INTEGER NOT NULL,
    -- Whoever holds or held the present epoch: a repeated finish is recognised by it.
    owner        INTEGER,
    exchange     INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER,
    -- run_at while scheduled or failed, else NULL.
    due_at       INTEGER,
    -- The expiry while waiting, else NULL.
    dies_at      INTEGER,
    -- 1 while pending and in line to be claimed, else NULL. A lone enqueue leaves it to the next fold
    -- (docs/decisions/0011), which spares it the page of the claim index.
    line         INTEGER,
    -- Seldom used options and seldom changed facts as JSON: a narrow row is a fast row.
    options      TEXT,
    state        TEXT,
    last_error   TEXT,
    -- A copy of status for failed, held, dead and cancelled, else NULL.
    odd          TEXT,
    dedupe_key   TEXT,
    limit_key    TEXT,
    lane         TEXT,
    -- The line of its own in which jobs of a limited task stand; side repeats it while pending, and
    -- line is NULL then.
    track        TEXT,
    side         TEXT,
    -- While held: where it waits. While it has them: its lane's seat, its limit key. While not ended:
    -- its lane, if the lane binds it.
    lot          TEXT,
    seat         TEXT,
    going        TEXT,
    in_lane      TEXT,
    result       BLOB,
    -- NULL when it lies in forge_bodies.
    payload      BLOB
);
CREATE INDEX forge_jobs_claim  ON forge_jobs (queue, priority, run_at) WHERE line IS NOT NULL;
CREATE INDEX forge_jobs_busy   ON forge_jobs (owner) WHERE status = 'running';
CREATE INDEX forge_jobs_due    ON forge_jobs (queue, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX forge_jobs_dies   ON forge_jobs (dies_at) WHERE dies_at IS NOT NULL;
CREATE INDEX forge_jobs_odd    ON forge_jobs (odd) WHERE odd IS NOT NULL;
CREATE INDEX forge_jobs_dedupe ON forge_jobs (dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX forge_jobs_side   ON forge_jobs (queue, side, priority, run_at) WHERE side IS NOT NULL;
CREATE INDEX forge_jobs_lot    ON forge_jobs (lot, priority) WHERE lot IS NOT NULL;
CREATE INDEX forge_jobs_seat   ON forge_jobs (seat) WHERE seat IS NOT NULL;
CREATE INDEX forge_jobs_going  ON forge_jobs (going) WHERE going IS NOT NULL;
CREATE INDEX forge_jobs_lane   ON forge_jobs (in_lane) WHERE in_lane IS NOT NULL;

-- Payloads over 2 KB: written once instead of with every move of their job.
CREATE TABLE forge_bodies (
    job     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

-- Who holds a dedupe key; until is set once that job has ended.
CREATE TABLE forge_dedupe (
    kind  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    job   INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX forge_dedupe_until ON forge_dedupe (until) WHERE until IS NOT NULL;

-- Running jobs that were asked to stop, by who has to hear it.
CREATE TABLE forge_cancels (
    owner INTEGER NOT NULL,
    job   INTEGER NOT NULL,
    PRIMARY KEY (owner, job)
) WITHOUT ROWID;

-- What handlers wrote.
CREATE TABLE forge_logs (
    id      INTEGER PRIMARY KEY,
    job     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT    NOT NULL,
    message TEXT    NOT NULL
);
CREATE INDEX forge_logs_job ON forge_logs (job);

-- Jobs by queue, kind and state, for all keys up to forge_marks.folded.
CREATE TABLE forge_counts (
    queue  TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    status TEXT    NOT NULL,
    jobs   INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, status)
) WITHOUT ROWID;

-- What happened in each writing transaction: one line, a JSON list (core.tally.Minute). Lines are
-- folded into minutes and totals soon after; readers add those that are not.
CREATE TABLE forge_ledger (
    id   INTEGER PRIMARY KEY,
    told TEXT NOT NULL
);

-- What happened per minute, and over all time, as JSON.
CREATE TABLE forge_minutes (
    at    INTEGER NOT NULL,
    queue TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    told  TEXT    NOT NULL,
    PRIMARY KEY (at, queue, kind)
) WITHOUT ROWID;

CREATE TABLE forge_totals (
    queue TEXT NOT NULL,
    kind  TEXT NOT NULL,
    told  TEXT NOT NULL,
    PRIMARY KEY (queue, kind)
) WITHOUT ROWID;

-- How worker processes fared per minute, as JSON (core.vitals.Vitals).
CREATE TABLE forge_vitals (
    at      INTEGER NOT NULL,
    host_id TEXT    NOT NULL,
    told    TEXT    NOT NULL,
    PRIMARY KEY (at, host_id)
) WITHOUT ROWID;

-- Who did what, as JSON (core.audit.AuditEntry).
CREATE TABLE forge_audit (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    at   INTEGER NOT NULL,
    told TEXT    NOT NULL
);
CREATE INDEX forge_audit_by_age ON forge_audit (at);

-- One row. folded: jobs with a higher key are not yet in counts and minutes and perhaps not in line,
-- and nothing but an enqueue has happened to them.
CREATE TABLE forge_marks (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    folded          INTEGER NOT NULL,
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

-- Limits of queues and tasks: what code declared or an operator set, and the starts saved up.
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

-- Throttle gates of queues and, as scope:…, of scopes; a queue has one whether or not it has settings.
CREATE TABLE forge_gates (
    queue TEXT PRIMARY KEY,
    until INTEGER,
    count INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE forge_kinds (
    kind  TEXT PRIMARY KEY,
    queue TEXT NOT NULL
) WITHOUT ROWID;

-- Worker processes. AUTOINCREMENT: the key of a dead process is never given to another.
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

-- What each process may use of a queue's slots, and what is kept from the others for its sake.
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

-- The last ticks of each schedule; a fire leaves FIRES_KEPT of them.
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

CREATE TABLE forge_buckets (
    scope        TEXT PRIMARY KEY,
    capacity     REAL NOT NULL,
    refill_per_s REAL NOT NULL,
    tokens       REAL NOT NULL,
    at           INTEGER NOT NULL
) WITHOUT ROWID;
