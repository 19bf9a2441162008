-- Runs and sessions have numbers, by which all other tables refer to them: the ids, which clients choose, are stored
-- once, and rows of the same time stand side by side. Every table is made anew.

DROP VIEW tool_calls;

DROP INDEX sessions_by_update;
DROP INDEX runs_by_creation;
DROP INDEX runs_by_session;
DROP INDEX runs_unfinished;
DROP INDEX runs_due;
DROP INDEX runs_queued;
DROP INDEX run_events_steers;
DROP INDEX session_entries_lent;
DROP INDEX session_entries_kept;
DROP INDEX session_entries_searched;
DROP INDEX human_requests_by_run;
DROP INDEX human_requests_open;
DROP INDEX remembered_rules_by_session;
DROP INDEX jobs_due;

ALTER TABLE sessions RENAME TO old_sessions;
ALTER TABLE runs RENAME TO old_runs;
ALTER TABLE run_events RENAME TO old_run_events;
ALTER TABLE session_entries RENAME TO old_session_entries;
ALTER TABLE kept_events RENAME TO old_kept_events;
ALTER TABLE human_requests RENAME TO old_human_requests;
ALTER TABLE remembered_rules RENAME TO old_remembered_rules;
ALTER TABLE jobs RENAME TO old_jobs;

-- What the numbers of statuses mean.
CREATE TABLE statuses (
    status INTEGER NOT NULL PRIMARY KEY,
    name   TEXT    NOT NULL UNIQUE
) STRICT;

INSERT INTO statuses (status, name) VALUES
    (1, 'queued'), (2, 'preparing'), (3, 'model_running'), (4, 'tool_running'), (5, 'awaiting_human'),
    (6, 'backing_off'), (7, 'compacting'), (8, 'paused'), (9, 'completed'), (10, 'failed'), (11, 'aborted');

-- Conversations. live_run is the one run that may add entries now. queue_no: the last place in its queue that was given
-- out. made_title is the model's, which shows where nobody else gave one, and so is summary, which takes the entries
-- up to summary_upto into account. Of a fork: the session that it was made from, the last entry that both share, and
-- the entry that was asked for, where 0 meant all.
CREATE TABLE sessions (
    session_no    INTEGER NOT NULL PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    session_id    TEXT    NOT NULL,
    title         TEXT    NOT NULL DEFAULT '',
    labels        TEXT    NOT NULL DEFAULT '{}',
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    last_entry    INTEGER NOT NULL DEFAULT 0,
    last_queue_no INTEGER NOT NULL DEFAULT 0,
    live_run      TEXT,
    forked_from   TEXT,
    forked_at     INTEGER,
    forked_asked  INTEGER,
    made_title    TEXT    NOT NULL DEFAULT '',
    summary       TEXT    NOT NULL DEFAULT '',
    summary_upto  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, session_id)
) STRICT;

INSERT INTO sessions (tenant, session_id, title, labels, created_at, updated_at, last_entry, last_queue_no, live_run,
                      forked_from, forked_at, forked_asked, made_title, summary, summary_upto)
SELECT tenant, session_id, title, labels, created_at, updated_at, last_entry, last_queue_no, live_run,
       forked_from, forked_at, forked_asked, made_title, summary, summary_upto
FROM old_sessions ORDER BY created_at, tenant, session_id;

-- What first events say of how their runs are to behave, as JSON: the same for most runs of an agent, so it stands here
-- and not in the events, and goes with the last run that refers to it.
CREATE TABLE specs (
    spec_no INTEGER NOT NULL PRIMARY KEY,
    digest  TEXT    NOT NULL UNIQUE,
    spec    TEXT    NOT NULL
) STRICT;

