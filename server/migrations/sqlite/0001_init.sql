-- Times are milliseconds since the Unix epoch. JSON columns hold the server's own types as text.
-- Every key begins with the tenant. The journal, run_events, is the truth; the other tables are derived from it, or
-- find things in it.

-- "AGLP": tells our files from other people's.
PRAGMA application_id = 0x41474C50;

-- What the server knows of this file: the epoch that each start raises, and whether the last one closed it.
CREATE TABLE meta (
    key   TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('epoch', 0), ('clean', 1), ('checks', 0);

-- Conversations. live_run is the one run that may add entries now.
CREATE TABLE sessions (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    title      TEXT    NOT NULL DEFAULT '',
    labels     TEXT    NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_entry INTEGER NOT NULL DEFAULT 0,
    live_run   TEXT,
    PRIMARY KEY (tenant, session_id)
) STRICT, WITHOUT ROWID;

-- The list of sessions, the last touched first.
CREATE INDEX sessions_by_update ON sessions (tenant, updated_at, session_id);

-- One row per run: who owns it (epoch), how far its journal goes (last_seq), and what lists show of it.
-- error, usage and labels are JSON.
CREATE TABLE runs (
    tenant         TEXT    NOT NULL,
    run_id         TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    epoch          INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    wake_at        INTEGER,
    error          TEXT,
    usage          TEXT    NOT NULL,
    iterations     INTEGER NOT NULL,
    tool_calls     INTEGER NOT NULL,
    request_digest TEXT    NOT NULL,
    agent          TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    labels         TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, run_id),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, session_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The list of runs, newest first, of all sessions or of one.
CREATE INDEX runs_by_creation ON runs (tenant, created_at, run_id);
CREATE INDEX runs_by_session ON runs (tenant, session_id, created_at, run_id);

-- What a start has to continue. Queries repeat these conditions word for word, else the index is not used.
CREATE INDEX runs_unfinished ON runs (tenant, run_id)
    WHERE status NOT IN ('completed', 'failed', 'aborted', 'awaiting_human', 'paused') AND wake_at IS NULL;

-- What waits for a time.
CREATE INDEX runs_due ON runs (wake_at, tenant, run_id)
    WHERE wake_at IS NOT NULL;

-- The journal: every durable fact about a run, dense from 1. payload is the event as JSON, version its format.
CREATE TABLE run_events (
    tenant  TEXT    NOT NULL,
    run_id  TEXT    NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    status  TEXT    NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT    NOT NULL,
    PRIMARY KEY (tenant, run_id, seq),
    FOREIGN KEY (tenant, run_id) REFERENCES runs (tenant, run_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Where in the journal each message of a session stands. The message itself is there and nowhere else.
CREATE TABLE session_entries (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    entry_no   INTEGER NOT NULL CHECK (entry_no > 0),
    run_id     TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, entry_no),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, session_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Where in the journal each question to a human and its answer stand. Open while answered_seq is null.
CREATE TABLE human_requests (
    tenant       TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    run_id       TEXT    NOT NULL,
    session_id   TEXT    NOT NULL,
    asked_at     INTEGER NOT NULL,
    asked_seq    INTEGER NOT NULL,
    answered_seq INTEGER,
    PRIMARY KEY (tenant, request_id),
    FOREIGN KEY (tenant, run_id) REFERENCES runs (tenant, run_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The questions of one run, also when it is deleted.
CREATE INDEX human_requests_by_run ON human_requests (tenant, run_id);

-- The inbox, oldest first.
CREATE INDEX human_requests_open ON human_requests (tenant, asked_at, request_id)
    WHERE answered_seq IS NULL;

-- Tools that hosts have declared, so that a restart knows what will come back. declaration is JSON.
CREATE TABLE tools (
    tenant      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    declaration TEXT    NOT NULL,
    last_seen   INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- For people with a SQL shell: every tool call that was taken up, and how it ended if it did.
CREATE VIEW tool_calls AS
SELECT
    proposed.tenant,
    proposed.run_id,
    (proposed.payload ->> '$.slot[0]') || '.' || (proposed.payload ->> '$.slot[1]') AS call,
    proposed.payload ->> '$.tool'                                                   AS tool,
    proposed.payload ->> '$.effect'                                                 AS effect,
    proposed.at                                                                     AS proposed_at,
    settled.at                                                                      AS settled_at,
    settled.payload ->> '$.message.parts[0].status'                                 AS status,
    settled.payload ->> '$.host'                                                    AS host,
    settled.payload ->> '$.attempt'                                                 AS attempts,
    settled.payload ->> '$.duration'                                                AS duration_ms,
    settled.payload ->> '$.message.parts[0].output'                                 AS output
FROM run_events AS proposed
LEFT JOIN run_events AS settled
    ON settled.tenant = proposed.tenant
    AND settled.run_id = proposed.run_id
    AND settled.kind = 'call_settled'
    AND settled.payload -> '$.slot' = proposed.payload -> '$.slot'
WHERE proposed.kind = 'call_proposed';
