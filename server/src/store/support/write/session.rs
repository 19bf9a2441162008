//! Sessions as they are to be written.

use agentloop_core::id::{RunId, SessionId, SessionKey, TenantId};

use crate::store::support::append::WriterCache;
use crate::store::{NewFork, NewSession, SessionNotes, SessionUpdate};

/// A write of a session that is no append.
#[derive(Debug)]
pub(in crate::store) enum SessionOp {
    Create(NewSession),
    GetOrCreate(NewSession),
    Update(NewUpdate),
    Fork(NewFork),
    Delete(DeleteSession),
    SetNotes(NewNotes),
}

impl SessionOp {
    /// The session that the write changes.
    pub(in crate::store) fn session(&self) -> (&TenantId, &SessionId) {
        match self {
            Self::Create(NewSession { tenant, session, .. })
            | Self::GetOrCreate(NewSession { tenant, session, .. })
            | Self::Update(NewUpdate { tenant, session, .. })
            | Self::Fork(NewFork { tenant, session, .. })
            | Self::Delete(DeleteSession { tenant, session, .. })
            | Self::SetNotes(NewNotes { tenant, session, .. }) => (tenant, session),
        }
    }

    /// True if a caller's act may consist of it.
    pub(super) fn is_act(&self) -> bool {
        match self {
            Self::Create(_) | Self::GetOrCreate(_) | Self::Update(_) | Self::Fork(_) | Self::Delete(_) => {
                true
            }
            Self::SetNotes(_) => false,
        }
    }

    /// True for a write that touches as many rows as a session has.
    pub(super) fn is_long(&self) -> bool {
        match self {
            Self::Fork(_) | Self::Delete(_) => true,
            Self::Create(_) | Self::GetOrCreate(_) | Self::Update(_) | Self::SetNotes(_) => false,
        }
    }

    /// Drops from the cache what is no longer true once this is done.
    pub(super) fn invalidate(&self, cache: &mut WriterCache) {
        match self {
            Self::Create(_) | Self::GetOrCreate(_) | Self::Fork(_) => {
                let (tenant, session) = self.session();
                cache.drop_session(&SessionKey::new(tenant.clone(), session.clone()));
                // It takes the next number, where the writer does not count them itself.
                cache.drop_numbers();
            }
            Self::Delete(_) => {
                let (tenant, session) = self.session();
                cache.drop_session_and_runs(&SessionKey::new(tenant.clone(), session.clone()));
                // Nobody else may have these runs' specs, and they go too.
                cache.forget_specs();
                cache.drop_numbers();
            }
            Self::Update(_) | Self::SetNotes(_) => {}
        }
    }

    /// The write as errors name it.
    pub(super) fn describe(&self) -> String {
        let (tenant, session) = self.session();
        match self {
            Self::Create(_) | Self::GetOrCreate(_) => format!("new session {tenant}/{session}"),
            Self::Update(_) => format!("update of session {tenant}/{session}"),
            Self::Fork(new) => format!("fork {tenant}/{session} of {}", new.source),
            Self::Delete(_) => format!("deletion of session {tenant}/{session}"),
            Self::SetNotes(_) => format!("notes on session {tenant}/{session}"),
        }
    }
}

/// A session to be deleted.
#[derive(Debug)]
pub(in crate::store) struct DeleteSession {
    pub(in crate::store) tenant: TenantId,
    pub(in crate::store) session: SessionId,
    /// A live run that does not keep the session, because its journal is damaged.
    pub(in crate::store) damaged: Option<RunId>,
}

/// A session's title and labels to be changed.
#[derive(Debug)]
pub(in crate::store) struct NewUpdate {
    pub(in crate::store) tenant: TenantId,
    pub(in crate::store) session: SessionId,
    pub(in crate::store) update: SessionUpdate,
}

/// Title and summary to be written on a session.
#[derive(Debug)]
pub(in crate::store) struct NewNotes {
    pub(in crate::store) tenant: TenantId,
    pub(in crate::store) session: SessionId,
    pub(in crate::store) notes: SessionNotes,
}