-- One row per run: who owns it (epoch), how far its journal goes (last_seq), and what lists show of it. spec_no: what
-- its first event is to have as its spec; null where that has its own, as those of older servers have. goes_on: a start
-- has to continue it. at_hosts: hosts have calls of it, with which it goes on whatever its status. queue_no: its
-- place in its session's queue, lower first, until it enters the session or is over. error and labels are JSON, and so is
-- usage: input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens, cost_micros.
CREATE TABLE runs (
    run_no         INTEGER NOT NULL PRIMARY KEY,
    tenant         TEXT    NOT NULL,
    run_id         TEXT    NOT NULL,
    session_no     INTEGER NOT NULL REFERENCES sessions (session_no) ON DELETE CASCADE,
    spec_no        INTEGER CHECK (spec_no > 0),
    epoch          INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    status         INTEGER NOT NULL,
    goes_on        INTEGER NOT NULL,
    at_hosts       INTEGER NOT NULL,
    wake_at        INTEGER,
    queue_no       INTEGER,
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
    UNIQUE (tenant, run_id)
) STRICT;

INSERT INTO runs (tenant, run_id, session_no, epoch, last_seq, status, goes_on, at_hosts, wake_at, queue_no, error,
                  usage, iterations, tool_calls, request_digest, agent, model, labels, created_at, updated_at)
SELECT r.tenant, r.run_id, s.session_no, r.epoch, r.last_seq, st.status,
       (r.at_hosts = 1 OR r.status NOT IN ('completed', 'failed', 'aborted', 'awaiting_human', 'paused'))
           AND r.wake_at IS NULL AND r.queue_no IS NULL,
       r.at_hosts, r.wake_at, r.queue_no, r.error,
       json_array(
           coalesce(r.usage ->> '$.input_tokens', 0), coalesce(r.usage ->> '$.output_tokens', 0),
           coalesce(r.usage ->> '$.cached_input_tokens', 0), coalesce(r.usage ->> '$.cache_write_tokens', 0),
           coalesce(r.usage ->> '$.reasoning_tokens', 0), coalesce(r.usage ->> '$.cost_micros', 0)),
       r.iterations, r.tool_calls, r.request_digest, r.agent, r.model, r.labels, r.created_at, r.updated_at
FROM old_runs AS r
JOIN sessions AS s ON s.tenant = r.tenant AND s.session_id = r.session_id
LEFT JOIN statuses AS st ON st.name = r.status
ORDER BY r.created_at, r.tenant, r.run_id;

-- The journal: every durable fact about a run, dense from 1. payload is the event as JSON, version its format. Rows are
-- in the order in which they were written, so that a commit, whose events are of many runs, writes few pages.
CREATE TABLE run_events (
    event_no INTEGER NOT NULL PRIMARY KEY,
    run_no   INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    seq      INTEGER NOT NULL CHECK (seq > 0),
    at       INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    payload  TEXT    NOT NULL
) STRICT;

INSERT INTO run_events (run_no, seq, at, status, version, payload)
SELECT r.run_no, e.seq, e.at, st.status, e.version, e.payload
FROM runs AS r
CROSS JOIN old_run_events AS e ON e.tenant = r.tenant AND e.run_id = r.run_id
LEFT JOIN statuses AS st ON st.name = e.status
ORDER BY r.run_no, e.seq;

-- Events of deleted sessions that forks have as entries; each goes with the last entry that refers to it. keep is a
-- number per deletion, since the numbers of what was deleted may be used again.
CREATE TABLE kept_events (
    keep    INTEGER NOT NULL CHECK (keep > 0),
    run_no  INTEGER NOT NULL,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    run_id  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    status  INTEGER NOT NULL,
    version INTEGER NOT NULL,
    payload TEXT    NOT NULL,
    PRIMARY KEY (keep, run_no, seq)
) STRICT, WITHOUT ROWID;

-- The runs of kept events are gone, so their numbers are made up; keep was a number of its tenant.
CREATE TABLE old_kept_runs AS
SELECT tenant, keep AS old_keep, run_id,
       dense_rank() OVER (ORDER BY tenant, keep) AS keep,
       row_number() OVER (ORDER BY tenant, keep, run_id) AS run_no
FROM (SELECT DISTINCT tenant, keep, run_id FROM old_kept_events);

CREATE INDEX old_kept_runs_by_key ON old_kept_runs (tenant, old_keep, run_id);

