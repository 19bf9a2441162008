//! Whether an append may be made, decided on what is known of its run and session. No SQL here.
//!
//! **Invariant:** a refused append changes no fact, so whatever else shares its commit is not touched by it.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, Epoch, RequestId, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::message::Part;
use agentloop_core::run::event::{Added, Event};
use agentloop_core::run::human::{Answer, RememberScope};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use crate::store::codec::{self, EncodedEvent, EncodedSpec};
use crate::store::{Append, CreateRun, JobKind, RuleRow, RunSummary, StoreError};

/// Places in a queue above this are those of runs that do not interrupt.
pub(in crate::store::sqlite) const ORDINARY_QUEUE_NO: u64 = 1 << 40;

pub(in crate::store::sqlite) type SessionKey = (TenantId, SessionId);

/// An append with its events as rows, and what they mean for the tables beside the journal.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Encoded {
    pub(in crate::store::sqlite) run: RunKey,
    pub(in crate::store::sqlite) session: SessionKey,
    pub(in crate::store::sqlite) epoch: Epoch,
    pub(in crate::store::sqlite) after: Seq,
    pub(in crate::store::sqlite) last: Seq,
    pub(in crate::store::sqlite) began_at: Timestamp,
    pub(in crate::store::sqlite) ended_at: Timestamp,
    pub(in crate::store::sqlite) events: Vec<EncodedEvent>,
    /// What the first of them is stored without.
    pub(in crate::store::sqlite) spec: Option<EncodedSpec>,
    /// What enters the session, and by which event.
    pub(in crate::store::sqlite) entries: Vec<NewEntry>,
    /// Which questions a human is asked.
    pub(in crate::store::sqlite) asked: Vec<(String, Timestamp, Seq)>,
    /// Which questions a human was asked and is no more.
    pub(in crate::store::sqlite) answered: Vec<(String, Seq)>,
    /// What is remembered beyond the run.
    pub(in crate::store::sqlite) remembered: Vec<RuleRow>,
    /// The requests that hand the run messages, and where those are held.
    pub(in crate::store::sqlite) steers: Vec<(RunId, Seq)>,
    /// Whether the run is over with it.
    pub(in crate::store::sqlite) finished: bool,
    pub(in crate::store::sqlite) summary: RunSummary,
    pub(in crate::store::sqlite) create: Option<CreateRun>,
    pub(in crate::store::sqlite) enter: Option<EntryNo>,
    pub(in crate::store::sqlite) jobs: Vec<JobKind>,
}

impl Encoded {
    /// Done by the caller's task, so that the writer's time goes to writing.
    ///
    /// # Panics
    /// When the records are none, or not dense from `after`, or ask in another run's name: then the caller is lost.
    pub(in crate::store::sqlite) fn new(append: Append) -> Self {
        let (first, last) = match append.records.as_slice() {
            [first, .., last] | [first @ last] => (first, last),
            [] => panic!("an append has at least one record"),
        };
        let mut encoded = Self {
            began_at: first.at,
            ended_at: last.at,
            last: last.seq,
            run: RunKey::new(append.tenant.clone(), append.run),
            session: (append.tenant, append.session),
            epoch: append.epoch,
            after: append.after,
            events: Vec::with_capacity(append.records.len()),
            spec: None,
            entries: Vec::new(),
            asked: Vec::new(),
            answered: Vec::new(),
            remembered: Vec::new(),
            steers: Vec::new(),
            finished: false,
            summary: append.summary,
            create: append.create,
            enter: append.enter,
            jobs: append.jobs,
        };
        let mut seq = append.after;
        for record in &append.records {
            seq = seq.next();
            assert_eq!(record.seq, seq, "records are dense");
            encoded.note(seq, &record.event);
            let event = if encoded.create.is_some() && encoded.events.is_empty() {
                let (event, spec) = codec::encode_first(record);
                encoded.spec = spec;
                event
            } else {
                codec::encode(record)
            };
            encoded.events.push(event);
        }
        encoded
    }

