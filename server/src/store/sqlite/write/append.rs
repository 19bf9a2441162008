//! Appends of a commit as SQL: one statement per table for all of them, so that many cost little more than one.

use agentloop_core::id::{EntryNo, Epoch, RunId, RunKey, SessionId, TenantId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use crate::store::append::{
    CachedRows, ClosedQuestion, CommitRows, EncodedAppend, LastNumbers, LiveRun, NewEntry, NewQuestion,
    NewSteer, NewTodos, NumberedAppend, RunCreation, RunHead, RunInCommit, RunUpdate, SessionChange,
    SessionHead, SessionInCommit, WriterCache,
};
use crate::store::codec::{EncodedEvent, text, usage_text};
use crate::store::number::int;
use crate::store::sqlite::rows;
use crate::store::sqlite::write::batch::{BatchStatement, Value, WriteBatch};
use crate::store::{StoreError, checksum};

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

pub(in crate::store::sqlite) static UPDATE_SESSIONS: BatchStatement = BatchStatement {
    before: "
    UPDATE sessions
    SET last_entry = v.column2, live_run_no = v.column3, last_queue_no = v.column4, updated_at = v.column5
    FROM ",
    columns: 5,
    after: " AS v WHERE sessions.session_no = v.column1",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static INSERT_RUNS: BatchStatement = BatchStatement {
    before: "
    INSERT INTO runs (run_no, last_seq, status, goes_on, at_hosts, wake_at, queue_no, error, usage, iterations,
                      tool_calls, updated_at, tenant, run_id, session_no, epoch, request_digest, agent, model, labels,
                      created_at, spec_no, preview, created_by)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10,
           column11, column12, column13, column14, column15, column16, column17, column18, column19, column20,
           column21, iif(column22 IS NULL, NULL, coalesce((SELECT spec_no FROM specs WHERE digest = column22), 0)),
           column23, column24
    FROM ",
    columns: 24,
    after: " WHERE column1 IS NOT NULL",
    rows_per_append: 1,
};

pub(in crate::store::sqlite) static UPDATE_RUNS: BatchStatement = BatchStatement {
    before: "
    UPDATE runs
    SET last_seq = v.column2, status = v.column3, goes_on = v.column4, at_hosts = v.column5, wake_at = v.column6,
        queue_no = v.column7, error = v.column8, usage = v.column9, iterations = v.column10,
        tool_calls = v.column11, updated_at = v.column12
    FROM ",
    columns: 12,
    after: " AS v WHERE runs.run_no = v.column1",
    rows_per_append: 1,
};

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
    INSERT INTO jobs (run_no, kind, due_at)
    SELECT * FROM ",
    columns: 3,
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

/// The appends of a commit: which are accepted, and what that writes.
pub(in crate::store::sqlite) struct CommitPlan<'a> {
    /// One for each append, in order.
    pub(in crate::store::sqlite) answers: Vec<Result<(), StoreError>>,
    /// The writes of the accepted appends.
    pub(in crate::store::sqlite) batch: WriteBatch,
    /// The rows as the batch leaves them.
    pub(in crate::store::sqlite) rows: CommitRows<'a>,
}

/// Checks appends and plans the writes of those that are accepted. Writes nothing yet, and reads only the rows that are
/// not in the cache.
///
/// # Errors
/// SQL's own.
pub(in crate::store::sqlite) async fn plan<'a>(
    db: &mut SqliteConnection,
    cache: &WriterCache,
    appends: &[&'a EncodedAppend],
) -> Result<CommitPlan<'a>, sqlx::Error> {
    let CachedRows { mut rows, missing } = cache.rows(appends);
    if !missing.is_empty() {
        read_rows(db, &missing, &mut rows).await?;
    }
    let answers: Vec<_> = appends.iter().map(|append| rows.accept(append)).collect();
    let accepted: Vec<_> = appends
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_ok())
        .map(|(append, _)| rows.numbered(append))
        .collect();
    rows.collect_specs(|digest| cache.has_spec(digest));
    let documents = rows.number_documents(&accepted);
    let mut batch = WriteBatch::default();
    write_specs(&mut batch, &rows);
    write_sessions(&mut batch, &rows);
    write_runs(&mut batch, &rows);
    write_events(&mut batch, &accepted);
    write_entries(&mut batch, &accepted, documents);
    write_steers(&mut batch, &accepted);
    write_requests(&mut batch, &accepted);
    write_rules(&mut batch, &accepted);
    write_jobs(&mut batch, &accepted);
    write_todos(&mut batch, &accepted);
    write_blobs(&mut batch, &accepted);
    Ok(CommitPlan { answers, batch, rows })
}

