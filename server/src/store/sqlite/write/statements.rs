//! The SQL of appends: one statement per table for all appends of a commit. The rows of many columns stand beside their statement.

use agentloop_core::id::{Epoch, RunKey, SessionKey};
use agentloop_core::time::Timestamp;

use crate::store::sqlite::write::batch::{BatchStatement, BoundValue};
use crate::store::support::append::{RunCreation, RunValues, SessionValues};
use crate::store::support::codec::text;
use crate::store::support::number::int;

pub(in crate::store::sqlite) const SELECT_HEADS: &str = "
    SELECT j.key AS append_index, r.run_no, r.epoch, r.last_seq, r.queue_no,
           (SELECT session_id FROM sessions WHERE session_no = r.session_no) AS session_id,
           s.session_no, s.last_entry, s.live_run_no, s.last_queue_no, s.updated_at,
           (SELECT run_id FROM runs WHERE run_no = s.live_run_no) AS live_run,
           (SELECT max(run_no) FROM runs) AS last_run, (SELECT max(session_no) FROM sessions) AS last_session,
           max((SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL),
               coalesce((SELECT value FROM meta WHERE key = 'last_document'), 0)) AS last_document
    FROM json_each(?) AS j
    LEFT JOIN runs AS r ON r.tenant = j.value ->> 0 AND r.run_id = j.value ->> 1
    LEFT JOIN sessions AS s ON s.tenant = j.value ->> 0 AND s.session_id = j.value ->> 2";

pub(in crate::store::sqlite) static INSERT_SPECS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO specs (digest, spec)
    SELECT * FROM ",
    columns: 2,
    after: " WHERE column1 IS NOT NULL
    ON CONFLICT (digest) DO NOTHING",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_SESSIONS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO sessions (session_no, tenant, session_id, last_entry, live_run_no, last_queue_no, updated_at,
                          created_at, created_by)
    SELECT * FROM ",
    columns: 9,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

/// A row of [`INSERT_SESSIONS`].
pub(in crate::store::sqlite) fn new_session(
    SessionKey { tenant, session: id }: &SessionKey,
    session: SessionValues,
    created_at: Timestamp,
    created_by: Option<String>,
) -> [BoundValue; 9] {
    [
        session.no.into(),
        tenant.shared().into(),
        id.shared().into(),
        session.last_entry.into(),
        session.live_run.into(),
        session.last_queue_no.into(),
        session.updated_at.into(),
        int(created_at.0).into(),
        created_by.into(),
    ]
}

pub(in crate::store::sqlite) static UPDATE_SESSIONS: BatchStatement = BatchStatement {
    before: "
    UPDATE sessions
    SET last_entry = v.column2, live_run_no = v.column3, last_queue_no = v.column4, updated_at = v.column5
    FROM ",
    columns: 5,
    after: " AS v WHERE sessions.session_no = v.column1",
    rows_per_append: 1,
};

/// A row of [`UPDATE_SESSIONS`].
pub(in crate::store::sqlite) fn changed_session(session: SessionValues) -> [BoundValue; 5] {
    [
        session.no.into(),
        session.last_entry.into(),
        session.live_run.into(),
        session.last_queue_no.into(),
        session.updated_at.into(),
    ]
}

pub(in crate::store::sqlite) static INSERT_RUNS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO runs (run_no, last_seq, status, goes_on, at_hosts, wake_at, queue_no, error, usage, iterations,
                      tool_calls, updated_at, tenant, run_id, session_no, epoch, request_digest, agent, model, labels,
                      created_at, spec_no, preview, created_by, bytes)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10,
           column11, column12, column13, column14, column15, column16, column17, column18, column19, column20,
           column21, iif(column22 IS NULL, NULL, coalesce((SELECT spec_no FROM specs WHERE digest = column22), 0)),
           column23, column24, column25
    FROM ",
    columns: 25,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

