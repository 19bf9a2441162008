//! Damage that was read since the store was opened: sessions with a damaged entry, and damaged questions. Only these
//! sessions are searched for further damaged entries, because a search reads all that a session has. A damaged question is
//! logged once, not at each list.

use std::collections::BTreeSet;

use crate::store::{ListedEntry, SessionStore, StoreError, StretchMax};
use agentloop_core::id::{EntryNo, RequestId, SessionId, SessionKey, TenantId};
use parking_lot::{Mutex, MutexGuard};

/// The most sessions that are remembered. With so many, the whole store is damaged.
const SESSIONS_MAX: usize = 1_024;
/// The most damaged questions that are remembered. With so many, the log has said enough.
const QUESTIONS_MAX: usize = 1_024;
/// One read of a search.
const PAGE: StretchMax = StretchMax { records: 500, bytes: 1024 * 1024 };

/// Sessions with a damaged entry, as far as one was read.
#[derive(Debug, Default)]
pub(in crate::store) struct DamagedSessions(Mutex<BTreeSet<SessionKey>>);

impl DamagedSessions {
    pub(in crate::store) fn note(&self, tenant: &TenantId, session: &SessionId) {
        let mut sessions = self.sessions();
        if sessions.len() < SESSIONS_MAX {
            sessions.insert(SessionKey::new(tenant.clone(), session.clone()));
        }
    }

    pub(in crate::store) fn has(&self, tenant: &TenantId, session: &SessionId) -> bool {
        let sessions = self.sessions();
        !sessions.is_empty() && sessions.contains(&SessionKey::new(tenant.clone(), session.clone()))
    }

    /// Forgets a deleted session, whose id may be used again.
    pub(in crate::store) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        self.sessions().remove(&SessionKey::new(tenant.clone(), session.clone()));
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeSet<SessionKey>> {
        self.0.lock()
    }
}

/// Damaged questions, as far as one was read.
#[derive(Debug, Default)]
pub(in crate::store) struct DamagedQuestions(Mutex<BTreeSet<(TenantId, RequestId)>>);

impl DamagedQuestions {
    /// True the first time that this question is noted, and for a bounded number of questions.
    pub(in crate::store) fn note(&self, tenant: &TenantId, request: &RequestId) -> bool {
        let mut questions = self.0.lock();
        questions.len() < QUESTIONS_MAX && questions.insert((tenant.clone(), request.clone()))
    }
}

/// The first damaged entries of a session, at most `limit`.
pub(in crate::store) async fn find(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_question_is_told_once() {
        let (questions, tenant) = (DamagedQuestions::default(), TenantId::local());
        let request = |number: usize| RequestId::parse(format!("r{number}:1.0:0")).unwrap();
        assert!(questions.note(&tenant, &request(0)));
        assert!(!questions.note(&tenant, &request(0)), "at the next list nobody is told again");
        assert!(
            questions.note(&TenantId::parse("other").unwrap(), &request(0)),
            "another tenant's is another"
        );
        let told = (1..2 * QUESTIONS_MAX).filter(|number| questions.note(&tenant, &request(*number))).count();
        assert_eq!(told + 2, QUESTIONS_MAX);
    }
}
