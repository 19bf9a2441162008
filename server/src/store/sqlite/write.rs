//! A commit's appends as few statements, each for all of them: what a commit costs hardly grows with its company.

use agentloop_core::id::{EntryNo, Epoch, RunId, SessionId, TenantId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use super::facts::{Encoded, Facts, KnownRun, KnownSession, RunChange, RunFact, SessionFact};
use super::known::Known;
use super::statements::{Form, Statements, Value};
use super::{rows, search};
use crate::store::StoreError;
use crate::store::codec::{EncodedEvent, int, text};

pub(super) const SELECT_FACTS: &str = "
    SELECT j.key AS place, r.epoch, r.last_seq, r.session_id, r.queue_no,
           s.last_entry, s.live_run, s.last_queue_no, s.created_at, s.updated_at,
           (SELECT max(search_no) FROM session_entries WHERE search_no IS NOT NULL) AS last_search_no
    FROM json_each(?) AS j
    LEFT JOIN runs AS r ON r.tenant = j.value ->> 0 AND r.run_id = j.value ->> 1
    LEFT JOIN sessions AS s ON s.tenant = j.value ->> 0 AND s.session_id = j.value ->> 2";

pub(super) static WRITE_SESSIONS: Form = Form {
    before: "
    INSERT INTO sessions (tenant, session_id, last_entry, live_run, last_queue_no, created_at, updated_at)
    SELECT * FROM ",
    columns: 7,
    after: " WHERE column1 IS NOT NULL
    ON CONFLICT (tenant, session_id) DO UPDATE
    SET last_entry = excluded.last_entry, live_run = excluded.live_run,
        last_queue_no = excluded.last_queue_no, updated_at = excluded.updated_at",
    of_two: 2,
};

pub(super) static INSERT_RUNS: Form = Form {
    before: "
    INSERT INTO runs (tenant, run_id, session_id, epoch, last_seq, status, wake_at, error, usage, iterations,
                      tool_calls, request_digest, agent, model, labels, created_at, updated_at, queue_no, at_hosts)
    SELECT * FROM ",
    columns: 19,
    after: " WHERE column1 IS NOT NULL",
    of_two: 1,
};

pub(super) static UPDATE_RUNS: Form = Form {
    before: "
    UPDATE runs
    SET last_seq = v.column3, status = v.column4, wake_at = v.column5, error = v.column6, usage = v.column7,
        iterations = v.column8, tool_calls = v.column9, updated_at = v.column10, queue_no = v.column11,
        at_hosts = v.column12
    FROM ",
    columns: 12,
    after: " AS v WHERE runs.tenant = v.column1 AND runs.run_id = v.column2",
    of_two: 2,
};

pub(super) static INSERT_EVENTS: Form = Form {
    before: "
    INSERT INTO run_events (tenant, run_id, seq, at, kind, status, version, payload)
    SELECT * FROM ",
    columns: 8,
    after: " WHERE column1 IS NOT NULL",
    of_two: 6,
};

pub(super) static INSERT_ENTRIES: Form = Form {
    before: "
    INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq, search_no)
    SELECT * FROM ",
    columns: 6,
    after: " WHERE column1 IS NOT NULL",
    of_two: 2,
};

pub(super) static INSERT_REQUESTS: Form = Form {
    before: "
    INSERT INTO human_requests (tenant, request_id, run_id, session_id, asked_at, asked_seq)
    SELECT * FROM ",
    columns: 6,
    after: " WHERE column1 IS NOT NULL",
    of_two: 2,
};

pub(super) static ANSWER_REQUESTS: Form = Form {
    before: "
    UPDATE human_requests
    SET answered_seq = v.column4
    FROM ",
    columns: 4,
    after: " AS v
    WHERE human_requests.tenant = v.column1
      AND human_requests.request_id = v.column2
      AND human_requests.run_id = v.column3",
    of_two: 2,
};

pub(super) static INSERT_RULES: Form = Form {
    before: "
    INSERT INTO remembered_rules (tenant, rule_id, session_id, request_id, rule, decided_by, decided_at)
    SELECT * FROM ",
    columns: 7,
    after: " WHERE column1 IS NOT NULL",
    of_two: 2,
};

pub(super) static INSERT_JOBS: Form = Form {
    before: "
    INSERT INTO jobs (tenant, run_id, kind, session_id, due_at)
    SELECT * FROM ",
    columns: 5,
    after: " WHERE column1 IS NOT NULL
    ON CONFLICT (tenant, run_id, kind) DO NOTHING",
    of_two: 2,
};

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
        if known.last_search_no.is_none() {
            unknown.push(*append);
        } else if let (Some(run), Some(session)) = (run, session) {
            let run = RunFact { known: run.clone(), change: None };
            facts.runs.insert(append.run.clone(), run);
            let session = SessionFact { known: session.clone(), changed: false };
            facts.sessions.insert(append.session.clone(), session);
        } else if !known.are_new(append) {
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
    let sessions = facts.sessions.iter().filter(|(_, session)| session.changed);
    let rows = sessions.map(|((tenant, id), SessionFact { known, .. })| {
        [
            tenant.shared().into(),
            id.shared().into(),
            int(known.last_entry.0).into(),
            known.live_run.as_ref().map(RunId::shared).into(),
            int(known.last_queue_no).into(),
            int(known.created_at.0).into(),
            int(known.updated_at.0).into(),
        ]
    });
    statements.push(&WRITE_SESSIONS, rows);
}

