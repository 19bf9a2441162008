//! Sessions' histories in memory: a run reads its session once, and the next run of the session finds it here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agentloop_core::context::build::shown;
use agentloop_core::id::{EntryNo, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::event::Record;

use crate::store::{Store, StoreError};

/// Histories kept for runs to come.
const KEPT_MAX: usize = 1_024;
/// Entries read at a time.
const PAGE: u32 = 500;

/// What the model is shown of a session, up to an entry.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    messages: Vec<SharedMessage>,
}

impl History {
    /// Reads a session.
    pub(super) async fn load(
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<Self, StoreError> {
        let mut history = Self::default();
        while history.last() < upto {
            let page = store.entries(tenant, session, history.last(), PAGE).await?;
            if page.is_empty() {
                let what = format!("session {session} ends before entry {}", upto.0);
                return Err(StoreError::Corrupt { what });
            }
            let missing = usize::try_from(upto.0 - history.last().0).unwrap_or(usize::MAX);
            history.messages.extend(page.iter().take(missing).map(|row| shown(&row.message)));
        }
        Ok(history)
    }

    /// The last entry in it.
    pub(super) fn last(&self) -> EntryNo {
        EntryNo(self.messages.len() as u64)
    }

    /// Adds what these events add to the session.
    pub(super) fn extend<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for (entry, message) in records.into_iter().filter_map(|record| record.event.entry()) {
            debug_assert_eq!(entry, self.last().next(), "entries are dense");
            self.messages.push(shown(message));
        }
    }

    /// The messages up to an entry.
    pub(super) fn upto(&self, entry: EntryNo) -> &[SharedMessage] {
        let end = usize::try_from(entry.0).unwrap_or(usize::MAX).min(self.messages.len());
        &self.messages[..end]
    }
}

/// Histories of sessions that have no live run, for the next one.
#[derive(Debug, Default)]
pub(super) struct Histories(Mutex<HashMap<(TenantId, SessionId), History>>);

impl Histories {
    /// The session's history up to exactly this entry, from memory or from the store.
    pub(super) async fn take(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        session: &SessionId,
        upto: EntryNo,
    ) -> Result<History, StoreError> {
        let key = (tenant.clone(), session.clone());
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        match kept.filter(|history| history.last() == upto) {
            Some(history) => Ok(history),
            None => History::load(store, tenant, session, upto).await,
        }
    }

    /// Keeps a history for the next run.
    pub(super) fn keep(&self, tenant: TenantId, session: SessionId, history: History) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX
            && let Some(any) = kept.keys().next().cloned()
        {
            kept.remove(&any);
        }
        kept.insert((tenant, session), history);
    }

    /// Forgets a deleted session.
    pub(super) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(tenant.clone(), session.clone()));
    }
}
