//! A commit's appends as few statements, each for all of them: what a commit costs hardly grows with its company.
//!
//! Narrow rows travel as one JSON array, so that the text of their statement, and with it the prepared statement, is
//! always the same. Events carry their payload and are bound one by one, since packing megabytes once more costs more
//! than it saves.

use agentloop_core::id::{EntryNo, Epoch, RunId};
use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::facts::{Encoded, Facts, KnownRun, KnownSession, RunChange, RunFact, SessionFact};
use super::known::Known;
use super::statements::{Statements, Value};
use super::{rows, search};
use crate::store::StoreError;
use crate::store::codec::{EncodedEvent, int, text};

/// Rows of one INSERT of events. Each number below it is a prepared statement of its own.
const EVENTS_PER_INSERT_MAX: usize = 32;

const INSERT_EVENTS: &str =
    "INSERT INTO run_events (tenant, run_id, seq, at, kind, status, version, payload) VALUES";
/// The values of one event.
const PLACES: &str = "(?,?,?,?,?,?,?,?)";

pub(super) const SELECT_FACTS: &str = "
    SELECT j.key AS place, r.epoch, r.last_seq, r.session_id, r.queue_no,
           s.last_entry, s.live_run, s.last_queue_no, s.created_at, s.updated_at,
           (SELECT max(search_no) FROM session_entries WHERE search_no IS NOT NULL) AS last_search_no
    FROM json_each(?) AS j
    LEFT JOIN runs AS r ON r.tenant = j.value ->> 0 AND r.run_id = j.value ->> 1
    LEFT JOIN sessions AS s ON s.tenant = j.value ->> 0 AND s.session_id = j.value ->> 2";

pub(super) const WRITE_SESSIONS: &str = "
    INSERT INTO sessions (tenant, session_id, last_entry, live_run, last_queue_no, created_at, updated_at)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5,
           j.value ->> 6
    FROM json_each(?) AS j WHERE true
    ON CONFLICT (tenant, session_id) DO UPDATE
    SET last_entry = excluded.last_entry, live_run = excluded.live_run,
        last_queue_no = excluded.last_queue_no, updated_at = excluded.updated_at";

pub(super) const INSERT_RUNS: &str = "
    INSERT INTO runs (tenant, run_id, session_id, epoch, last_seq, status, wake_at, error, usage, iterations,
                      tool_calls, request_digest, agent, model, labels, created_at, updated_at, queue_no, at_hosts)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5,
           j.value ->> 6, j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, j.value ->> 11,
           j.value ->> 12, j.value ->> 13, j.value ->> 14, j.value ->> 15, j.value ->> 16, j.value ->> 17,
           j.value ->> 18
    FROM json_each(?) AS j";

pub(super) const UPDATE_RUNS: &str = "
    UPDATE runs
    SET last_seq = j.value ->> 2, status = j.value ->> 3, wake_at = j.value ->> 4, error = j.value ->> 5,
        usage = j.value ->> 6, iterations = j.value ->> 7, tool_calls = j.value ->> 8, updated_at = j.value ->> 9,
        queue_no = j.value ->> 10, at_hosts = j.value ->> 11
    FROM json_each(?) AS j
    WHERE runs.tenant = j.value ->> 0 AND runs.run_id = j.value ->> 1";

pub(super) const INSERT_ENTRIES: &str = "
    INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq, search_no)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5
    FROM json_each(?) AS j";

pub(super) const INSERT_REQUESTS: &str = "
    INSERT INTO human_requests (tenant, request_id, run_id, session_id, asked_at, asked_seq)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5
    FROM json_each(?) AS j";

pub(super) const ANSWER_REQUESTS: &str = "
    UPDATE human_requests
    SET answered_seq = j.value ->> 3
    FROM json_each(?) AS j
    WHERE human_requests.tenant = j.value ->> 0
      AND human_requests.request_id = j.value ->> 1
      AND human_requests.run_id = j.value ->> 2";

pub(super) const INSERT_RULES: &str = "
    INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6
    FROM json_each(?) AS j";

pub(super) const INSERT_JOBS: &str = "
    INSERT INTO jobs (tenant, run_id, kind, session_id, due_at)
    SELECT j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4
    FROM json_each(?) AS j WHERE true
    ON CONFLICT (tenant, run_id, kind) DO NOTHING";

/// What is to become of some appends.
pub(super) struct Decided<'a> {
    /// One for each append, in order.
    pub(super) answers: Vec<Result<(), StoreError>>,
    /// What the accepted ones write.
    pub(super) statements: Statements,
    /// What holds once that is written.
    pub(super) facts: Facts<'a>,
}

