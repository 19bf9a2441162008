//! What the writer knows without asking the database: the runs and sessions that it wrote last.
//!
//! Nobody else writes the file, so what it wrote is what stands there. A run that is over or waits for long is
//! forgotten, and everything is when a write fails.

use std::collections::HashMap;

use super::facts::{Facts, KnownRun, KnownSession, RunKey, SessionKey};

/// Runs, and sessions, that are known at one time; beyond that it begins anew.
const KNOWN_MAX: usize = 8_192;

/// Of runs and sessions that were written or asked for.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) runs: HashMap<RunKey, KnownRun>,
    pub(super) sessions: HashMap<SessionKey, KnownSession>,
    /// The last document of the index, once it was asked for.
    pub(super) last_search_no: Option<u64>,
}

impl Known {
    /// Takes over what a commit made true.
    pub(super) fn learn(&mut self, facts: Facts<'_>) {
        if self.runs.len() + facts.runs.len() > KNOWN_MAX {
            self.runs.clear();
        }
        if self.sessions.len() + facts.sessions.len() > KNOWN_MAX {
            self.sessions.clear();
        }
        self.last_search_no = Some(facts.last_search_no);
        for (key, fact) in facts.runs {
            if fact.rests() {
                self.runs.remove(&key);
            } else {
                self.runs.insert(key, fact.known);
            }
        }
        self.sessions.extend(facts.sessions.into_iter().map(|(key, fact)| (key, fact.known)));
    }

    /// Forgets a run that is about to change otherwise.
    pub(super) fn forget_run(&mut self, key: &RunKey) {
        self.runs.remove(key);
    }

    /// Forgets a session that is about to change otherwise.
    pub(super) fn forget_session(&mut self, key: &SessionKey) {
        self.sessions.remove(key);
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
