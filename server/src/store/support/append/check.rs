//! The checks of an append: against the rows of its run and session, which it may change. No I/O.
//!
//! **Invariant:** a refused append changes nothing, so it does not touch whatever else shares its commit.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::id::{EntryNo, Epoch, RunId, RunKey, Seq, SessionId, SessionKey};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use super::encode::{EncodedAppend, NewEntry};
use crate::store::support::codec::EncodedSpec;
use crate::store::{CreateRun, RunSummary, StoreError};

/// Numbers in a queue above this one belong to runs that do not interrupt.
pub(in crate::store) const ORDINARY_QUEUE_NO: u64 = 1 << 40;

/// The numbers that were given out last. Rows refer to runs and sessions by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::store) struct LastNumbers {
    pub(in crate::store) run: i64,
    pub(in crate::store) session: i64,
    /// The last document of the search index.
    pub(in crate::store) document: i64,
}

/// The columns of a run's row that appends depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct RunHead {
    pub(in crate::store) no: i64,
    pub(in crate::store) epoch: Epoch,
    pub(in crate::store) last_seq: Seq,
    pub(in crate::store) session: SessionId,
    /// Its place in its session's queue, as long as it waits there.
    pub(in crate::store) queue_no: Option<u64>,
}

/// The columns of a session's row that appends depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct SessionHead {
    pub(in crate::store) no: i64,
    pub(in crate::store) last_entry: EntryNo,
    pub(in crate::store) live_run: Option<LiveRun>,
    pub(in crate::store) last_queue_no: u64,
    pub(in crate::store) updated_at: Timestamp,
}

/// The one run that may add entries to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct LiveRun {
    pub(in crate::store) no: i64,
    pub(in crate::store) id: RunId,
}

impl SessionHead {
    fn is_entered_by(&self, run: &RunId) -> bool {
        self.live_run.as_ref().is_some_and(|live| live.id == *run)
    }
}

/// A run whose row a commit reads or writes.
#[derive(Debug)]
pub(in crate::store) struct RunInCommit<'a> {
    pub(in crate::store) head: RunHead,
    /// Absent while no append to it is accepted.
    pub(in crate::store) update: Option<RunUpdate<'a>>,
}

/// The columns of a run's row that the accepted appends write, beside its head.
#[derive(Debug)]
pub(in crate::store) struct RunUpdate<'a> {
    /// Present when the row is new.
    pub(in crate::store) created: Option<RunCreation<'a>>,
    pub(in crate::store) summary: &'a RunSummary,
    pub(in crate::store) updated_at: Timestamp,
    /// Bytes of the events that the commit adds, as they are stored.
    pub(in crate::store) bytes: i64,
}

/// The columns of a run's row that only its creation writes.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct RunCreation<'a> {
    pub(in crate::store) create: &'a CreateRun,
    pub(in crate::store) spec: Option<&'a EncodedSpec>,
    pub(in crate::store) at: Timestamp,
}

impl RunInCommit<'_> {
    /// A run as its row is before the commit.
    pub(in crate::store) fn unchanged(head: RunHead) -> Self {
        Self { head, update: None }
    }

    /// True if no append to the run is to be expected for a while.
    pub(in crate::store) fn rests(&self) -> bool {
        self.update.as_ref().is_some_and(|RunUpdate { summary, .. }| {
            summary.status.is_terminal() || summary.status.is_interrupted() || summary.wake_at.is_some()
        })
    }
}

/// A session whose row a commit reads or writes.
#[derive(Debug)]
pub(in crate::store) struct SessionInCommit {
    pub(in crate::store) head: SessionHead,
    pub(in crate::store) change: SessionChange,
    /// The caller that creates it, of a new session.
    pub(in crate::store) created_by: Option<String>,
}

/// The way in which a commit writes a session's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum SessionChange {
    None,
    /// The row is new, and was created at this time.
    Created(Timestamp),
    /// The row is there and gets the columns of the head.
    Updated,
}

impl SessionInCommit {
    /// A session as its row is before the commit.
    pub(in crate::store) fn unchanged(head: SessionHead) -> Self {
        Self { head, change: SessionChange::None, created_by: None }
    }

