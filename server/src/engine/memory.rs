//! Memory of runs: those that wait for it, and how many journals are read at a time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::entry::Entry;
use agentloop_core::id::RunKey;
use agentloop_core::run::event::Record;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A live run holds about this much beside its history.
pub(in crate::engine) const RUN_BYTES: usize = 16 * 1024;
/// A model call reserves this much for its answer. A longer answer is charged as it grows.
pub(in crate::engine) const ANSWER_BYTES: usize = 64 * 1024;

/// Journals that are read at a time if they are small.
const JOURNALS_MAX: u32 = 32;
/// A large journal counts as this many small ones.
const LARGE_JOURNAL: u32 = 8;
/// A journal with more bytes of messages is large.
const SMALL_JOURNAL_BYTES: usize = 256 * 1024;

/// Bounds the journals that are in memory while their runs are loaded. The size of a journal is known only when it has
/// been read, so it is taken to be like the one before it.
#[derive(Debug)]
pub(in crate::engine) struct JournalGate {
    permits: Semaphore,
    permits_each: AtomicU32,
}

impl Default for JournalGate {
    fn default() -> Self {
        let permits = Semaphore::new(JOURNALS_MAX as usize);
        Self { permits, permits_each: AtomicU32::new(LARGE_JOURNAL) }
    }
}

impl JournalGate {
    /// Waits until one more journal may be read.
    pub(in crate::engine) async fn enter(&self) -> SemaphorePermit<'_> {
        let permits = self.permits_each.load(Ordering::Relaxed);
        self.permits.acquire_many(permits).await.expect("the semaphore is never closed")
    }

    /// Tells the size of a journal that was read.
    pub(in crate::engine) fn note_size(&self, bytes: usize) {
        let permits = if bytes <= SMALL_JOURNAL_BYTES { 1 } else { LARGE_JOURNAL };
        self.permits_each.store(permits, Ordering::Relaxed);
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
    /// Adds a run.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListedWait {
    fn drop(&mut self) {
        self.waits.runs().remove(&self.key);
    }
}