/// Decides on appends. Writes nothing yet, and reads only what is not known.
///
/// # Errors
/// SQL's own.
pub(super) async fn decide<'a>(
    db: &mut SqliteConnection,
    known: &Known,
    appends: &[&'a Encoded],
) -> Result<Decided<'a>, sqlx::Error> {
    let mut facts = facts(db, known, appends).await?;
    let answers: Vec<_> = appends.iter().map(|append| facts.accept(append)).collect();
    let accepted: Vec<&Encoded> = appends
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_ok())
        .map(|(append, _)| *append)
        .collect();
    let mut statements = Statements::default();
    write_sessions(&mut statements, &facts);
    write_runs(&mut statements, &facts);
    write_events(&mut statements, &accepted);
    write_entries(db, &mut statements, &accepted, &mut facts.last_search_no).await?;
    write_requests(&mut statements, &accepted);
    write_rules(&mut statements, &accepted);
    write_jobs(&mut statements, &accepted);
    Ok(Decided { answers, statements, facts })
}

async fn facts<'a>(
    db: &mut SqliteConnection,
    known: &Known,
    appends: &[&'a Encoded],
) -> Result<Facts<'a>, sqlx::Error> {
    let mut facts = Facts { last_search_no: known.last_search_no.unwrap_or_default(), ..Facts::default() };
    let mut unknown = Vec::new();
    for append in appends {
        let (run, session) = (known.runs.get(&append.run), known.sessions.get(&append.session));
        if let (Some(run), Some(session)) = (run, session)
            && known.last_search_no.is_some()
        {
            let run = RunFact { known: run.clone(), change: None };
            facts.runs.insert(append.run.clone(), run);
            let session = SessionFact { known: session.clone(), changed: false };
            facts.sessions.insert(append.session.clone(), session);
        } else {
            unknown.push(*append);
        }
    }
    if !unknown.is_empty() {
        read_facts(db, &unknown, &mut facts).await?;
    }
    Ok(facts)
}

async fn read_facts(
    db: &mut SqliteConnection,
    appends: &[&Encoded],
    facts: &mut Facts<'_>,
) -> Result<(), sqlx::Error> {
    let keys: Vec<_> =
        appends.iter().map(|append| (&append.run.0, &append.run.1, &append.session.1)).collect();
    for row in sqlx::query(SELECT_FACTS).bind(text(&keys)).fetch_all(db).await? {
        let append = appends[row.try_get::<u32, _>("place")? as usize];
        facts.last_search_no = row.try_get::<Option<u64>, _>("last_search_no")?.unwrap_or(0);
        if let Some(known) = known_run(&row)? {
            facts.runs.insert(append.run.clone(), RunFact { known, change: None });
        }
        if let Some(known) = known_session(&row)? {
            facts.sessions.insert(append.session.clone(), SessionFact { known, changed: false });
        }
    }
    Ok(())
}

fn known_run(row: &SqliteRow) -> Result<Option<KnownRun>, sqlx::Error> {
    let Some(epoch) = row.try_get::<Option<u64>, _>("epoch")? else { return Ok(None) };
    Ok(Some(KnownRun {
        epoch: Epoch(epoch),
        last_seq: rows::seq(row, "last_seq")?,
        session: rows::session_id(row, "session_id")?,
        queue_no: row.try_get("queue_no")?,
    }))
}

fn known_session(row: &SqliteRow) -> Result<Option<KnownSession>, sqlx::Error> {
    let Some(last_entry) = row.try_get::<Option<u64>, _>("last_entry")? else { return Ok(None) };
    Ok(Some(KnownSession {
        last_entry: EntryNo(last_entry),
        live_run: rows::live_run(row)?,
        last_queue_no: rows::number(row, "last_queue_no")?,
        created_at: rows::time(row, "created_at")?,
        updated_at: rows::time(row, "updated_at")?,
    }))
}

fn write_sessions(statements: &mut Statements, facts: &Facts<'_>) {
    let sessions: Vec<_> = facts
        .sessions
        .iter()
        .filter(|(_, session)| session.changed)
        .map(|((tenant, id), SessionFact { known, .. })| {
            let (created_at, updated_at) = (int(known.created_at.0), int(known.updated_at.0));
            let (last_entry, last_queue_no) = (int(known.last_entry.0), int(known.last_queue_no));
            (tenant, id, last_entry, &known.live_run, last_queue_no, created_at, updated_at)
        })
        .collect();
    statements.many(WRITE_SESSIONS, &sessions);
}

fn write_runs(statements: &mut Statements, facts: &Facts<'_>) {
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for ((tenant, id), RunFact { known, change }) in &facts.runs {
        let Some(change) = change else { continue };
        match new_run(tenant.as_str(), id, known, change) {
            Some(row) => inserts.push(row),
            None => updates.push(moved_run(tenant.as_str(), id, known, change)),
        }
    }
    statements.many(INSERT_RUNS, &inserts);
    statements.many(UPDATE_RUNS, &updates);
}

