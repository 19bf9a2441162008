//! An append: all of it, or nothing.

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, RequestId, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::{EntryContent, Event, Record};
use agentloop_core::run::human::{Answer, PartialApproval, RememberScope};
use agentloop_core::time::Timestamp;
use agentloop_server::store::{
    Append, CreateRun, EntryRow, EntrySource, Job, JobId, RequestRow, RuleRow, RunRow, StoreError,
};

use super::tables::{Run, Session, Tables};

/// Places in a queue above this are those of runs that do not interrupt.
pub(super) const ORDINARY_QUEUE_NO: u64 = 1 << 40;

impl Tables {
    /// # Panics
    /// When the records are none, or not dense.
    pub(super) fn append(&mut self, append: Append) -> Result<(), StoreError> {
        let dense = append.records.iter().zip(append.after.0 + 1..).all(|(record, seq)| record.seq.0 == seq);
        assert!(dense && !append.records.is_empty(), "records are dense");
        match &append.create {
            Some(create) => self.may_create(&append, create)?,
            None => self.may_continue(&append)?,
        }
        self.may_enter(&append)?;
        self.entries_follow(&append)?;
        self.carry_out(append);
        Ok(())
    }

    fn may_create(&self, append: &Append, create: &CreateRun) -> Result<(), StoreError> {
        if self.run(&append.tenant, &append.run).is_some() {
            return Err(StoreError::RunExists);
        }
        let session_is_there = self.session(&append.tenant, &append.session).is_some();
        let overlooks = || {
            session_is_there
                || self.steered(&append.tenant, &append.run).is_some()
                || !self.rules(&append.tenant, None).is_empty()
        };
        if create.is_blind && overlooks() {
            return Err(StoreError::SessionMoved);
        }
        if append.after != Seq(0) {
            return Err(StoreError::Conflict);
        }
        let has_session = create.create_session || session_is_there;
        has_session.then_some(()).ok_or(StoreError::NoSession)
    }

    fn may_continue(&self, append: &Append) -> Result<(), StoreError> {
        let run = self.run(&append.tenant, &append.run).ok_or(StoreError::Conflict)?;
        let owns = run.epoch == append.epoch && run.row.last_seq == append.after;
        (owns && run.row.session == append.session).then_some(()).ok_or(StoreError::Conflict)
    }

    fn may_enter(&self, append: &Append) -> Result<(), StoreError> {
        let Some(last) = append.enter else { return Ok(()) };
        let row = self.session(&append.tenant, &append.session).map(|session| &session.row);
        match row.and_then(|row| row.live_run.clone()) {
            Some(run) => Err(StoreError::SessionBusy { run }),
            None if row.map_or(EntryNo(0), |row| row.last_entry) != last => Err(StoreError::SessionMoved),
            None => Ok(()),
        }
    }

    fn entries_follow(&self, append: &Append) -> Result<(), StoreError> {
        let row = self.session(&append.tenant, &append.session).map(|session| &session.row);
        let lives = row.is_some_and(|row| row.live_run.as_ref() == Some(&append.run));
        let mut last = row.map_or(EntryNo(0), |row| row.last_entry);
        for (entry, _) in append.records.iter().filter_map(|record| record.event.entry()) {
            if append.enter.is_none() && !lives {
                return Err(StoreError::Conflict);
            }
            if entry != last.next() {
                return Err(StoreError::SessionMoved);
            }
            last = entry;
        }
        Ok(())
    }