    /// How much it adds to the journal.
    pub(in crate::store::sqlite) fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.payload.len()).sum()
    }

    fn note(&mut self, seq: Seq, event: &Event) {
        let is_searched = is_searched(event);
        match event.entry() {
            Some((entry, Added::Own)) => self.entries.push(NewEntry { entry, seq, is_searched }),
            Some((entry, Added::Held(seq))) => self.entries.push(NewEntry { entry, seq, is_searched }),
            None => {}
        }
        if let Event::HumanRequested { question } = event {
            self.asked.push((which(&self.run.run, &question.request), question.asked_at, seq));
        }
        if let Event::HumanResolved { request, answer, .. } = event {
            self.answered.push((which(&self.run.run, request), seq));
            self.remembered.extend(rule_row(&self.session.1, request, answer));
        }
        if let Event::InputHeld { steer: Some(steer), .. } = event {
            self.steers.push((steer.id.clone(), seq));
        }
        self.finished |= matches!(event, Event::Finished { .. });
    }
}

/// An entry to be written.
#[derive(Debug)]
pub(in crate::store::sqlite) struct NewEntry {
    pub(in crate::store::sqlite) entry: EntryNo,
    /// The event that has it.
    pub(in crate::store::sqlite) seq: Seq,
    /// Whether it is a message that searches find by its words, if it has any.
    pub(in crate::store::sqlite) is_searched: bool,
}

/// Whether the entry that this event adds is a message that searches find: one with text, or one that was held, which is
/// not looked into. The outputs of tools and what context sources said are none.
fn is_searched(event: &Event) -> bool {
    match event {
        Event::InputAdded { message, .. } | Event::AssistantMessage { message, .. } => {
            message.parts.iter().any(|part| matches!(part, Part::Text { .. }))
        }
        other => matches!(other.entry(), Some((_, Added::Held(_)))),
    }
}

/// The last numbers that were given out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::store::sqlite) struct Numbers {
    pub(in crate::store::sqlite) run: i64,
    pub(in crate::store::sqlite) session: i64,
    /// Of the documents of the search index.
    pub(in crate::store::sqlite) document: i64,
}

/// A run, as far as appends depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::sqlite) struct KnownRun {
    /// By which other tables refer to it.
    pub(in crate::store::sqlite) no: i64,
    pub(in crate::store::sqlite) epoch: Epoch,
    pub(in crate::store::sqlite) last_seq: Seq,
    pub(in crate::store::sqlite) session: SessionId,
    pub(in crate::store::sqlite) queue_no: Option<u64>,
}

/// A run in a commit.
#[derive(Debug)]
pub(in crate::store::sqlite) struct RunFact<'a> {
    pub(in crate::store::sqlite) known: KnownRun,
    /// What is to be written of it.
    pub(in crate::store::sqlite) change: Option<RunChange<'a>>,
}

/// A run's row after the accepted appends.
#[derive(Debug)]
pub(in crate::store::sqlite) struct RunChange<'a> {
    /// Where the row is new.
    pub(in crate::store::sqlite) created: Option<Created<'a>>,
    pub(in crate::store::sqlite) summary: &'a RunSummary,
    pub(in crate::store::sqlite) updated_at: Timestamp,
}

/// What a run's row has from its creation.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::sqlite) struct Created<'a> {
    pub(in crate::store::sqlite) create: &'a CreateRun,
    pub(in crate::store::sqlite) spec: Option<&'a EncodedSpec>,
    pub(in crate::store::sqlite) at: Timestamp,
}

impl RunFact<'_> {
    /// Whether nothing more is to be expected of the run for a while.
    pub(in crate::store::sqlite) fn rests(&self) -> bool {
        self.change.as_ref().is_some_and(|RunChange { summary, .. }| {
            summary.status.is_terminal() || summary.status.is_interrupted() || summary.wake_at.is_some()
        })
    }
}

/// The one run that may add entries to a session now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::sqlite) struct LiveRun {
    pub(in crate::store::sqlite) no: i64,
    pub(in crate::store::sqlite) id: RunId,
}

