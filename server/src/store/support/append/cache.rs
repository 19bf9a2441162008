//! The writer's cache: the rows of runs and sessions that it wrote last, so that it need not read them back.
//!
//! **Invariant:** a cached row is what the database has. That holds because there is one writer: it drops a row before
//! it changes it in another way than by an append, and drops everything when a write fails. Runs that rest are dropped
//! to save memory.

use std::collections::{HashMap, HashSet};

use agentloop_core::id::{RunKey, SessionKey};
use agentloop_core::tool::Digest;

use super::check::{CommitRows, LastNumbers, RunHead, RunInCommit, SessionHead, SessionInCommit};
use super::encode::EncodedAppend;

/// Runs, sessions and specs in the cache, each. A kind that would exceed this is dropped whole.
const CACHED_MAX: usize = 8_192;

/// Commits of appends that look for ids after one was taken for new wrongly. Callers who repeat a request often repeat several.
const LOOKS_AFTER_WRONG_GUESS: u8 = 16;

/// Rows by their keys. Begins empty.
#[derive(Debug, Default)]
pub(in crate::store) struct WriterCache {
    runs: HashMap<RunKey, RunHead>,
    sessions: HashMap<SessionKey, SessionHead>,
    /// Absent until they are read.
    last: Option<LastNumbers>,
    /// Specs that are stored.
    specs: HashSet<Digest>,
    /// Commits of appends until ids are taken for new again. Before, those of blind starts are looked up, and even those that the
    /// server made for a run: that they were stored before may be why a write failed.
    looks_left: u8,
}

/// The rows of a commit, as far as the cache has them.
#[derive(Debug)]
pub(in crate::store) struct CachedRows<'a> {
    pub(in crate::store) rows: CommitRows<'a>,
    /// Appends whose run and session are to be read.
    pub(in crate::store) missing: Vec<&'a EncodedAppend>,
    /// Blind starts whose run and session are taken for new. The write has to find out if they are.
    pub(in crate::store) guessed: Vec<&'a EncodedAppend>,
}

impl WriterCache {
    /// Collects the rows that these appends are checked against. `guesses`: the write finds out if a blind start has overlooked
    /// something.
    pub(in crate::store) fn rows<'a>(&self, appends: &[&'a EncodedAppend], guesses: bool) -> CachedRows<'a> {
        let mut rows = CommitRows { last: self.last.unwrap_or_default(), ..CommitRows::default() };
        let (mut missing, mut guessed) = (Vec::new(), Vec::new());
        for append in appends {
            let (run, session) = (self.runs.get(&append.run), self.sessions.get(&append.session));
            if self.last.is_none() {
                missing.push(*append);
            } else if let (Some(run), Some(session)) = (run, session) {
                rows.runs.insert(append.run.clone(), RunInCommit::unchanged(run.clone()));
                let session = SessionInCommit::unchanged(session.clone());
                rows.sessions.insert(append.session.clone(), session);
            } else if guesses && session.is_none() && self.is_likely_new(append) {
                guessed.push(*append);
            } else if !self.has_new_ids(append) {
                missing.push(*append);
            }
        }
        CachedRows { rows, missing, guessed }
    }

    /// True if nothing can be stored yet under the ids of an append's run and session.
    fn has_new_ids(&self, append: &EncodedAppend) -> bool {
        self.looks_left == 0 && append.create.as_ref().is_some_and(|create| create.made_ids)
    }

    /// True for a start whose caller takes its ids for new, if no commit has failed just now.
    fn is_likely_new(&self, append: &EncodedAppend) -> bool {
        self.looks_left == 0 && append.create.as_ref().is_some_and(|create| create.is_blind)
    }

    /// True if the spec of this digest is known to be stored.
    pub(in crate::store) fn has_spec(&self, digest: &Digest) -> bool {
        self.specs.contains(digest)
    }

    /// Drops the specs: somebody may have deleted one.
    pub(in crate::store) fn forget_specs(&mut self) {
        self.specs.clear();
    }

    /// Takes over the rows that a commit has written.
    pub(in crate::store) fn update(&mut self, rows: CommitRows<'_>) {
        self.looks_left = self.looks_left.saturating_sub(1);
        if self.runs.len() + rows.runs.len() > CACHED_MAX {
            self.runs.clear();
        }
        if self.sessions.len() + rows.sessions.len() > CACHED_MAX {
            self.sessions.clear();
        }
        if self.specs.len() + rows.specs.len() > CACHED_MAX {
            self.specs.clear();
        }
        self.last = Some(rows.last);
        for (key, run) in rows.runs {
            if run.rests() {
                self.runs.remove(&key);
            } else {
                self.runs.insert(key, run.head);
            }
        }
        self.specs.extend(rows.specs.into_keys().cloned());
        self.sessions.extend(rows.sessions.into_iter().map(|(key, session)| (key, session.head)));
    }

    /// Drops a run that is about to change in another way than by an append.
    pub(in crate::store) fn drop_run(&mut self, key: &RunKey) {
        self.runs.remove(key);
    }

    /// Drops a session that is about to change in another way than by an append.
    pub(in crate::store) fn drop_session(&mut self, key: &SessionKey) {
        self.sessions.remove(key);
    }

    /// Drops a session that is about to be deleted with its runs.
    pub(in crate::store) fn drop_session_and_runs(&mut self, key: &SessionKey) {
        self.drop_session(key);
        self.runs.retain(|run, head| run.tenant != key.tenant || head.session != key.session);
    }

    /// Sets the numbers that were given out last, in a store that does not read them.
    pub(in crate::store) fn set_numbers(&mut self, last: LastNumbers) {
        self.last = Some(last);
    }

    /// Drops the last numbers, because something else is about to give out one.
    pub(in crate::store) fn drop_numbers(&mut self) {
        self.last = None;
    }

    /// Drops everything, after a failed write.
    pub(in crate::store) fn clear(&mut self) {
        *self = Self { looks_left: self.looks_left.max(1), ..Self::default() };
    }

    /// Drops everything, after a write that was refused since it took a blind start for new.
    pub(in crate::store) fn clear_after_wrong_guess(&mut self) {
        self.looks_left = LOOKS_AFTER_WRONG_GUESS;
        self.clear();
    }
}