/// Adds the rows of these appends' runs and sessions, and the last numbers.
async fn read_rows(
    db: &mut SqliteConnection,
    appends: &[&EncodedAppend],
    rows: &mut CommitRows<'_>,
) -> Result<(), sqlx::Error> {
    let keys: Vec<_> =
        appends.iter().map(|append| (&append.run.tenant, &append.run.run, &append.session.1)).collect();
    for row in sqlx::query(SELECT_HEADS).bind(text(&keys)).fetch_all(db).await? {
        let append = appends[row.try_get::<u32, _>("append_index")? as usize];
        rows.last = last_numbers(&row)?;
        if let Some(head) = run_head(&row)? {
            rows.runs.insert(append.run.clone(), RunInCommit::unchanged(head));
        }
        if let Some(head) = session_head(&row)? {
            rows.sessions.insert(append.session.clone(), SessionInCommit::unchanged(head));
        }
    }
    Ok(())
}

fn last_numbers(row: &SqliteRow) -> Result<LastNumbers, sqlx::Error> {
    let last = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0));
    Ok(LastNumbers {
        run: last("last_run")?,
        session: last("last_session")?,
        document: last("last_document")?,
    })
}

/// `None`: there is no such run.
fn run_head(row: &SqliteRow) -> Result<Option<RunHead>, sqlx::Error> {
    let Some(no) = row.try_get("run_no")? else { return Ok(None) };
    Ok(Some(RunHead {
        no,
        epoch: Epoch(rows::number(row, "epoch")?),
        last_seq: rows::seq(row, "last_seq")?,
        session: rows::session_id(row, "session_id")?,
        queue_no: row.try_get("queue_no")?,
    }))
}

/// `None`: there is no such session.
fn session_head(row: &SqliteRow) -> Result<Option<SessionHead>, sqlx::Error> {
    let Some(no) = row.try_get("session_no")? else { return Ok(None) };
    Ok(Some(SessionHead {
        no,
        last_entry: EntryNo(rows::number(row, "last_entry")?),
        live_run: live_run(row)?,
        last_queue_no: rows::number(row, "last_queue_no")?,
        updated_at: rows::time(row, "updated_at")?,
    }))
}

fn live_run(row: &SqliteRow) -> Result<Option<LiveRun>, sqlx::Error> {
    let Some(id) = rows::live_run(row)? else { return Ok(None) };
    Ok(Some(LiveRun { no: row.try_get("live_run_no")?, id }))
}

fn write_specs(batch: &mut WriteBatch, rows: &CommitRows<'_>) {
    let specs = rows.specs.iter();
    batch.push(
        &INSERT_SPECS,
        specs.map(|(digest, spec)| [digest.as_str().to_owned().into(), (*spec).to_owned().into()]),
    );
}

fn write_sessions(batch: &mut WriteBatch, rows: &CommitRows<'_>) {
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for ((tenant, id), SessionInCommit { head, change, created_by }) in &rows.sessions {
        let no = Value::Int(head.no);
        let [last_entry, live_run, last_queue_no, updated_at] = session_columns(head);
        match change {
            SessionChange::None => {}
            SessionChange::Created(at) => inserts.push([
                no,
                tenant.shared().into(),
                id.shared().into(),
                last_entry,
                live_run,
                last_queue_no,
                updated_at,
                int(at.0).into(),
                created_by.clone().into(),
            ]),
            SessionChange::Updated => updates.push([no, last_entry, live_run, last_queue_no, updated_at]),
        }
    }
    batch.push(&INSERT_SESSIONS, inserts);
    batch.push(&UPDATE_SESSIONS, updates);
}

/// The columns of a session's row that appends change, in the order of `UPDATE_SESSIONS`.
fn session_columns(session: &SessionHead) -> [Value; 4] {
    [
        int(session.last_entry.0).into(),
        session.live_run.as_ref().map(|live| live.no).into(),
        int(session.last_queue_no).into(),
        int(session.updated_at.0).into(),
    ]
}

fn write_runs(batch: &mut WriteBatch, rows: &CommitRows<'_>) {
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for (RunKey { tenant, run: id }, RunInCommit { head, update }) in &rows.runs {
        let Some(update) = update else { continue };
        match update.created {
            Some(created) => {
                let session_no = rows.session_no(&(tenant.clone(), head.session.clone()));
                inserts.push(new_run(
                    tenant,
                    id,
                    session_no,
                    run_columns(head, update),
                    &created,
                    head.epoch,
                ));
            }
            None => updates.push(run_columns(head, update)),
        }
    }
    batch.push(&INSERT_RUNS, inserts);
    batch.push(&UPDATE_RUNS, updates);
}

fn new_run(
    tenant: &TenantId,
    id: &RunId,
    session_no: i64,
    columns: [Value; 12],
    &RunCreation { create, spec, at }: &RunCreation<'_>,
    epoch: Epoch,
) -> [Value; 24] {
    let [
        no,
        last_seq,
        status,
        goes_on,
        at_hosts,
        wake_at,
        queue_no,
        error,
        usage,
        iterations,
        tool_calls,
        updated_at,
    ] = columns;
    [
        no,
        last_seq,
        status,
        goes_on,
        at_hosts,
        wake_at,
        queue_no,
        error,
        usage,
        iterations,
        tool_calls,
        updated_at,
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
    ]
}