/// A row of [`INSERT_RUNS`].
pub(in crate::store::sqlite) fn new_run(
    RunKey { tenant, run: id }: &RunKey,
    session_no: i64,
    epoch: Epoch,
    run: RunValues,
    RunCreation { create, spec, at }: &RunCreation<'_>,
) -> [BoundValue; 25] {
    [
        run.no.into(),
        run.last_seq.into(),
        run.status.into(),
        run.goes_on.into(),
        run.at_hosts.into(),
        run.wake_at.into(),
        run.queue_no.into(),
        run.error.into(),
        run.usage.into(),
        run.iterations.into(),
        run.tool_calls.into(),
        run.updated_at.into(),
        tenant.shared().into(),
        id.shared().into(),
        session_no.into(),
        int(epoch.0).into(),
        create.request_digest.as_str().to_owned().into(),
        create.agent.clone().into(),
        create.model.clone().into(),
        text(&create.labels).into(),
        int(at.0).into(),
        spec.map(|spec| spec.digest.as_str().to_owned()).into(),
        create.preview.clone().into(),
        create.created_by.clone().into(),
        run.bytes.into(),
    ]
}

pub(in crate::store::sqlite) static UPDATE_RUNS: BatchStatement = BatchStatement {
    before: "
    UPDATE runs
    SET last_seq = v.column2, status = v.column3, goes_on = v.column4, at_hosts = v.column5, wake_at = v.column6,
        queue_no = v.column7, error = v.column8, usage = v.column9, iterations = v.column10,
        tool_calls = v.column11, updated_at = v.column12, bytes = bytes + v.column13
    FROM ",
    columns: 13,
    after: " AS v WHERE runs.run_no = v.column1",
    rows_per_append: 1,
};

/// A row of [`UPDATE_RUNS`].
pub(in crate::store::sqlite) fn changed_run(run: RunValues) -> [BoundValue; 13] {
    [
        run.no.into(),
        run.last_seq.into(),
        run.status.into(),
        run.goes_on.into(),
        run.at_hosts.into(),
        run.wake_at.into(),
        run.queue_no.into(),
        run.error.into(),
        run.usage.into(),
        run.iterations.into(),
        run.tool_calls.into(),
        run.updated_at.into(),
        run.bytes.into(),
    ]
}

pub(in crate::store::sqlite) static INSERT_EVENTS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO run_events (run_no, seq, at, status, version, payload, checksum)
    SELECT * FROM ",
    columns: 7,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 3,
};

pub(in crate::store::sqlite) static INSERT_ENTRIES: BatchStatement = BatchStatement {
    before: "
    INSERT INTO session_entries (session_no, entry_no, run_no, seq, search_no)
    SELECT * FROM ",
    columns: 5,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_REQUESTS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO human_requests (run_no, question, tenant, asked_at, asked_seq)
    SELECT * FROM ",
    columns: 5,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static ANSWER_REQUESTS: BatchStatement = BatchStatement {
    before: "
    UPDATE human_requests
    SET answered_seq = v.column3
    FROM ",
    columns: 3,
    after: " AS v
    WHERE human_requests.run_no = v.column1 AND human_requests.question = v.column2",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_STEERS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO steers (tenant, request_id, run_no, seq)
    SELECT * FROM ",
    columns: 4,
    after: " WHERE column1 IS NOT NULL
    ON CONFLICT (tenant, request_id) DO NOTHING",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_RULES: BatchStatement = BatchStatement {
    before: "
    INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at, checksum)
    SELECT * FROM ",
    columns: 8,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_JOBS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO jobs (run_no, kind, tenant, due_at)
    SELECT * FROM ",
    columns: 4,
    after: " WHERE column1 IS NOT NULL
    ON CONFLICT (run_no, kind) DO NOTHING",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_TODOS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO session_todos (session_no, entry_no, items)
    SELECT * FROM ",
    columns: 3,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

/// A result may name a blob twice.
pub(in crate::store::sqlite) static INSERT_BLOBS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO session_blobs (session_no, entry_no, digest)
    SELECT * FROM ",
    columns: 3,
    after: " WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
    rows_per_append: 1,
};