INSERT INTO kept_events (keep, run_no, seq, run_id, at, status, version, payload)
SELECT k.keep, k.run_no, e.seq, e.run_id, e.at, st.status, e.version, e.payload
FROM old_kept_events AS e
JOIN old_kept_runs AS k ON k.tenant = e.tenant AND k.old_keep = e.keep AND k.run_id = e.run_id
LEFT JOIN statuses AS st ON st.name = e.status;

-- Where in the journal each message of a session stands. The message itself is there and nowhere else. Of a fork:
-- owner is the other session in whose run's journal the event is, keep says that it is in kept_events since that
-- session was deleted. search_no: the index's document of the entry, the same for all that share an event.
CREATE TABLE session_entries (
    session_no INTEGER NOT NULL REFERENCES sessions (session_no) ON DELETE CASCADE,
    entry_no   INTEGER NOT NULL CHECK (entry_no > 0),
    run_no     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    search_no  INTEGER,
    owner      INTEGER,
    keep       INTEGER,
    PRIMARY KEY (session_no, entry_no)
) STRICT, WITHOUT ROWID;

INSERT INTO session_entries (session_no, entry_no, run_no, seq, search_no, owner, keep)
SELECT s.session_no, i.entry_no, coalesce(k.run_no, r.run_no), i.seq, i.search_no, o.session_no, k.keep
FROM sessions AS s
CROSS JOIN old_session_entries AS i ON i.tenant = s.tenant AND i.session_id = s.session_id
LEFT JOIN old_kept_runs AS k ON k.tenant = i.tenant AND k.old_keep = i.keep AND k.run_id = i.run_id
LEFT JOIN runs AS r ON i.keep IS NULL AND r.tenant = i.tenant AND r.run_id = i.run_id
LEFT JOIN sessions AS o ON o.tenant = i.tenant AND o.session_id = i.owner
ORDER BY s.session_no, i.entry_no;

