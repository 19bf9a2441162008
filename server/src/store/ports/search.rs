//! The port for full-text search.

use agentloop_core::id::TenantId;
use agentloop_core::id::{EntryNo, RunId, SessionId};
use agentloop_core::message::Role;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::StoreError;

/// Conditions of a search; all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// Session to search in. Absent means all of the tenant.
    pub session: Option<SessionId>,
    /// Session whose entries are left out, also where forks share them.
    pub not_session: Option<SessionId>,
    /// Caller that created the sessions. Absent means any.
    pub created_by: Option<String>,
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// Its session. For an entry that forks share, the session that it came from, unless that one is deleted.
    pub session: SessionId,
    /// Its number in that session.
    pub entry: EntryNo,
    /// The run that added it. May be deleted if forks share the entry.
    pub run: RunId,
    /// Time of its event.
    pub at: Timestamp,
    /// Role of the message: user or assistant.
    pub role: Role,
    /// Part of its text around the first term that was found.
    pub snippet: String,
    /// Rank; higher is better. Comparable within one result only.
    pub score: f64,
}

/// Full-text search in the messages of sessions.
#[async_trait]
pub trait SearchStore: Send + Sync + 'static {
    /// Finds user and assistant messages that contain any word of a free text, the best match first, at most `limit` and
    /// at most 100. Nothing in the text works as an operator; only its first 4 KiB count.
    ///
    /// # Errors
    /// [`StoreError::SearchOff`] if this store has no index.
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError>;
}
