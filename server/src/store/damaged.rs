//! The sessions in which a damaged entry was read since the store was opened. Only these are searched for further ones: a
//! search reads all that a session has.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ListedEntry, SessionStore, StoreError, StretchMax};
use agentloop_core::id::{EntryNo, SessionId, TenantId};

/// The most sessions that are remembered. With so many, the whole store is damaged.
const SESSIONS_MAX: usize = 1_024;
/// One read of a search.
const PAGE: StretchMax = StretchMax { records: 500, bytes: 1024 * 1024 };

/// Sessions with a damaged entry, as far as one was read.
#[derive(Debug, Default)]
pub(super) struct DamagedSessions(Mutex<BTreeSet<(TenantId, SessionId)>>);

impl DamagedSessions {
    pub(super) fn note(&self, tenant: &TenantId, session: &SessionId) {
        let mut sessions = self.sessions();
        if sessions.len() < SESSIONS_MAX {
            sessions.insert((tenant.clone(), session.clone()));
        }
    }

    pub(super) fn has(&self, tenant: &TenantId, session: &SessionId) -> bool {
        let sessions = self.sessions();
        !sessions.is_empty() && sessions.contains(&(tenant.clone(), session.clone()))
    }

    /// Forgets a deleted session, whose id may be used again.
    pub(super) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        self.sessions().remove(&(tenant.clone(), session.clone()));
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeSet<(TenantId, SessionId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first damaged entries of a session, at most `limit`.
pub(super) async fn find(
    store: &dyn SessionStore,
    tenant: &TenantId,
    session: &SessionId,
    limit: usize,
) -> Result<Vec<EntryNo>, StoreError> {
    let (mut found, mut after) = (Vec::new(), EntryNo(0));
    loop {
        let page = store.listed_entries(tenant, session, after, PAGE).await?;
        let damaged = page.rows.iter().filter(|row| matches!(row, ListedEntry::Damaged { .. }));
        found.extend(damaged.map(ListedEntry::entry));
        match page.rows.last() {
            Some(last) if page.more && found.len() < limit => after = last.entry(),
            _ => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}