fn new_run(tenant: &str, id: &RunId, run: &KnownRun, change: &RunChange<'_>) -> Option<serde_json::Value> {
    let (create, created_at) = change.created?;
    let summary = change.summary;
    Some(json!([
        tenant,
        id,
        run.session,
        int(run.epoch.0),
        int(run.last_seq.0),
        summary.status.as_str(),
        summary.wake_at.map(|at| int(at.0)),
        summary.error.as_ref().map(text),
        text(&summary.usage),
        summary.iterations,
        summary.tool_calls,
        create.request_digest,
        create.agent,
        create.model,
        text(&create.labels),
        int(created_at.0),
        int(change.updated_at.0),
        run.queue_no,
        i32::from(summary.at_hosts),
    ]))
}

fn moved_run(tenant: &str, id: &RunId, run: &KnownRun, change: &RunChange<'_>) -> serde_json::Value {
    let summary = change.summary;
    json!([
        tenant,
        id,
        int(run.last_seq.0),
        summary.status.as_str(),
        summary.wake_at.map(|at| int(at.0)),
        summary.error.as_ref().map(text),
        text(&summary.usage),
        summary.iterations,
        summary.tool_calls,
        int(change.updated_at.0),
        run.queue_no,
        i32::from(summary.at_hosts),
    ])
}

fn write_events(statements: &mut Statements, accepted: &[&Encoded]) {
    let events: Vec<(&Encoded, &EncodedEvent)> =
        accepted.iter().flat_map(|append| append.events.iter().map(move |event| (*append, event))).collect();
    for chunk in events.chunks(EVENTS_PER_INSERT_MAX) {
        let sql = format!("{INSERT_EVENTS} {PLACES}{}", format!(",{PLACES}").repeat(chunk.len() - 1));
        statements.push(sql, chunk.iter().flat_map(|(append, event)| event_values(append, event)).collect());
    }
}

fn event_values(append: &Encoded, event: &EncodedEvent) -> [Value; 8] {
    [
        Value::Text(append.run.0.as_str().to_owned()),
        Value::Text(append.run.1.as_str().to_owned()),
        Value::Int(event.seq),
        Value::Int(event.at),
        Value::Static(event.kind),
        Value::Static(event.status),
        Value::Int(event.version),
        Value::Shared(event.payload.clone()),
    ]
}

async fn write_entries(
    db: &mut SqliteConnection,
    statements: &mut Statements,
    accepted: &[&Encoded],
    last_search_no: &mut u64,
) -> Result<(), sqlx::Error> {
    let numbers = search::write(db, statements, accepted, last_search_no).await?;
    let entries: Vec<_> = accepted
        .iter()
        .flat_map(|append| append.entries.iter().map(move |new| (append, int(new.entry.0), int(new.seq.0))))
        .zip(numbers)
        .map(|((append, entry, seq), number)| {
            (&append.session.0, &append.session.1, entry, &append.run.1, seq, number)
        })
        .collect();
    statements.many(INSERT_ENTRIES, &entries);
    Ok(())
}

fn write_requests(statements: &mut Statements, accepted: &[&Encoded]) {
    let asked: Vec<_> = accepted
        .iter()
        .flat_map(|append| append.asked.iter().map(move |asked| (append, asked)))
        .map(|(append, (request, at, seq))| {
            (&append.run.0, request, &append.run.1, &append.session.1, int(at.0), int(seq.0))
        })
        .collect();
    statements.many(INSERT_REQUESTS, &asked);
    let answered: Vec<_> = accepted
        .iter()
        .flat_map(|append| append.answered.iter().map(move |answered| (append, answered)))
        .map(|(append, (request, seq))| (&append.run.0, request, &append.run.1, int(seq.0)))
        .collect();
    statements.many(ANSWER_REQUESTS, &answered);
}

fn write_rules(statements: &mut Statements, accepted: &[&Encoded]) {
    let rules: Vec<_> = accepted
        .iter()
        .flat_map(|append| append.remembered.iter().map(move |row| (&append.run.0, row)))
        .map(|(tenant, row)| {
            (tenant, &row.id, &row.session, &row.request, text(&row.rule), &row.by, int(row.at.0))
        })
        .collect();
    statements.many(INSERT_RULES, &rules);
}

fn write_jobs(statements: &mut Statements, accepted: &[&Encoded]) {
    let jobs: Vec<_> = accepted
        .iter()
        .flat_map(|append| append.jobs.iter().map(move |kind| (append, kind)))
        .map(|(append, kind)| {
            (&append.run.0, &append.run.1, kind.to_string(), &append.session.1, int(append.ended_at.0))
        })
        .collect();
    statements.many(INSERT_JOBS, &jobs);
}
