//! Memory of runs: those that wait for it, and how many journals are read at a time.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentloop_core::entry::Entry;
use agentloop_core::id::{RunKey, TenantId};
use agentloop_core::run::event::Record;
use parking_lot::{Mutex, MutexGuard};

use crate::memory::{Charge, MemoryLedger};

/// A live run holds about this much beside its history.
pub(in crate::engine) const RUN_BYTES: usize = 16 * 1024;
/// A model call reserves this much for its response. A longer one is charged as it grows.
pub(in crate::engine) const RESPONSE_BYTES: usize = 64 * 1024;

/// Journals that are read at a time if they are small.
const JOURNALS_MAX: usize = 32;
/// A large journal counts as this many small ones.
const LARGE_JOURNAL: usize = 8;
/// A journal with more bytes of messages is large.
const SMALL_JOURNAL_BYTES: usize = 256 * 1024;

/// Memory of live runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that they hold.
    pub bytes: usize,
    /// The most that they may hold.
    pub bytes_max: usize,
}

/// Bounds the journals that are in memory while their runs are loaded. The size of a journal is known only when it has
/// been read, so it is taken to be like the one before it. Tenants enter in turn: one whose runs all wake at once delays
/// another's by one journal.
#[derive(Debug)]
pub(in crate::engine) struct JournalGate {
    /// Counts small journals in place of bytes.
    places: MemoryLedger,
    places_each: AtomicUsize,
}

impl Default for JournalGate {
    fn default() -> Self {
        Self { places: MemoryLedger::new(JOURNALS_MAX), places_each: AtomicUsize::new(LARGE_JOURNAL) }
    }
}

impl JournalGate {
    /// Waits until one more journal may be read. It counts until the result is dropped.
    pub(in crate::engine) async fn enter(&self, tenant: &TenantId) -> Charge {
        self.places.reserve(tenant, self.places_each.load(Ordering::Relaxed)).await
    }

    /// Tells the size of a journal that was read.
    pub(in crate::engine) fn note_size(&self, bytes: usize) {
        let places = if bytes <= SMALL_JOURNAL_BYTES { 1 } else { LARGE_JOURNAL };
        self.places_each.store(places, Ordering::Relaxed);
    }
}

/// Bytes of the messages in a journal.
pub(in crate::engine) fn journal_bytes(records: &[Record]) -> usize {
    let bytes = |record: &Record| match record.event.content() {
        Some(Entry::Message(message)) => message.size(),
        Some(Entry::Compaction(compaction)) => compaction.summary.len(),
        None => 0,
    };
    records.iter().map(bytes).sum()
}

/// The runs that wait for memory before their next model call. Clones are one set.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct MemoryWaits(Arc<Mutex<HashSet<RunKey>>>);

/// A run is in the set until this is dropped.
#[derive(Debug)]
pub(in crate::engine) struct ListedWait {
    waits: MemoryWaits,
    key: RunKey,
}

impl MemoryWaits {
    /// Adds a run to the list of those that wait.
    pub(in crate::engine) fn add(&self, key: &RunKey) -> ListedWait {
        self.runs().insert(key.clone());
        ListedWait { waits: self.clone(), key: key.clone() }
    }

    /// Number of runs that wait.
    pub(in crate::engine) fn len(&self) -> usize {
        self.runs().len()
    }

    /// True if the run waits.
    pub(in crate::engine) fn contains(&self, key: &RunKey) -> bool {
        self.runs().contains(key)
    }

    fn runs(&self) -> MutexGuard<'_, HashSet<RunKey>> {
        self.0.lock()
    }
}

impl Drop for ListedWait {
    fn drop(&mut self) {
        self.waits.runs().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn tenants_enter_in_turn() {
        let (gate, noisy) = (JournalGate::default(), TenantId::parse("noisy").unwrap());
        gate.note_size(1);
        let mut inside = Vec::new();
        for _ in 0..JOURNALS_MAX {
            inside.push(gate.enter(&noisy).await);
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(gate.enter(&noisy))).collect();
        for one in &mut waiting {
            assert!(poll!(one.as_mut()).is_pending());
        }
        let quiet = TenantId::parse("quiet").unwrap();
        let mut other = Box::pin(gate.enter(&quiet));
        assert!(poll!(other.as_mut()).is_pending());
        inside.truncate(JOURNALS_MAX - 2);
        let Poll::Ready(_first) = poll!(waiting[0].as_mut()) else { panic!("it came first") };
        let Poll::Ready(_second) = poll!(other.as_mut()) else { panic!("its tenant is next") };
        assert!(poll!(waiting[1].as_mut()).is_pending());
    }
}