    fn mark_updated(&mut self) {
        if self.change == SessionChange::None {
            self.change = SessionChange::Updated;
        }
    }
}

/// The rows of the runs and sessions that a commit is about: first as they are, then with every accepted append.
#[derive(Debug, Default)]
pub(in crate::store) struct CommitRows<'a> {
    pub(in crate::store) runs: BTreeMap<RunKey, RunInCommit<'a>>,
    pub(in crate::store) sessions: BTreeMap<SessionKey, SessionInCommit>,
    pub(in crate::store) last: LastNumbers,
    /// Blind starts for which there is something that they did not look at.
    pub(in crate::store) overlooked: BTreeSet<RunKey>,
    /// Specs that the commit writes, as text: those that may not be there yet.
    pub(in crate::store) specs: BTreeMap<&'a Digest, &'a str>,
}

/// An accepted append and the numbers by which its rows refer to its run and session.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct NumberedAppend<'a> {
    pub(in crate::store) append: &'a EncodedAppend,
    pub(in crate::store) run_no: i64,
    pub(in crate::store) session_no: i64,
}

impl<'a> CommitRows<'a> {
    /// An accepted append with the numbers of its run and session.
    ///
    /// # Panics
    /// When the append was not accepted.
    pub(in crate::store) fn numbered(&self, append: &'a EncodedAppend) -> NumberedAppend<'a> {
        let run_no = self.runs[&append.run].head.no;
        NumberedAppend { append, run_no, session_no: self.session_no(&append.session) }
    }

    /// The number of a session.
    ///
    /// # Panics
    /// When no accepted append is of this session.
    pub(in crate::store) fn session_no(&self, session: &SessionKey) -> i64 {
        self.sessions[session].head.no
    }

    /// Accepts an append and changes the rows as it says, or refuses it and changes nothing.
    pub(in crate::store) fn accept(&mut self, append: &'a EncodedAppend) -> Result<(), StoreError> {
        match &append.create {
            Some(create) => self.check_creation(append, create)?,
            None => self.check_owner(append)?,
        }
        self.check_entering(append)?;
        self.check_entries(append)?;
        let run_no = self.number_run(append);
        let queue_no = self.update_session(append, run_no);
        self.update_run(append, run_no, queue_no);
        Ok(())
    }

    /// Collects the specs of new runs, unless they are known to be stored.
    pub(in crate::store) fn collect_specs(&mut self, is_stored: impl Fn(&Digest) -> bool) {
        let created = self.runs.values().filter_map(|run| run.update.as_ref()?.created?.spec);
        let unknown = created.filter(|spec| !is_stored(&spec.digest));
        self.specs = unknown.map(|spec| (&spec.digest, spec.text.as_str())).collect();
    }

    /// Numbers the search documents of accepted appends: one for each of their entries, in order, `None` for an entry
    /// that is not searched.
    pub(in crate::store) fn number_documents(&mut self, accepted: &[NumberedAppend<'_>]) -> Vec<Option<i64>> {
        let last = &mut self.last.document;
        let entries = accepted.iter().flat_map(|new| &new.append.entries);
        let number = |new: &NewEntry| {
            new.is_searched.then(|| {
                *last += 1;
                *last
            })
        };
        entries.map(number).collect()
    }

    /// The run is new, and its session is there or is to be created.
    fn check_creation(&self, append: &EncodedAppend, create: &CreateRun) -> Result<(), StoreError> {
        if self.runs.contains_key(&append.run) {
            return Err(StoreError::RunExists);
        }
        let session_is_there = self.sessions.contains_key(&append.session);
        if self.overlooked.contains(&append.run) || (create.is_blind && session_is_there) {
            return Err(StoreError::SessionMoved);
        }
        if append.after != Seq(0) {
            return Err(StoreError::Conflict);
        }
        let has_session = create.create_session || session_is_there;
        has_session.then_some(()).ok_or(StoreError::NoSession)
    }

    /// The caller owns the run and knows its last event.
    fn check_owner(&self, append: &EncodedAppend) -> Result<(), StoreError> {
        let run = &self.runs.get(&append.run).ok_or(StoreError::Conflict)?.head;
        let is_owner = run.epoch == append.epoch && run.last_seq == append.after;
        let in_session = run.session == append.session.session && self.sessions.contains_key(&append.session);
        (is_owner && in_session).then_some(()).ok_or(StoreError::Conflict)
    }

    /// A run that enters its session finds it free and with the last entry that it has read.
    fn check_entering(&self, append: &EncodedAppend) -> Result<(), StoreError> {
        let Some(last) = append.enter else { return Ok(()) };
        match self.session(append) {
            Some(SessionHead { live_run: Some(run), .. }) => {
                Err(StoreError::SessionBusy { run: run.id.clone() })
            }
            session if session.map_or(EntryNo(0), |session| session.last_entry) != last => {
                Err(StoreError::SessionMoved)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Only the live run adds entries, and they follow the session's last one without a gap.
    fn check_entries(&self, append: &EncodedAppend) -> Result<(), StoreError> {
        let session = self.session(append);
        let is_live = session.is_some_and(|session| session.is_entered_by(&append.run.run));
        if !append.entries.is_empty() && append.enter.is_none() && !is_live {
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

    fn session(&self, append: &EncodedAppend) -> Option<&SessionHead> {
        self.sessions.get(&append.session).map(|session| &session.head)
    }

    /// The number of the append's run. A new run gets the next one.
    fn number_run(&mut self, append: &EncodedAppend) -> i64 {
        if let Some(run) = self.runs.get(&append.run) {
            return run.head.no;
        }
        self.last.run += 1;
        self.last.run
    }

    /// Changes the session's row. Returns the run's place in the queue, if the append queues it.
    fn update_session(&mut self, append: &EncodedAppend, run_no: i64) -> Option<u64> {
        let last = &mut self.last.session;
        let session = self.sessions.entry(append.session.clone()).or_insert_with(|| {
            *last += 1;
            let head = SessionHead {
                no: *last,
                last_entry: EntryNo(0),
                live_run: None,
                last_queue_no: 0,
                updated_at: append.began_at,
            };
            let created_by = append.create.as_ref().and_then(|create| create.created_by.clone());
            SessionInCommit { head, change: SessionChange::Created(append.began_at), created_by }
        });
        if append.enter.is_some() {
            session.head.live_run = Some(LiveRun { no: run_no, id: append.run.run.clone() });
            session.mark_updated();
        }
        if let Some(NewEntry { entry, .. }) = append.entries.last() {
            session.head.last_entry = *entry;
            session.head.updated_at = session.head.updated_at.max(append.ended_at);
            session.mark_updated();
        }
        if append.finished && session.head.is_entered_by(&append.run.run) {
            session.head.live_run = None;
            session.mark_updated();
        }
        let create = append.create.as_ref().filter(|_| append.enter.is_none() && !append.finished)?;
        session.head.last_queue_no += 1;
        session.mark_updated();
        let lane = if create.interrupts { 0 } else { ORDINARY_QUEUE_NO };
        Some(lane + session.head.last_queue_no)
    }

    fn update_run(&mut self, append: &'a EncodedAppend, run_no: i64, queue_no: Option<u64>) {
        let (spec, at) = (append.spec.as_ref(), append.began_at);
        let created = append.create.as_ref().map(|create| RunCreation { create, spec, at });
        let RunInCommit { head, update } = self.runs.entry(append.run.clone()).or_insert_with(|| {
            RunInCommit::unchanged(RunHead {
                no: run_no,
                epoch: append.epoch,
                last_seq: Seq(0),
                session: append.session.session.clone(),
                queue_no,
            })
        });
        head.last_seq = append.last;
        if append.enter.is_some() || append.finished {
            head.queue_no = None;
        }
        *update = Some(RunUpdate {
            created: created.or(update.as_ref().and_then(|update| update.created)),
            summary: &append.summary,
            updated_at: append.ended_at,
            bytes: i64::try_from(append.bytes()).unwrap_or(i64::MAX)
                + update.as_ref().map_or(0, |update| update.bytes),
        });
    }
}