    fn carry_out(&mut self, append: Append) {
        let Append { tenant, run, session, epoch, records, summary, create, enter, jobs, .. } = append;
        let (first, last) = (&records[0], &records[records.len() - 1]);
        let (began_at, ended_at) = (first.at, last.at);
        let finished = records.iter().any(|record| matches!(record.event, Event::Finished { .. }));
        let place = self.sessions.entry((tenant.clone(), session.clone()));
        let of_session = place.or_insert_with(|| Session::new(session.clone(), began_at));
        let row = self.runs.entry(RunKey::new(tenant.clone(), run.clone())).or_insert_with(|| {
            let create = create.expect("only a run that is created is new");
            let queue_no = (enter.is_none() && !finished).then(|| {
                of_session.last_queue_no += 1;
                of_session.last_queue_no + if create.interrupts { 0 } else { ORDINARY_QUEUE_NO }
            });
            let row = new_row(&run, &session, create, &summary, began_at, queue_no);
            Run { epoch, row, records: Vec::new() }
        });
        row.row.updated_at = ended_at;
        row.row.last_seq = last.seq;
        row.row.summary = summary;
        if enter.is_some() || finished {
            row.row.queue_no = None;
        }
        row.records.extend(records.iter().cloned());
        if enter.is_some() {
            of_session.row.live_run = Some(run.clone());
        }
        let entries: Vec<EntryRow> =
            records.iter().filter_map(|record| entry(&run, &row.row.model, &row.records, record)).collect();
        if let Some(last) = entries.last() {
            of_session.row.last_entry = last.entry;
            of_session.row.updated_at = of_session.row.updated_at.max(ended_at);
        }
        of_session.entries.extend(entries);
        for record in &records {
            if let Event::TodosUpdated { result, items, .. } = &record.event {
                of_session.todos.insert(*result, items.to_vec());
            }
        }
        if finished && of_session.row.live_run.as_ref() == Some(&run) {
            of_session.row.live_run = None;
        }
        for kind in jobs {
            let id = JobId { tenant: tenant.clone(), run: run.clone(), kind };
            let (session, due_at) = (session.clone(), ended_at);
            let job = Job { id: id.clone(), session, due_at, attempts: 0, error: None };
            self.jobs.entry(id).or_insert(job);
        }
        records.iter().for_each(|record| self.note(&tenant, &run, &session, record));
    }

    /// Updates the tables that are derived from the journal.
    fn note(&mut self, tenant: &TenantId, run: &RunId, session: &SessionId, record: &Record) {
        match &record.event {
            Event::HumanRequested { question, .. } => {
                let (run, session, question) = (run.clone(), session.clone(), question.clone());
                let key = (tenant.clone(), question.request.clone());
                self.requests
                    .insert(key, RequestRow { run, session, question, answer: None, approvals: Vec::new() });
            }
            Event::HumanApproved { request, by, .. } => {
                if let Some(row) = self.requests.get_mut(&(tenant.clone(), request.clone())) {
                    row.approvals.push(PartialApproval { by: by.clone(), at: record.at });
                }
            }
            Event::HumanResolved { request, answer, .. } => {
                if let Some(row) = self.requests.get_mut(&(tenant.clone(), request.clone())) {
                    row.answer = Some(answer.clone());
                }
                if let Some(row) = rule(session, request, answer) {
                    self.rules.insert((tenant.clone(), row.id.clone()), row);
                }
            }
            _ => {}
        }
    }
}

fn new_row(
    run: &RunId,
    session: &SessionId,
    create: CreateRun,
    summary: &agentloop_server::store::RunSummary,
    created_at: Timestamp,
    queue_no: Option<u64>,
) -> RunRow {
    RunRow {
        run: run.clone(),
        session: session.clone(),
        request_digest: create.request_digest,
        agent: create.agent,
        model: create.model,
        labels: create.labels,
        preview: create.preview,
        created_by: create.created_by,
        created_at,
        updated_at: created_at,
        last_seq: Seq(0),
        queue_no,
        summary: summary.clone(),
    }
}

/// The entry that an event adds: where its content is, is where it was said.
fn entry(run: &RunId, model: &str, journal: &[Record], record: &Record) -> Option<EntryRow> {
    let (entry, added) = record.event.entry()?;
    let holder = match added {
        EntryContent::Own => record,
        EntryContent::Held(seq) => journal.iter().find(|held| held.seq == seq)?,
    };
    let content: Entry = holder.event.content()?;
    let source = EntrySource::of(&holder.event, model);
    Some(EntryRow { entry, run: run.clone(), seq: holder.seq, at: holder.at, content, source })
}

/// The rule that an answer leaves for later runs, if any.
fn rule(session: &SessionId, request: &RequestId, answer: &Answer) -> Option<RuleRow> {
    let remembered = answer.remembered.as_deref()?;
    let session = match remembered.scope {
        RememberScope::Run => return None,
        RememberScope::Session => Some(session.clone()),
        RememberScope::Tenant => None,
    };
    Some(RuleRow {
        id: request.rule(answer.at),
        session,
        request: request.clone(),
        rule: remembered.rule.clone(),
        by: answer.by.clone(),
        at: answer.at,
    })
}
