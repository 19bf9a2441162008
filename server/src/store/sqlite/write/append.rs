//! Appends of a commit as SQL: one statement per table for all of them, so that many cost little more than one.

use agentloop_core::id::{EntryNo, Epoch, SessionId, SessionKey};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use crate::store::StoreError;
use crate::store::sqlite::rows;
use crate::store::sqlite::write::batch::{BoundValue, WriteBatch};
use crate::store::sqlite::write::statements::{
    ANSWER_REQUESTS, INSERT_BLOBS, INSERT_ENTRIES, INSERT_EVENTS, INSERT_JOBS, INSERT_REQUESTS, INSERT_RULES,
    INSERT_RUNS, INSERT_SESSIONS, INSERT_SPECS, INSERT_STEERS, INSERT_TODOS, SELECT_HEADS, UPDATE_RUNS,
    UPDATE_SESSIONS, changed_run, changed_session, new_run, new_session,
};
use crate::store::support::append::{
    CachedRows, ClosedQuestion, CommitRows, EncodedAppend, LastNumbers, LiveRun, NewEntry, NewQuestion,
    NewSteer, NewTodos, NumberedAppend, RunHead, RunInCommit, RunValues, SessionChange, SessionHead,
    SessionInCommit, SessionValues, WriterCache,
};
use crate::store::support::checksum;
use crate::store::support::codec::{EncodedEvent, text};
use crate::store::support::number::int;

/// The appends of a commit: which are accepted, and what that writes.
pub(in crate::store::sqlite) struct CommitPlan<'a> {
    /// One for each append, in order.
    pub(in crate::store::sqlite) replies: Vec<Result<(), StoreError>>,
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
    let CachedRows { mut rows, missing, .. } = cache.rows(appends, false);
    if !missing.is_empty() {
        read_rows(db, &missing, &mut rows).await?;
    }
    let replies: Vec<_> = appends.iter().map(|append| rows.accept(append)).collect();
    let accepted: Vec<_> = appends
        .iter()
        .zip(&replies)
        .filter(|(_, reply)| reply.is_ok())
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
    Ok(CommitPlan { replies, batch, rows })
}

/// Adds the rows of these appends' runs and sessions, and the last numbers.
async fn read_rows(
    db: &mut SqliteConnection,
    appends: &[&EncodedAppend],
    rows: &mut CommitRows<'_>,
) -> Result<(), sqlx::Error> {
    let keys: Vec<_> =
        appends.iter().map(|append| (&append.run.tenant, &append.run.run, &append.session.session)).collect();
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
    for (key, SessionInCommit { head, change, created_by }) in &rows.sessions {
        match change {
            SessionChange::None => {}
            SessionChange::Created(at) => {
                inserts.push(new_session(key, SessionValues::of(head), *at, created_by.clone()));
            }
            SessionChange::Updated => updates.push(changed_session(SessionValues::of(head))),
        }
    }
    batch.push(&INSERT_SESSIONS, inserts);
    batch.push(&UPDATE_SESSIONS, updates);
}

fn write_runs(batch: &mut WriteBatch, rows: &CommitRows<'_>) {
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for (key, RunInCommit { head, update }) in &rows.runs {
        let Some(update) = update else { continue };
        let run = RunValues::of(head, update);
        match update.created {
            Some(created) => {
                let session_no = rows.session_no(&SessionKey::new(key.tenant.clone(), head.session.clone()));
                inserts.push(new_run(key, session_no, head.epoch, run, &created));
            }
            None => updates.push(changed_run(run)),
        }
    }
    batch.push(&INSERT_RUNS, inserts);
    batch.push(&UPDATE_RUNS, updates);
}

fn write_events(batch: &mut WriteBatch, accepted: &[NumberedAppend<'_>]) {
    let events =
        accepted.iter().flat_map(|new| new.append.events.iter().map(move |event| (new.run_no, event)));
    batch.push(&INSERT_EVENTS, events.map(|(run, event)| event_values(run, event)));
}

fn event_values(run: i64, event: &EncodedEvent) -> [BoundValue; 7] {
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
    let rows = jobs.map(|(new, kind)| {
        let tenant = new.append.run.tenant.shared();
        [new.run_no.into(), kind.to_string().into(), tenant.into(), int(new.append.ended_at.0).into()]
    });
    batch.push(&INSERT_JOBS, rows);
}