/// A session, as far as appends depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::sqlite) struct KnownSession {
    /// By which other tables refer to it.
    pub(in crate::store::sqlite) no: i64,
    pub(in crate::store::sqlite) last_entry: EntryNo,
    pub(in crate::store::sqlite) live_run: Option<LiveRun>,
    pub(in crate::store::sqlite) last_queue_no: u64,
    pub(in crate::store::sqlite) updated_at: Timestamp,
}

impl KnownSession {
    fn is_entered_by(&self, run: &RunId) -> bool {
        self.live_run.as_ref().is_some_and(|live| live.id == *run)
    }
}

/// A session in a commit.
#[derive(Debug)]
pub(in crate::store::sqlite) struct SessionFact {
    pub(in crate::store::sqlite) known: KnownSession,
    pub(in crate::store::sqlite) change: SessionChange,
}

/// What is to be written of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::sqlite) enum SessionChange {
    None,
    /// A new row, since then.
    Created(Timestamp),
    /// What changes of its row.
    Moved,
}

impl SessionFact {
    /// As it stands in the database.
    pub(in crate::store::sqlite) fn unchanged(known: KnownSession) -> Self {
        Self { known, change: SessionChange::None }
    }

    fn moved(&mut self) {
        if self.change == SessionChange::None {
            self.change = SessionChange::Moved;
        }
    }
}

/// What is known of the runs and sessions that a commit is about.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Facts<'a> {
    pub(in crate::store::sqlite) runs: BTreeMap<RunKey, RunFact<'a>>,
    pub(in crate::store::sqlite) sessions: BTreeMap<SessionKey, SessionFact>,
    pub(in crate::store::sqlite) last: Numbers,
    /// Specs that are not known to be there.
    pub(in crate::store::sqlite) specs: BTreeMap<&'a Digest, &'a str>,
}

/// An accepted append and the numbers by which its rows refer to its run and session.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::sqlite) struct Numbered<'a> {
    pub(in crate::store::sqlite) append: &'a Encoded,
    pub(in crate::store::sqlite) run: i64,
    pub(in crate::store::sqlite) session: i64,
}

