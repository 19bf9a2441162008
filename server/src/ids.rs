//! The source of ids and seeds. The core takes them as arguments; only the code around it makes them.

use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::id::{RunId, SessionId};
use uuid::Uuid;

/// Makes ids for requests without one, and the seeds of runs. Jitter, leases and idempotency keys derive from the seed.
pub trait Ids: Send + Sync + 'static {
    /// A new id that no other run has.
    fn run(&self) -> RunId;

    /// A new id that no other session has.
    fn session(&self) -> SessionId;

    /// A number that nobody can guess.
    fn seed(&self) -> u64;
}

/// Makes UUIDs of version 7. They sort by time, so new rows are next to each other in an index.
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

    fn seed(&self) -> u64 {
        u64::from_ne_bytes(random_bytes())
    }
}

/// Bytes that nobody can guess, for what no run depends on. Runs have [`Ids::seed`].
#[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    rand::random()
}

/// A number from 0 to 1, which is not reached, for what no run depends on: it keeps replicas from acting at one time.
#[expect(clippy::disallowed_methods, reason = "this is where chance comes from")]
pub(crate) fn random_fraction() -> f64 {
    rand::random()
}

/// Makes predictable ids for tests. Each kind counts from 1: `run-1`, `session-1`.
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
