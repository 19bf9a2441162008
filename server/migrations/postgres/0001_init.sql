-- The store on PostgreSQL. It has the tables of the SQLite store, where they are explained further.
--
-- Times are milliseconds since the Unix epoch. JSON is text: it is the server's own, and jsonb would reorder it and refuse
-- "\u0000". The journal, run_events, is the truth; the other tables are derived from it, or find things in it.
-- There are no foreign keys: each would cost a look-up and a lock for every row of a commit. A deletion names every table.
-- shard says to which part of the sessions a row belongs, see docs/internals/replicas.md. One server owns all of them.

-- epoch: starts of servers. checks: writes that showed that writing works. documents: the last document that the search index
-- has.
CREATE TABLE meta (
    key   text   COLLATE "C" NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO meta (key, value) VALUES ('epoch', 0), ('checks', 0), ('documents', 0);

-- A server takes a block of numbers for the rows of its runs, sessions and documents, so that it knows them before it writes.
CREATE SEQUENCE number_blocks;

-- The server that writes now: one row for each start. Every commit changes this row first, under the condition that it is
-- there and has the number of the connection. batch is the number of the last commit: after a lost answer it says if the
-- commit happened.
CREATE TABLE owners (
    owner_no   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conn       bigint      NOT NULL DEFAULT 0,
    batch      bigint      NOT NULL DEFAULT 0,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- A copy of an SQLite database that is being made: its mark, and the last session that is there. Empty otherwise.
CREATE TABLE copied (
    source bigint NOT NULL,
    last   bigint NOT NULL
);

-- Ends a statement whose rows are not as the server has them in memory.
CREATE FUNCTION agentloop_must(is_so boolean, what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT is_so THEN
        RAISE EXCEPTION USING ERRCODE = 'AL001', MESSAGE = 'the database differs from the memory of its server: ' || what;
    END IF;
    RETURN true;
END $$;

-- Conversations. label_user and label_project are two of the labels, by which sessions are found.
CREATE TABLE sessions (
    session_no    bigint NOT NULL PRIMARY KEY,
    tenant        text   COLLATE "C" NOT NULL,
    session_id    text   COLLATE "C" NOT NULL,
    shard         bigint NOT NULL,
    title         text   COLLATE "C" NOT NULL DEFAULT '',
    labels        text   COLLATE "C" NOT NULL DEFAULT '{}',
    label_user    text   COLLATE "C",
    label_project text   COLLATE "C",
    created_as    text   COLLATE "C",
    created_by    text   COLLATE "C",
    created_at    bigint NOT NULL,
    updated_at    bigint NOT NULL,
    last_entry    bigint NOT NULL DEFAULT 0,
    last_queue_no bigint NOT NULL DEFAULT 0,
    live_run_no   bigint,
    forked_from   text   COLLATE "C",
    forked_at     bigint,
    forked_asked  bigint,
    made_title    text   COLLATE "C" NOT NULL DEFAULT '',
    summary       text   COLLATE "C" NOT NULL DEFAULT '',
    summary_upto  bigint NOT NULL DEFAULT 0,
    preview       text   COLLATE "C" NOT NULL DEFAULT '',
    UNIQUE (tenant, session_id)
) WITH (fillfactor = 70);

CREATE INDEX sessions_by_update ON sessions (tenant, updated_at, session_id);
CREATE INDEX sessions_by_author ON sessions (tenant, created_by, updated_at) WHERE created_by IS NOT NULL;
CREATE INDEX sessions_by_user ON sessions (tenant, label_user) WHERE label_user IS NOT NULL;
CREATE INDEX sessions_by_project ON sessions (tenant, label_project) WHERE label_project IS NOT NULL;
CREATE INDEX sessions_live ON sessions (live_run_no) WHERE live_run_no IS NOT NULL;

-- What first events say of how their runs are to behave, as JSON: the same for most runs of an agent.
CREATE TABLE specs (
    digest text COLLATE "C" NOT NULL PRIMARY KEY,
    spec   text COLLATE "C" NOT NULL
);

-- A run as it was created. What appends change is in run_states: a changed row is written anew, with all its indexes.
CREATE TABLE runs (
    run_no         bigint NOT NULL PRIMARY KEY,
    tenant         text   COLLATE "C" NOT NULL,
    run_id         text   COLLATE "C" NOT NULL,
    session_no     bigint NOT NULL,
    shard          bigint NOT NULL,
    spec_digest    text   COLLATE "C",
    request_digest text   COLLATE "C" NOT NULL,
    agent          text   COLLATE "C" NOT NULL,
    model          text   COLLATE "C" NOT NULL,
    labels         text   COLLATE "C" NOT NULL,
    preview        text   COLLATE "C" NOT NULL,
    created_by     text   COLLATE "C",
    created_at     bigint NOT NULL,
    UNIQUE (tenant, run_id)
);

CREATE INDEX runs_by_creation ON runs (tenant, created_at, run_id);
CREATE INDEX runs_by_session ON runs (session_no, created_at);
CREATE INDEX runs_by_author ON runs (tenant, created_by, created_at, run_id) WHERE created_by IS NOT NULL;
CREATE INDEX runs_by_spec ON runs (spec_digest) WHERE spec_digest IS NOT NULL;

-- Where a run stands. epoch: its owner's claim. goes_on: a start has to continue it. queue_no: its place in its session's
-- queue.
CREATE TABLE run_states (
    run_no     bigint  NOT NULL PRIMARY KEY,
    tenant     text    COLLATE "C" NOT NULL,
    session_no bigint  NOT NULL,
    shard      bigint  NOT NULL,
    epoch      bigint  NOT NULL,
    last_seq   bigint  NOT NULL,
    status     bigint  NOT NULL,
    goes_on    boolean NOT NULL,
    at_hosts   boolean NOT NULL,
    wake_at    bigint,
    queue_no   bigint,
    error      text    COLLATE "C",
    usage      text    COLLATE "C" NOT NULL,
    iterations bigint  NOT NULL,
    tool_calls bigint  NOT NULL,
    updated_at bigint  NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX runs_unfinished ON run_states (shard) WHERE goes_on;
CREATE INDEX runs_due ON run_states (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_queued ON run_states (session_no, queue_no) WHERE queue_no IS NOT NULL;
CREATE INDEX runs_by_end ON run_states (tenant, updated_at) WHERE status >= 9;
CREATE INDEX runs_paused ON run_states (tenant) WHERE status = 8;

CREATE VIEW run_rows AS
SELECT r.run_no, r.tenant, r.run_id, r.session_no, r.shard, r.spec_digest, r.request_digest, r.agent, r.model, r.labels,
       r.preview, r.created_by, r.created_at, t.epoch, t.last_seq, t.status, t.goes_on, t.at_hosts, t.wake_at, t.queue_no,
       t.error, t.usage, t.iterations, t.tool_calls, t.updated_at
FROM runs AS r
JOIN run_states AS t ON t.run_no = r.run_no;

-- The journal: every durable fact about a run, dense from 1. payload is the event as JSON, version its format.
CREATE TABLE run_events (
    run_no   bigint NOT NULL,
    seq      bigint NOT NULL CHECK (seq > 0),
    at       bigint NOT NULL,
    status   bigint NOT NULL,
    version  bigint NOT NULL,
    payload  text   COLLATE "C" NOT NULL,
    checksum bigint,
    PRIMARY KEY (run_no, seq)
);

-- Events of deleted sessions that forks have as entries. keep is the number of the deleted session.
CREATE TABLE kept_events (
    keep     bigint NOT NULL,
    run_no   bigint NOT NULL,
    seq      bigint NOT NULL,
    run_id   text   COLLATE "C" NOT NULL,
    at       bigint NOT NULL,
    status   bigint NOT NULL,
    version  bigint NOT NULL,
    payload  text   COLLATE "C" NOT NULL,
    checksum bigint,
    model    text   COLLATE "C" NOT NULL,
    PRIMARY KEY (keep, run_no, seq)
);

-- Where in the journal each message of a session stands. Of a fork: owner is the other session in whose run's journal the
-- event is, keep says that it is in kept_events. search_no: its document in the search index, which all have that share it.
CREATE TABLE session_entries (
    session_no bigint NOT NULL,
    entry_no   bigint NOT NULL CHECK (entry_no > 0),
    run_no     bigint NOT NULL,
    seq        bigint NOT NULL,
    search_no  bigint,
    owner      bigint,
    keep       bigint,
    PRIMARY KEY (session_no, entry_no)
);

CREATE INDEX session_entries_lent ON session_entries (owner) WHERE owner IS NOT NULL;
CREATE INDEX session_entries_kept ON session_entries (keep, run_no, seq) WHERE keep IS NOT NULL;
CREATE INDEX session_entries_searched ON session_entries (search_no) WHERE search_no IS NOT NULL;

-- Requests that handed messages to a run under way, by the ids of the requests, and the event that holds the messages.
CREATE TABLE steers (
    tenant     text   COLLATE "C" NOT NULL,
    request_id text   COLLATE "C" NOT NULL,
    run_no     bigint NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (tenant, request_id)
);

CREATE INDEX steers_by_run ON steers (run_no);

-- Where in the journal each question to a human and its answer stand. Open while answered_seq is null. A question's id is that
-- of its run, a colon and what stands here.
CREATE TABLE human_requests (
    run_no       bigint NOT NULL,
    question     text   COLLATE "C" NOT NULL,
    tenant       text   COLLATE "C" NOT NULL,
    asked_at     bigint NOT NULL,
    asked_seq    bigint NOT NULL,
    answered_seq bigint,
    PRIMARY KEY (run_no, question)
);

CREATE INDEX human_requests_open ON human_requests (tenant, asked_at) WHERE answered_seq IS NULL;

-- Decisions that were remembered with their rules. session_id is null where the rule is for every run. rule is JSON.
CREATE TABLE remembered_rules (
    tenant     text   COLLATE "C" NOT NULL,
    rule_id    text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C",
    request_id text   COLLATE "C" NOT NULL,
    rule       text   COLLATE "C" NOT NULL,
    decided_by text   COLLATE "C" NOT NULL,
    decided_at bigint NOT NULL,
    checksum   bigint,
    PRIMARY KEY (tenant, rule_id)
);

CREATE INDEX remembered_rules_by_session ON remembered_rules (tenant, session_id, decided_at, rule_id);

-- Work that follows runs.
CREATE TABLE jobs (
    run_no   bigint NOT NULL,
    kind     text   COLLATE "C" NOT NULL,
    due_at   bigint NOT NULL,
    attempts bigint NOT NULL DEFAULT 0,
    error    text   COLLATE "C",
    PRIMARY KEY (run_no, kind)
);

CREATE INDEX jobs_due ON jobs (due_at, run_no, kind);

-- To-do lists of sessions, each as it was after an entry. items is JSON.
CREATE TABLE session_todos (
    session_no bigint NOT NULL,
    entry_no   bigint NOT NULL,
    items      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session_no, entry_no)
);

-- Tools that hosts have declared. declaration and terms are JSON.
CREATE TABLE tools (
    tenant      text   COLLATE "C" NOT NULL,
    name        text   COLLATE "C" NOT NULL,
    declaration text   COLLATE "C" NOT NULL,
    last_seen   bigint NOT NULL,
    terms       text   COLLATE "C",
    checksum    bigint,
    PRIMARY KEY (tenant, name)
);

-- Contents that are too large for a message, by the digits of their SHA-256. owner is the caller that stored the blob where
-- callers see their own alone, else ''.
CREATE TABLE blobs (
    tenant     text   COLLATE "C" NOT NULL,
    digest     text   COLLATE "C" NOT NULL,
    owner      text   COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    media_type text   COLLATE "C" NOT NULL,
    touched_at bigint NOT NULL,
    PRIMARY KEY (tenant, digest, owner)
);

CREATE INDEX blobs_by_digest ON blobs (digest);

-- Where the bytes of a blob are: pieces of an upload, which ended or is under way. The upload that a digest has is in
-- blob_uploads.
CREATE TABLE blob_uploads (
    upload_no  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest     text   COLLATE "C" UNIQUE,
    began_at   bigint NOT NULL
);

CREATE TABLE blob_pieces (
    upload_no bigint NOT NULL,
    piece_no  bigint NOT NULL,
    bytes     bytea  NOT NULL,
    PRIMARY KEY (upload_no, piece_no)
);

-- The blobs that the entries of a session name.
CREATE TABLE session_blobs (
    session_no bigint NOT NULL,
    entry_no   bigint NOT NULL,
    digest     text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session_no, entry_no, digest)
);

CREATE INDEX session_blobs_by_digest ON session_blobs (digest);

-- What runs of deleted sessions have used, by the minute. sums is a JSON list like the column usage of run_states.
CREATE TABLE usage_kept (
    tenant     text   COLLATE "C" NOT NULL,
    minute     bigint NOT NULL,
    agent      text   COLLATE "C" NOT NULL,
    model      text   COLLATE "C" NOT NULL,
    labels     text   COLLATE "C" NOT NULL,
    created_by text   COLLATE "C",
    ended      bigint NOT NULL,
    error      text   COLLATE "C",
    sums       text   COLLATE "C" NOT NULL
);

CREATE INDEX usage_kept_by_time ON usage_kept (tenant, minute);

-- The audit log. Each row has the hash of the one before it.
CREATE TABLE audit (
    no         bigint  NOT NULL PRIMARY KEY,
    at         bigint  NOT NULL,
    who        text    COLLATE "C" NOT NULL,
    tenant     text    COLLATE "C" NOT NULL,
    peer       text    COLLATE "C" NOT NULL,
    what       text    COLLATE "C" NOT NULL,
    session_id text    COLLATE "C" NOT NULL,
    run_id     text    COLLATE "C" NOT NULL,
    request_id text    COLLATE "C" NOT NULL,
    tool       text    COLLATE "C" NOT NULL,
    allowed    boolean NOT NULL,
    why        text    COLLATE "C" NOT NULL,
    prev_hash  text    COLLATE "C" NOT NULL,
    hash       text    COLLATE "C" NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, no);

-- The search index: the words of messages, as the server takes texts apart, each reduced to its stem. There are no stop words:
-- in other languages they are words.
CREATE TEXT SEARCH DICTIONARY agentloop_stem (TEMPLATE = snowball, Language = english);
CREATE TEXT SEARCH CONFIGURATION agentloop (PARSER = pg_catalog."default");
ALTER TEXT SEARCH CONFIGURATION agentloop
    ADD MAPPING FOR asciiword, word, numword, hword, asciihword, numhword, hword_part, hword_asciipart, hword_numpart
    WITH agentloop_stem;
ALTER TEXT SEARCH CONFIGURATION agentloop
    ADD MAPPING FOR int, uint, float, sfloat, version, email, url, host, file, url_path, protocol, tag, entity
    WITH pg_catalog.simple;

CREATE TABLE search_documents (
    search_no bigint   NOT NULL PRIMARY KEY,
    words     tsvector NOT NULL
);

CREATE INDEX search_documents_by_word ON search_documents USING gin (words);

-- What the numbers of statuses mean.
CREATE TABLE statuses (
    status bigint NOT NULL PRIMARY KEY,
    name   text   NOT NULL UNIQUE
);

INSERT INTO statuses (status, name) VALUES
    (1, 'queued'), (2, 'preparing'), (3, 'model_running'), (4, 'tool_running'), (5, 'awaiting_human'),
    (6, 'backing_off'), (7, 'compacting'), (8, 'paused'), (9, 'completed'), (10, 'failed'), (11, 'aborted');

-- For people with a SQL shell: the journal with its ids. A first event has its spec beside it.
CREATE VIEW journal AS
SELECT r.tenant, s.session_id, r.run_id, e.seq, to_timestamp(e.at / 1000.0) AS at,
       substring(e.payload FROM '^\{"kind":"([a-z_]+)"') AS kind, st.name AS status, e.payload, p.spec
FROM run_events AS e
JOIN runs AS r ON r.run_no = e.run_no
JOIN sessions AS s ON s.session_no = r.session_no
LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
LEFT JOIN statuses AS st ON st.status = e.status;