-- Requests that handed messages to a run under way, by the ids of the requests, and the event that holds the messages.
CREATE TABLE steers (
    tenant     TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    run_no     INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO steers (tenant, request_id, run_no, seq)
SELECT e.tenant, e.payload ->> '$.steer.id', r.run_no, e.seq
FROM old_run_events AS e
JOIN runs AS r ON r.tenant = e.tenant AND r.run_id = e.run_id
WHERE e.kind = 'input_held' AND e.payload ->> '$.steer.id' IS NOT NULL
ORDER BY r.run_no, e.seq;

-- Where in the journal each question to a human and its answer stand. Open while answered_seq is null.
CREATE TABLE human_requests (
    tenant       TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    run_no       INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    asked_at     INTEGER NOT NULL,
    asked_seq    INTEGER NOT NULL,
    answered_seq INTEGER,
    PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;

INSERT INTO human_requests (tenant, request_id, run_no, asked_at, asked_seq, answered_seq)
SELECT q.tenant, q.request_id, r.run_no, q.asked_at, q.asked_seq, q.answered_seq
FROM old_human_requests AS q
JOIN runs AS r ON r.tenant = q.tenant AND r.run_id = q.run_id;

-- Decisions that were remembered with their rules: derived from the answers in the journal, and deleted on their own.
-- session_id is null where the rule is for every run. rule is JSON.
CREATE TABLE remembered_rules (
    tenant     TEXT    NOT NULL,
    rule_id    TEXT    NOT NULL,
    session_id TEXT,
    request_id TEXT    NOT NULL,
    rule       TEXT    NOT NULL,
    decided_by TEXT    NOT NULL,
    decided_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, rule_id),
    FOREIGN KEY (tenant, session_id) REFERENCES sessions (tenant, session_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at)
SELECT tenant, rule_id, session_id, request_id, rule, decided_by, decided_at FROM old_remembered_rules;

-- Work that follows runs. A row is written with the end of its run and goes when the job is done; kind says what, and
-- of which hook or source. attempts are those that failed, error is why the last one did.
CREATE TABLE jobs (
    run_no   INTEGER NOT NULL REFERENCES runs (run_no) ON DELETE CASCADE,
    kind     TEXT    NOT NULL,
    due_at   INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    error    TEXT,
    PRIMARY KEY (run_no, kind)
) STRICT, WITHOUT ROWID;

INSERT INTO jobs (run_no, kind, due_at, attempts, error)
SELECT r.run_no, j.kind, j.due_at, j.attempts, j.error
FROM old_jobs AS j
JOIN runs AS r ON r.tenant = j.tenant AND r.run_id = j.run_id;

DROP TABLE old_jobs;
DROP TABLE old_remembered_rules;
DROP TABLE old_human_requests;
DROP TABLE old_session_entries;
DROP TABLE old_kept_runs;
DROP TABLE old_kept_events;
DROP TABLE old_run_events;
DROP TABLE old_runs;
DROP TABLE old_sessions;

-- A run's events, in their order.
CREATE UNIQUE INDEX run_events_by_run ON run_events (run_no, seq);

-- The list of sessions, the last touched first.
CREATE INDEX sessions_by_update ON sessions (tenant, updated_at);

-- The list of runs, newest first, of all sessions or of one.
CREATE INDEX runs_by_creation ON runs (tenant, created_at);
CREATE INDEX runs_by_session ON runs (session_no, created_at);

-- Whether any run has a spec still, when one of them is deleted.
CREATE INDEX runs_by_spec ON runs (spec_no)
    WHERE spec_no IS NOT NULL;

-- What a start has to continue.
CREATE INDEX runs_unfinished ON runs (goes_on)
    WHERE goes_on = 1;

-- What waits for a time.
CREATE INDEX runs_due ON runs (wake_at)
    WHERE wake_at IS NOT NULL;

-- A session's queue, in its order.
CREATE INDEX runs_queued ON runs (session_no, queue_no)
    WHERE queue_no IS NOT NULL;

-- What other sessions have of a session, when it is deleted.
CREATE INDEX session_entries_lent ON session_entries (owner, run_no, seq)
    WHERE owner IS NOT NULL;

-- Who has a kept event, when one of them is deleted.
CREATE INDEX session_entries_kept ON session_entries (keep, run_no, seq)
    WHERE keep IS NOT NULL;

-- The entries of a document, and the last number that was given out.
CREATE INDEX session_entries_searched ON session_entries (search_no)
    WHERE search_no IS NOT NULL;

-- What a run was steered by, and the questions that it asked, also when it is deleted.
CREATE INDEX steers_by_run ON steers (run_no);
CREATE INDEX human_requests_by_run ON human_requests (run_no);

-- The inbox, oldest first.
CREATE INDEX human_requests_open ON human_requests (tenant, asked_at, request_id)
    WHERE answered_seq IS NULL;

-- The rules of a session, or of every run, the oldest first.
CREATE INDEX remembered_rules_by_session ON remembered_rules (tenant, session_id, decided_at, rule_id);

-- What is due.
CREATE INDEX jobs_due ON jobs (due_at);

-- For people with a SQL shell: the journal with its ids, and every tool call that was taken up with how it ended, if
-- it did.
CREATE VIEW journal AS
SELECT r.tenant, s.session_id, r.run_id, e.seq, e.at, e.payload ->> '$.kind' AS kind, st.name AS status,
       iif(p.spec IS NULL, e.payload, json_set(e.payload, '$.spec', json(p.spec))) AS payload
FROM run_events AS e
JOIN runs AS r ON r.run_no = e.run_no
JOIN sessions AS s ON s.session_no = r.session_no
LEFT JOIN specs AS p ON e.seq = 1 AND p.spec_no = r.spec_no
LEFT JOIN statuses AS st ON st.status = e.status;

CREATE VIEW tool_calls AS
SELECT
    r.tenant,
    r.run_id,
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
JOIN runs AS r ON r.run_no = proposed.run_no
LEFT JOIN run_events AS settled
    ON settled.run_no = proposed.run_no
    AND settled.payload ->> '$.kind' = 'call_settled'
    AND settled.payload -> '$.slot' = proposed.payload -> '$.slot'
WHERE proposed.payload ->> '$.kind' = 'call_proposed';
