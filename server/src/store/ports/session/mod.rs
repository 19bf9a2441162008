//! The port for sessions and their entries.

mod entry_span;
mod row;

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use async_trait::async_trait;

pub use self::entry_span::{CallTitles, EntrySpan};
pub use self::row::{
    EntryRow, EntrySource, EntryStretch, IdleSession, LastRun, ListedEntries, ListedEntry, NewFork,
    NewSession, PROJECT_LABEL, SessionFilter, SessionRow, SessionUpdate, USER_LABEL,
};
use super::{Page, PageRequest, SessionNotes, StoreError, StretchMax};

/// Sessions: conversations that runs add entries to.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Creates a session; the same content again is confirmed to the same caller, also when the title or labels were changed
    /// since.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when it was created with another title or other labels, or is a fork.
    async fn create_session(&self, new: NewSession) -> Result<SessionRow, StoreError>;

    /// The session with these labels [`USER_LABEL`] and [`PROJECT_LABEL`] that was touched last. If there is none, creates
    /// the new one. Without the label of a project, only sessions without one are meant. Of calls at the same time, one
    /// creates a session, and all return it. With a caller, only sessions that it created count.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when a session has this id and other labels.
    async fn get_or_create_session(&self, new: NewSession) -> Result<SessionRow, StoreError>;

    /// Changes a session's title and labels, and returns its row. A title that is given here is not replaced by one that
    /// a model makes.
    ///
    /// # Errors
    /// [`StoreError::NoSession`], [`StoreError::TooManyLabels`].
    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        update: SessionUpdate,
    ) -> Result<SessionRow, StoreError>;

    /// Makes a session from the entries of another, with its title and labels. From there on they are independent: entries
    /// that both have are stored once, and stay until both sessions are deleted. The source may have a live run. A repetition
    /// with the same source and entry is confirmed, even after the source was deleted.
    ///
    /// # Errors
    /// [`StoreError::NoSession`] without a source, [`StoreError::EntryAhead`], [`StoreError::SessionExists`] when
    /// there is a session with the new id that is not this fork.
    async fn fork(&self, new: NewFork) -> Result<SessionRow, StoreError>;

    /// Writes a title or a summary on a session; a title only where there is none. `false`: there is no such session.
    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError>;

    /// The row of a session; `None` if there is no such session.
    async fn session(&self, tenant: &TenantId, session: &SessionId)
    -> Result<Option<SessionRow>, StoreError>;

    /// The to-do list that the model keeps of a session. This default is for a store whose sessions have none.
    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        let _none_has_any = (tenant, session);
        Ok(Vec::new())
    }

    /// Sessions that meet the conditions, the last touched first. A page may have fewer than fit, or none, and a next one.
    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError>;

    /// Entries after `after`, in order, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::DamagedEntry`] for the first damaged one.
    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Entries after `after`, in order, within `max`. This default reads more and drops it; a store that can reads only
    /// what it returns.
    ///
    /// # Errors
    /// [`StoreError::DamagedEntry`] for the first damaged one.
    async fn entry_stretch(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<EntryStretch, StoreError> {
        let mut rows = self.entries(tenant, session, after, max.records.saturating_add(1)).await?;
        let mut bytes = 0;
        let fits = |row: &&EntryRow| {
            let fits = bytes < max.bytes;
            bytes += match &row.content {
                Entry::Message(message) => message.size(),
                Entry::Compaction(compaction) => compaction.summary.len(),
            };
            fits
        };
        let fitting = rows.iter().take(max.records as usize).take_while(fits).count();
        let more = fitting < rows.len();
        rows.truncate(fitting);
        Ok(EntryStretch { rows, more })
    }

    /// As [`Self::entry_stretch`], with a row for each damaged entry. This default is for a store whose entries are never
    /// damaged.
    async fn listed_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<ListedEntries, StoreError> {
        let EntryStretch { rows, more } = self.entry_stretch(tenant, session, after, max).await?;
        Ok(ListedEntries { rows: rows.into_iter().map(ListedEntry::Whole).collect(), more })
    }

    /// Titles of the tool calls that were proposed between these entries, of those that have one. Entries whose run was deleted
    /// have no titles. This default is for a store that cannot find them.
    async fn call_titles(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        span: EntrySpan,
    ) -> Result<CallTitles, StoreError> {
        let _none_is_found = (tenant, session, span);
        Ok(CallTitles::new())
    }

    /// Numbers of the session's damaged entries, the first ones, at most `limit`. A store may wait with the search for
    /// them until somebody has read one. This default is for a store whose entries are never damaged.
    async fn damaged_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        limit: usize,
    ) -> Result<Vec<EntryNo>, StoreError> {
        let _none_is_damaged = (tenant, session, limit);
        Ok(Vec::new())
    }

    /// Every tenant that has a session.
    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError>;

    /// The number of a tenant's sessions; with a caller, of those that it created. Starts of sessions read it, so a
    /// store reads it from an index.
    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError>;

    /// Bytes of a tenant's journals and blobs; with a caller, of the runs that it started and the blobs that are its own. The
    /// quota `stored_bytes` reads it, less often the longer that takes. A store keeps the number of each run, so that
    /// it need not read the events.
    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError>;

    /// Sessions without a live run to which nothing was added at or after `before`, the longest unused first, at most
    /// `limit`. `after` is the last one of the call before.
    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError>;

    /// Deletes a session with its runs, events and questions. Its ids may be used again. Entries that forks share stay
    /// with the forks. `false`: there was none.
    ///
    /// # Errors
    /// [`StoreError::SessionBusy`] with its live run, or the first in its queue.
    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError>;

    /// As [`Self::delete_session`], also while this run is live: its journal is damaged, so nothing else ends it. A store
    /// without checksums has no such runs.
    ///
    /// # Errors
    /// [`StoreError::SessionBusy`] with another live run, or the first in the queue.
    async fn delete_damaged_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        _damaged: &RunId,
    ) -> Result<bool, StoreError> {
        self.delete_session(tenant, session).await
    }
}
