//! Caches the histories of sessions that have no live run, for their next run.

use std::collections::HashMap;

use agentloop_core::id::{EntryNo, SessionId, SessionKey, TenantId};
use parking_lot::Mutex;

use super::{History, HistoryMemory};
use crate::store::{Store, StoreError};

/// The most histories in the cache.
const HISTORIES_MAX: usize = 1_024;
/// The most bytes of encoded prefixes in all cached histories together. A prefix that is dropped is encoded again when
/// it is needed.
const ENCODED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Divides the memory of live runs: all histories in the cache together take at most this share of it.
const IDLE_SHARE: usize = 4;
/// A history of this size is loaded when its run begins, a larger one when there is memory for it.
const LOADED_AT_ONCE_BYTES: usize = 256 * 1024;

/// The cache. A run takes its session's history out of it and puts it back at its end.
#[derive(Debug)]
pub(in crate::engine) struct HistoryCache {
    memory: HistoryMemory,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    histories: HashMap<SessionKey, CachedHistory>,
    /// The sums over all histories.
    encoded_bytes: usize,
    bytes: usize,
}

#[derive(Debug)]
struct CachedHistory {
    history: History,
    /// Bytes of its encoded prefix.
    encoded_bytes: usize,
    /// Bytes in all, when it was put here.
    bytes: usize,
}

impl HistoryCache {
    /// A cache without any history.
    pub(in crate::engine) fn new(memory: HistoryMemory) -> Self {
        Self { memory, state: Mutex::default() }
    }

    /// The account of all histories, and what they share.
    pub(in crate::engine) fn memory(&self) -> &HistoryMemory {
        &self.memory
    }

    /// The session's history up to exactly this entry, from the cache or the store. A large one is not loaded whole: its
    /// run loads it when there is memory for it.
    pub(in crate::engine) async fn take(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<History, StoreError> {
        let cached = self.remove(tenant, session);
        if let Some(history) = cached.filter(|history| history.last() == upto) {
            return Ok(history);
        }
        let mut history = self.unloaded(tenant, upto);
        if let Some(_memory) = self.memory.ledger().try_reserve(tenant, LOADED_AT_ONCE_BYTES) {
            while !history.is_loaded() && history.bytes() < LOADED_AT_ONCE_BYTES {
                history.load_more(store, tenant, session).await?;
            }
        }
        Ok(history)
    }

    /// The history of a session whose entries nobody has read.
    pub(in crate::engine) fn unloaded(&self, tenant: &TenantId, upto: EntryNo) -> History {
        History::unloaded(&self.memory.of(tenant), upto)
    }

    /// Drops histories until this many bytes are free, or none is left.
    pub(in crate::engine) fn free_memory(&self, bytes: usize) {
        while self.memory.ledger().free() < bytes {
            // It is dropped after the lock.
            let Some(_history) = self.state.lock().remove_any() else { return };
        }
    }

    /// Caches a history for the session's next run, unless it is empty.
    pub(in crate::engine) fn put(&self, tenant: TenantId, session: SessionId, history: History) {
        if history.last() == EntryNo(0) || !history.is_loaded() || self.memory.ledger().is_wanted() {
            return;
        }
        let bytes = history.bytes();
        let idle_bytes_max = self.memory.ledger().bytes_max() / IDLE_SHARE;
        if bytes > idle_bytes_max {
            return;
        }
        while self.state.lock().bytes > idle_bytes_max - bytes {
            let Some(_history) = self.state.lock().remove_any() else { break };
        }
        self.state.lock().insert(SessionKey { tenant, session }, history, ENCODED_BYTES_MAX);
    }

    /// Removes the session's history, for example because the session is deleted.
    pub(in crate::engine) fn remove(&self, tenant: &TenantId, session: &SessionId) -> Option<History> {
        self.state.lock().remove(&SessionKey { tenant: tenant.clone(), session: session.clone() })
    }

    /// Removes the histories of these sessions.
    pub(in crate::engine) fn remove_where(&self, is_left: impl Fn(&TenantId, &SessionId) -> bool) {
        let mut state = self.state.lock();
        let left = state.histories.keys().filter(|key| is_left(&key.tenant, &key.session));
        for key in left.cloned().collect::<Vec<_>>() {
            state.remove(&key);
        }
    }
}

impl CacheState {
    fn remove(&mut self, key: &SessionKey) -> Option<History> {
        let cached = self.histories.remove(key)?;
        self.encoded_bytes -= cached.encoded_bytes;
        self.bytes -= cached.bytes;
        Some(cached.history)
    }

