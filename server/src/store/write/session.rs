//! Sessions as they are to be written.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use agentloop_core::time::Timestamp;

use crate::store::{SessionNotes, SessionUpdate};

/// A session to be created.
#[derive(Debug)]
pub(in crate::store) struct NewSession {
    pub(in crate::store) tenant: TenantId,
    pub(in crate::store) session: SessionId,
    pub(in crate::store) title: String,
    pub(in crate::store) labels: BTreeMap<String, String>,
    pub(in crate::store) now: Timestamp,
    /// The caller that creates it.
    pub(in crate::store) by: Option<String>,
}

impl NewSession {
    pub(in crate::store) fn new(
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
        by: Option<&str>,
    ) -> Self {
        Self {
            tenant: tenant.clone(),
            session: session.clone(),
            title: title.to_owned(),
            labels: labels.clone(),
            now,
            by: by.map(str::to_owned),
        }
    }
}

/// A fork to be made.
#[derive(Debug)]
pub(in crate::store) struct NewFork {
    pub(in crate::store) tenant: TenantId,
    pub(in crate::store) source: SessionId,
    /// The last entry to share; 0 means all of them.
    pub(in crate::store) at: EntryNo,
    pub(in crate::store) session: SessionId,
    pub(in crate::store) now: Timestamp,
    /// The caller that makes it.
    pub(in crate::store) by: Option<String>,
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
