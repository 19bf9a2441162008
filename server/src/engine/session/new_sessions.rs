//! The guess that decides whether a start looks for the session that it names.

use std::sync::atomic::{AtomicBool, Ordering};

/// Guesses whether the next session that a request names and may create is new: as the last one was. Callers who make a session
/// for each run do so again and again, and so do those who come back to theirs.
#[derive(Debug, Default)]
pub(in crate::engine) struct NewSessions {
    last_was_new: AtomicBool,
}

impl NewSessions {
    pub(in crate::engine) fn are_likely(&self) -> bool {
        self.last_was_new.load(Ordering::Relaxed)
    }

    /// Notes if a session that was named and looked for is new.
    pub(in crate::engine) fn note(&self, is_new: bool) {
        self.last_was_new.store(is_new, Ordering::Relaxed);
    }
}