/// A run's number and the columns of its row that appends change, in the order of `UPDATE_RUNS`.
fn run_columns(run: &RunHead, update: &RunUpdate<'_>) -> [Value; 12] {
    let summary = update.summary;
    [
        run.no.into(),
        int(run.last_seq.0).into(),
        i64::from(summary.status.code()).into(),
        i64::from(summary.goes_on() && run.queue_no.is_none()).into(),
        i64::from(summary.at_hosts).into(),
        summary.wake_at.map(|at| int(at.0)).into(),
        run.queue_no.map(int).into(),
        summary.error.as_ref().map(text).into(),
        usage_text(&summary.usage, &summary.calls).into(),
        i64::from(summary.iterations).into(),
        i64::from(summary.tool_calls).into(),
        int(update.updated_at.0).into(),
    ]
}

fn write_events(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let events =
        accepted.iter().flat_map(|new| new.append.events.iter().map(move |event| (new.run_no, event)));
    batch.push(&INSERT_EVENTS, events.map(|(run, event)| event_values(run, event)));
}

fn event_values(run: i64, event: &EncodedEvent) -> [Value; 7] {
    [
        run.into(),
        event.seq.into(),
        event.at.into(),
        i64::from(event.status.code()).into(),
        event.version.into(),
        event.payload.clone().into(),
        event.checksum.into(),
    ]
}

fn write_entries(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>], documents: Vec<Option<i64>>) {
    let entries = accepted.iter().flat_map(|new| new.append.entries.iter().map(move |entry| (new, entry)));
    let rows = entries.zip(documents).map(|((new, NewEntry { entry, seq, .. }), document)| {
        [new.session_no.into(), int(entry.0).into(), new.run_no.into(), int(seq.0).into(), document.into()]
    });
    batch.push(&INSERT_ENTRIES, rows);
}

fn write_steers(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let steers = accepted.iter().flat_map(|new| new.append.steers.iter().map(move |steer| (new, steer)));
    let rows = steers.map(|(new, NewSteer { request, seq })| {
        [new.append.run.tenant.shared().into(), request.shared().into(), new.run_no.into(), int(seq.0).into()]
    });
    batch.push(&INSERT_STEERS, rows);
}

fn write_requests(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let asked = accepted.iter().flat_map(|new| new.append.asked.iter().map(move |asked| (new, asked)));
    let rows = asked.map(|(new, NewQuestion { question, asked_at, seq })| {
        [
            new.run_no.into(),
            question.clone().into(),
            new.append.run.tenant.shared().into(),
            int(asked_at.0).into(),
            int(seq.0).into(),
        ]
    });
    batch.push(&INSERT_REQUESTS, rows);
    let answered = accepted.iter().flat_map(|new| new.append.answered.iter().map(move |done| (new, done)));
    let rows = answered.map(|(new, ClosedQuestion { question, seq })| {
        [new.run_no.into(), question.clone().into(), int(seq.0).into()]
    });
    batch.push(&ANSWER_REQUESTS, rows);
}

fn write_rules(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let rules = accepted.iter().flat_map(|new| new.append.remembered.iter().map(move |row| (new, row)));
    let rows = rules.map(|(new, row)| {
        let rule = text(&row.rule);
        let checksum = checksum::of_rule(&new.append.run.tenant, row, &rule);
        [
            new.append.run.tenant.shared().into(),
            row.id.shared().into(),
            row.session.as_ref().map(SessionId::shared).into(),
            row.request.shared().into(),
            rule.into(),
            row.by.clone().into(),
            int(row.at.0).into(),
            checksum.into(),
        ]
    });
    batch.push(&INSERT_RULES, rows);
}

fn write_todos(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let todos = accepted.iter().flat_map(|new| new.append.todos.iter().map(move |todos| (new, todos)));
    let rows = todos.map(|(new, NewTodos { entry, items })| {
        [new.session_no.into(), int(entry.0).into(), items.clone().into()]
    });
    batch.push(&INSERT_TODOS, rows);
}

fn write_blobs(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let blobs = accepted.iter().flat_map(|new| new.append.blobs.iter().map(move |blob| (new, blob)));
    let rows = blobs.map(|(new, (entry, digest))| {
        [new.session_no.into(), int(entry.0).into(), digest.digits().to_owned().into()]
    });
    batch.push(&INSERT_BLOBS, rows);
}

fn write_jobs(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let jobs = accepted.iter().flat_map(|new| new.append.jobs.iter().map(move |kind| (new, kind)));
    let rows = jobs
        .map(|(new, kind)| [new.run_no.into(), kind.to_string().into(), int(new.append.ended_at.0).into()]);
    batch.push(&INSERT_JOBS, rows);
}