    fn remove_any(&mut self) -> Option<History> {
        let any = self.histories.keys().next().cloned()?;
        self.remove(&any)
    }

    fn insert(&mut self, key: SessionKey, mut history: History, encoded_bytes_max: usize) {
        self.remove(&key);
        if self.histories.len() >= HISTORIES_MAX {
            self.remove_any();
        }
        let mut encoded_bytes = history.encoded().bytes();
        if encoded_bytes > encoded_bytes_max {
            history.forget_encoded();
            encoded_bytes = 0;
        }
        // The new history keeps its prefix and others lose theirs: the session that had the last run is the likeliest to
        // have the next one.
        let left = encoded_bytes_max - encoded_bytes;
        for cached in self.histories.values_mut().filter(|cached| cached.encoded_bytes > 0) {
            if self.encoded_bytes <= left {
                break;
            }
            cached.history.forget_encoded();
            self.encoded_bytes -= std::mem::take(&mut cached.encoded_bytes);
        }
        self.encoded_bytes += encoded_bytes;
        let bytes = history.bytes();
        self.bytes += bytes;
        self.histories.insert(key, CachedHistory { history, encoded_bytes, bytes });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::entry::{Compaction, Entry};
    use agentloop_core::message::{Message, Role};

    use super::*;
    use crate::memory::MemoryLedger;

    fn history(bytes: usize) -> History {
        let mut history = History::new(&HistoryMemory::new(&MemoryLedger::unbounded()));
        history.push(Entry::Message(Arc::new(Message::text(Role::User, "x".repeat(bytes)))));
        history.encoded().write(&history.messages());
        history
    }

    fn key(session: &str) -> SessionKey {
        SessionKey { tenant: TenantId::local(), session: SessionId::parse(session).unwrap() }
    }

    #[test]
    fn what_is_written_takes_about_as_much_as_what_is_said_and_goes_with_a_compaction() {
        let mut history = history(10_000);
        let bytes = history.encoded().bytes();
        assert!((10_000..13_000).contains(&bytes), "{bytes}");
        history.push(Entry::Compaction(Arc::new(Compaction {
            summary: "x".to_owned(),
            ..Compaction::default()
        })));
        assert_eq!(history.encoded().bytes(), 0);
    }

    #[test]
    fn what_is_written_of_all_kept_histories_is_bounded() {
        let mut cache = CacheState::default();
        for at in 0..100 {
            cache.insert(key(&format!("s{at}")), history(1_000), 20_000);
            let encoded: usize =
                cache.histories.values().map(|cached| cached.history.encoded().bytes()).sum();
            assert_eq!(encoded, cache.encoded_bytes);
            assert!((1_000..=20_000).contains(&encoded), "{encoded}");
        }
        assert_eq!(cache.histories.len(), 100);
        cache.insert(key("large"), history(30_000), 20_000);
        assert_eq!(cache.remove(&key("large")).unwrap().encoded().bytes(), 0);
        cache.insert(key("again"), history(1_000), 20_000);
        cache.insert(key("again"), history(1_000), 20_000);
        for at in 0..100 {
            assert_eq!(cache.remove(&key(&format!("s{at}"))).unwrap().last(), EntryNo(1));
        }
        assert!(cache.remove(&key("again")).unwrap().encoded().bytes() > 1_000);
        assert_eq!(cache.encoded_bytes, 0);
    }
}
