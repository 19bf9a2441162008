//! The writer's cache: the runs and sessions that it wrote last, so that it need not read them back.
//!
//! Nobody else writes the file, so the cache is what the file has. A run that has ended or waits for long is dropped from
//! it, and everything is dropped when a write fails.

use std::collections::{HashMap, HashSet};

use agentloop_core::id::RunKey;
use agentloop_core::tool::Digest;

use crate::store::sqlite::write::accept::{Encoded, Facts, KnownRun, KnownSession, Numbers, SessionKey};

/// Runs, and sessions, and specs, that are known at one time; beyond that it begins anew.
const KNOWN_MAX: usize = 8_192;

/// Of runs and sessions that were written or asked for.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct WriterCache {
    pub(in crate::store::sqlite) runs: HashMap<RunKey, KnownRun>,
    pub(in crate::store::sqlite) sessions: HashMap<SessionKey, KnownSession>,
    /// Once they were asked for.
    pub(in crate::store::sqlite) last: Option<Numbers>,
    /// Specs that are there.
    pub(in crate::store::sqlite) specs: HashSet<Digest>,
    /// Whether a write failed since one succeeded: then not even ids that were made for a run are believed to be new.
    doubts: bool,
}

impl WriterCache {
    /// Whether there is nothing yet under the ids of an append's run and session.
    pub(in crate::store::sqlite) fn are_new(&self, append: &Encoded) -> bool {
        !self.doubts && append.create.as_ref().is_some_and(|create| create.made_ids)
    }

    /// Takes over what a commit made true.
    pub(in crate::store::sqlite) fn learn(&mut self, facts: Facts<'_>) {
        self.doubts = false;
        if self.runs.len() + facts.runs.len() > KNOWN_MAX {
            self.runs.clear();
        }
        if self.sessions.len() + facts.sessions.len() > KNOWN_MAX {
            self.sessions.clear();
        }
        self.last = Some(facts.last);
        for (key, fact) in facts.runs {
            if fact.rests() {
                self.runs.remove(&key);
            } else {
                self.runs.insert(key, fact.known);
            }
        }
        if self.specs.len() + facts.specs.len() > KNOWN_MAX {
            self.specs.clear();
        }
        self.specs.extend(facts.specs.into_keys().cloned());
        self.sessions.extend(facts.sessions.into_iter().map(|(key, fact)| (key, fact.known)));
    }

    /// Forgets a run that is about to change otherwise.
    pub(in crate::store::sqlite) fn forget_run(&mut self, key: &RunKey) {
        self.runs.remove(key);
    }

    /// Forgets a session that is about to change otherwise.
    pub(in crate::store::sqlite) fn forget_session(&mut self, key: &SessionKey) {
        self.sessions.remove(key);
    }

    /// Forgets which numbers were given out last.
    pub(in crate::store::sqlite) fn forget_numbers(&mut self) {
        self.last = None;
    }

    /// Forgets everything.
    pub(in crate::store::sqlite) fn forget(&mut self) {
        *self = Self { doubts: true, ..Self::default() };
    }
}