fn write_runs(statements: &mut Statements, facts: &Facts<'_>) {
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for ((tenant, id), RunFact { known, change }) in &facts.runs {
        let Some(change) = change else { continue };
        match new_run(tenant, id, known, change) {
            Some(row) => inserts.push(row),
            None => updates.push(moved_run(tenant, id, known, change)),
        }
    }
    statements.push(&INSERT_RUNS, inserts);
    statements.push(&UPDATE_RUNS, updates);
}

fn new_run(tenant: &TenantId, id: &RunId, run: &KnownRun, change: &RunChange<'_>) -> Option<[Value; 19]> {
    let (create, created_at) = change.created?;
    let [last_seq, status, wake_at, error, usage, iterations, tool_calls, updated_at, queue_no, at_hosts] =
        standing(run, change);
    Some([
        tenant.shared().into(),
        id.shared().into(),
        run.session.shared().into(),
        int(run.epoch.0).into(),
        last_seq,
        status,
        wake_at,
        error,
        usage,
        iterations,
        tool_calls,
        create.request_digest.as_str().to_owned().into(),
        create.agent.clone().into(),
        create.model.clone().into(),
        text(&create.labels).into(),
        int(created_at.0).into(),
        updated_at,
        queue_no,
        at_hosts,
    ])
}

fn moved_run(tenant: &TenantId, id: &RunId, run: &KnownRun, change: &RunChange<'_>) -> [Value; 12] {
    let [last_seq, status, wake_at, error, usage, iterations, tool_calls, updated_at, queue_no, at_hosts] =
        standing(run, change);
    [
        tenant.shared().into(),
        id.shared().into(),
        last_seq,
        status,
        wake_at,
        error,
        usage,
        iterations,
        tool_calls,
        updated_at,
        queue_no,
        at_hosts,
    ]
}

/// What of a run's row changes.
fn standing(run: &KnownRun, change: &RunChange<'_>) -> [Value; 10] {
    let summary = change.summary;
    [
        int(run.last_seq.0).into(),
        summary.status.as_str().into(),
        summary.wake_at.map(|at| int(at.0)).into(),
        summary.error.as_ref().map(text).into(),
        text(&summary.usage).into(),
        i64::from(summary.iterations).into(),
        i64::from(summary.tool_calls).into(),
        int(change.updated_at.0).into(),
        run.queue_no.map(int).into(),
        i64::from(summary.at_hosts).into(),
    ]
}

fn write_events(statements: &mut Statements, accepted: &[&Encoded]) {
    let events = accepted.iter().flat_map(|append| append.events.iter().map(move |event| (*append, event)));
    statements.push(&INSERT_EVENTS, events.map(|(append, event)| event_values(append, event)));
}

fn event_values(append: &Encoded, event: &EncodedEvent) -> [Value; 8] {
    [
        append.run.0.shared().into(),
        append.run.1.shared().into(),
        event.seq.into(),
        event.at.into(),
        event.kind.into(),
        event.status.into(),
        event.version.into(),
        event.payload.clone().into(),
    ]
}

async fn write_entries(
    db: &mut SqliteConnection,
    statements: &mut Statements,
    accepted: &[&Encoded],
    last_search_no: &mut u64,
) -> Result<(), sqlx::Error> {
    let numbers = search::write(db, statements, accepted, last_search_no).await?;
    let entries = accepted.iter().flat_map(|append| append.entries.iter().map(move |new| (append, new)));
    let rows = entries.zip(numbers).map(|((append, new), number)| {
        [
            append.session.0.shared().into(),
            append.session.1.shared().into(),
            int(new.entry.0).into(),
            append.run.1.shared().into(),
            int(new.seq.0).into(),
            number.into(),
        ]
    });
    statements.push(&INSERT_ENTRIES, rows);
    Ok(())
}

fn write_requests(statements: &mut Statements, accepted: &[&Encoded]) {
    let asked = accepted.iter().flat_map(|append| append.asked.iter().map(move |asked| (append, asked)));
    let rows = asked.map(|(append, (request, at, seq))| {
        [
            append.run.0.shared().into(),
            request.shared().into(),
            append.run.1.shared().into(),
            append.session.1.shared().into(),
            int(at.0).into(),
            int(seq.0).into(),
        ]
    });
    statements.push(&INSERT_REQUESTS, rows);
    let answered = accepted.iter().flat_map(|append| append.answered.iter().map(move |done| (append, done)));
    let rows = answered.map(|(append, (request, seq))| {
        [
            append.run.0.shared().into(),
            request.shared().into(),
            append.run.1.shared().into(),
            int(seq.0).into(),
        ]
    });
    statements.push(&ANSWER_REQUESTS, rows);
}

fn write_rules(statements: &mut Statements, accepted: &[&Encoded]) {
    let rules = accepted.iter().flat_map(|append| append.remembered.iter().map(move |row| (append, row)));
    let rows = rules.map(|(append, row)| {
        [
            append.run.0.shared().into(),
            row.id.shared().into(),
            row.session.as_ref().map(SessionId::shared).into(),
            row.request.shared().into(),
            text(&row.rule).into(),
            row.by.clone().into(),
            int(row.at.0).into(),
        ]
    });
    statements.push(&INSERT_RULES, rows);
}

fn write_jobs(statements: &mut Statements, accepted: &[&Encoded]) {
    let jobs = accepted.iter().flat_map(|append| append.jobs.iter().map(move |kind| (append, kind)));
    let rows = jobs.map(|(append, kind)| {
        [
            append.run.0.shared().into(),
            append.run.1.shared().into(),
            kind.to_string().into(),
            append.session.1.shared().into(),
            int(append.ended_at.0).into(),
        ]
    });
    statements.push(&INSERT_JOBS, rows);
}
