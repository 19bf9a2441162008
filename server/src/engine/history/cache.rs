//! Histories of sessions that have no live run, for the next one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentloop_core::id::{EntryNo, SessionId, TenantId};

use super::History;
use crate::store::{Store, StoreError};

/// Histories kept.
const KEPT_MAX: usize = 1_024;
/// What adapters wrote of all of them together, in bytes. It is made from the history again where it is not kept.
const ENCODED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Histories of sessions that have no live run, for the next one.
#[derive(Debug, Default)]
pub(in crate::engine) struct Histories(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    histories: HashMap<(TenantId, SessionId), (History, usize)>,
    /// What adapters wrote of them.
    encoded_bytes: usize,
}

impl Histories {
    /// The session's history up to exactly this entry, from memory or from the store.
    pub(in crate::engine) async fn take(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<History, StoreError> {
        let kept = self.lock().remove(&(tenant.clone(), session.clone()));
        match kept.filter(|history| history.last() == upto) {
            Some(history) => Ok(history),
            None => History::load(store, tenant, session, upto).await,
        }
    }

    /// Keeps a history for the next run; one without entries is not worth it.
    pub(in crate::engine) fn keep(&self, tenant: TenantId, session: SessionId, history: History) {
        if history.last() == EntryNo(0) {
            return;
        }
        self.lock().insert((tenant, session), history, ENCODED_BYTES_MAX);
    }

    /// Forgets a deleted session.
    pub(in crate::engine) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        drop(self.lock().remove(&(tenant.clone(), session.clone())));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, key: &(TenantId, SessionId)) -> Option<History> {
        let (history, bytes) = self.histories.remove(key)?;
        self.encoded_bytes -= bytes;
        Some(history)
    }

    fn insert(&mut self, key: (TenantId, SessionId), mut history: History, encoded_bytes_max: usize) {
        self.remove(&key);
        if self.histories.len() >= KEPT_MAX
            && let Some(any) = self.histories.keys().next().cloned()
        {
            self.remove(&any);
        }
        let mut bytes = history.encoded().bytes();
        if bytes > encoded_bytes_max {
            history.forget_encoded();
            bytes = 0;
        }
        // The session that had a run last is the likeliest to have the next.
        let room = encoded_bytes_max - bytes;
        for (history, bytes) in self.histories.values_mut().filter(|(_, bytes)| *bytes > 0) {
            if self.encoded_bytes <= room {
                break;
            }
            history.forget_encoded();
            self.encoded_bytes -= std::mem::take(bytes);
        }
        self.encoded_bytes += bytes;
        self.histories.insert(key, (history, bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::entry::{Compaction, Entry};
    use agentloop_core::message::{Message, Role};

    use super::*;

    fn history(bytes: usize) -> History {
        let mut history = History::default();
        history.push(Entry::Message(Arc::new(Message::text(Role::User, "x".repeat(bytes)))));
        history.encoded().write(&history.messages());
        history
    }

    fn key(session: &str) -> (TenantId, SessionId) {
        (TenantId::local(), SessionId::parse(session).unwrap())
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
        let mut kept = Kept::default();
        for at in 0..100 {
            kept.insert(key(&format!("s{at}")), history(1_000), 20_000);
            let held: usize = kept.histories.values().map(|(history, _)| history.encoded().bytes()).sum();
            assert_eq!(held, kept.encoded_bytes);
            assert!((1_000..=20_000).contains(&held), "{held}");
        }
        assert_eq!(kept.histories.len(), 100);
        kept.insert(key("large"), history(30_000), 20_000);
        assert_eq!(kept.remove(&key("large")).unwrap().encoded().bytes(), 0);
        kept.insert(key("again"), history(1_000), 20_000);
        kept.insert(key("again"), history(1_000), 20_000);
        for at in 0..100 {
            assert_eq!(kept.remove(&key(&format!("s{at}"))).unwrap().last(), EntryNo(1));
        }
        assert!(kept.remove(&key("again")).unwrap().encoded().bytes() > 1_000);
        assert_eq!(kept.encoded_bytes, 0);
    }
}