impl<'a> Facts<'a> {
    /// With the numbers of its run and session.
    ///
    /// # Panics
    /// When it was not accepted.
    pub(in crate::store::sqlite) fn numbered(&self, append: &'a Encoded) -> Numbered<'a> {
        Numbered { append, run: self.runs[&append.run].known.no, session: self.session_no(&append.session) }
    }

    /// A session's number.
    ///
    /// # Panics
    /// When it is not known.
    pub(in crate::store::sqlite) fn session_no(&self, session: &SessionKey) -> i64 {
        self.sessions[session].known.no
    }

    /// Accepts an append and changes the facts accordingly, or refuses it and changes nothing.
    pub(in crate::store::sqlite) fn accept(&mut self, append: &'a Encoded) -> Result<(), StoreError> {
        match &append.create {
            Some(create) => self.may_create(append, create)?,
            None => self.may_continue(append)?,
        }
        self.may_enter(append)?;
        self.entries_follow(append)?;
        let run_no = self.number_run(append);
        let queue_no = self.change_session(append, run_no);
        self.change_run(append, run_no, queue_no);
        Ok(())
    }

    fn may_create(&self, append: &Encoded, create: &CreateRun) -> Result<(), StoreError> {
        if self.runs.contains_key(&append.run) {
            return Err(StoreError::RunExists);
        }
        if append.after != Seq(0) {
            return Err(StoreError::Conflict);
        }
        let has_session = create.create_session || self.sessions.contains_key(&append.session);
        has_session.then_some(()).ok_or(StoreError::NoSession)
    }

    fn may_continue(&self, append: &Encoded) -> Result<(), StoreError> {
        let run = &self.runs.get(&append.run).ok_or(StoreError::Conflict)?.known;
        let is_owner = run.epoch == append.epoch && run.last_seq == append.after;
        let in_session = run.session == append.session.1 && self.sessions.contains_key(&append.session);
        (is_owner && in_session).then_some(()).ok_or(StoreError::Conflict)
    }

    fn may_enter(&self, append: &Encoded) -> Result<(), StoreError> {
        let Some(last) = append.enter else { return Ok(()) };
        match self.session(append) {
            Some(KnownSession { live_run: Some(run), .. }) => {
                Err(StoreError::SessionBusy { run: run.id.clone() })
            }
            session if session.map_or(EntryNo(0), |session| session.last_entry) != last => {
                Err(StoreError::SessionMoved)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn entries_follow(&self, append: &Encoded) -> Result<(), StoreError> {
        let session = self.session(append);
        let lives = session.is_some_and(|session| session.is_entered_by(&append.run.run));
        if !append.entries.is_empty() && append.enter.is_none() && !lives {
            return Err(StoreError::Conflict);
        }
        let mut last = session.map_or(EntryNo(0), |session| session.last_entry);
        for NewEntry { entry, .. } in &append.entries {
            if *entry != last.next() {
                return Err(StoreError::SessionMoved);
            }
            last = *entry;
        }
        Ok(())
    }

    fn session(&self, append: &Encoded) -> Option<&KnownSession> {
        self.sessions.get(&append.session).map(|session| &session.known)
    }

    /// The number of the append's run, which is a new one where the run is.
    fn number_run(&mut self, append: &Encoded) -> i64 {
        if let Some(run) = self.runs.get(&append.run) {
            return run.known.no;
        }
        self.last.run += 1;
        self.last.run
    }

    /// The place in the queue, where the append takes one.
    fn change_session(&mut self, append: &Encoded, run_no: i64) -> Option<u64> {
        let last = &mut self.last.session;
        let fact = self.sessions.entry(append.session.clone()).or_insert_with(|| {
            *last += 1;
            let known = KnownSession {
                no: *last,
                last_entry: EntryNo(0),
                live_run: None,
                last_queue_no: 0,
                updated_at: append.began_at,
            };
            SessionFact { known, change: SessionChange::Created(append.began_at) }
        });
        if append.enter.is_some() {
            fact.known.live_run = Some(LiveRun { no: run_no, id: append.run.run.clone() });
            fact.moved();
        }
        if let Some(NewEntry { entry, .. }) = append.entries.last() {
            fact.known.last_entry = *entry;
            fact.known.updated_at = fact.known.updated_at.max(append.ended_at);
            fact.moved();
        }
        if append.finished && fact.known.is_entered_by(&append.run.run) {
            fact.known.live_run = None;
            fact.moved();
        }
        let create = append.create.as_ref().filter(|_| append.enter.is_none() && !append.finished)?;
        fact.known.last_queue_no += 1;
        fact.moved();
        let lane = if create.interrupts { 0 } else { ORDINARY_QUEUE_NO };
        Some(lane + fact.known.last_queue_no)
    }

    fn change_run(&mut self, append: &'a Encoded, run_no: i64, queue_no: Option<u64>) {
        let (spec, at) = (append.spec.as_ref(), append.began_at);
        let created = append.create.as_ref().map(|create| Created { create, spec, at });
        let RunFact { known, change } = self.runs.entry(append.run.clone()).or_insert_with(|| {
            let known = KnownRun {
                no: run_no,
                epoch: append.epoch,
                last_seq: Seq(0),
                session: append.session.1.clone(),
                queue_no,
            };
            RunFact { known, change: None }
        });
        known.last_seq = append.last;
        if append.enter.is_some() || append.finished {
            known.queue_no = None;
        }
        *change = Some(RunChange {
            created: created.or(change.as_ref().and_then(|change| change.created)),
            summary: &append.summary,
            updated_at: append.ended_at,
        });
    }
}

/// Which of a run's questions it is.
fn which(run: &RunId, request: &RequestId) -> String {
    let parts = request.parts().filter(|(of, _)| of == run);
    parts.expect("a run asks in its own name").1.to_owned()
}

/// What an answer leaves to runs that start later.
fn rule_row(session: &SessionId, request: &RequestId, answer: &Answer) -> Option<RuleRow> {
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
