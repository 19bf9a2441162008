//! Where ids and seeds come from. The core takes them as arguments; only the shell around it draws them.

use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::id::{RunId, SessionId};
use uuid::Uuid;

/// Makes ids for those who did not bring their own, and the seeds that jitter is drawn from.
pub trait Ids: Send + Sync + 'static {
    /// An id that no other run has.
    fn run(&self) -> RunId;

    /// An id that no other session has.
    fn session(&self) -> SessionId;

    /// A number that nobody can guess.
    fn seed(&self) -> u64;
}

/// Ids that sort by the time they were made (UUID version 7), so that new rows land beside each other in an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    #[expect(clippy::disallowed_methods, reason = "this makes the ids that all others use")]
    fn run(&self) -> RunId {
        RunId::parse(Uuid::now_v7().to_string()).expect("a UUID is within the alphabet of ids")
    }

    #[expect(clippy::disallowed_methods, reason = "this makes the ids that all others use")]
    fn session(&self) -> SessionId {
        SessionId::parse(Uuid::now_v7().to_string()).expect("a UUID is within the alphabet of ids")
    }

    #[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
    fn seed(&self) -> u64 {
        rand::random()
    }
}

/// Ids that count from 1, each kind for itself: `run-1`, `session-1`.
#[derive(Debug, Default)]
pub struct CountingIds {
    runs: AtomicU64,
    sessions: AtomicU64,
    seeds: AtomicU64,
}

fn next(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::SeqCst) + 1
}

impl Ids for CountingIds {
    fn run(&self) -> RunId {
        RunId::parse(format!("run-{}", next(&self.runs))).expect("digits are within the alphabet of ids")
    }

    fn session(&self) -> SessionId {
        SessionId::parse(format!("session-{}", next(&self.sessions)))
            .expect("digits are within the alphabet of ids")
    }

    fn seed(&self) -> u64 {
        next(&self.seeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_differ_and_sort_by_age() {
        let ids: Vec<RunId> = (0..1_000).map(|_| RandomIds.run()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_ne!(RandomIds.session(), RandomIds.session());
        assert_ne!(RandomIds.seed(), RandomIds.seed());
    }

    #[test]
    fn counted_ids_are_predictable() {
        let ids = CountingIds::default();
        assert_eq!((ids.run().as_str(), ids.run().as_str()), ("run-1", "run-2"));
        assert_eq!((ids.session().as_str(), ids.seed(), ids.seed()), ("session-1", 1, 2));
    }
}
