//! Sessions and their entries.

use std::collections::BTreeMap;

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::{Page, PageRequest, SessionNotes, StoreError, StretchMax};

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// For people: as given, else as the model made it.
    pub title: String,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When an entry was last added.
    pub updated_at: Timestamp,
    /// Its last entry.
    pub last_entry: EntryNo,
    /// Its live run.
    pub live_run: Option<RunId>,
    /// The session that it was forked from, which may be deleted, and the last entry that both share.
    pub forked_from: Option<(SessionId, EntryNo)>,
    /// What it is about, if the model keeps a summary.
    pub summary: String,
    /// The last entry that the summary takes into account.
    pub summary_upto: EntryNo,
}

/// One entry of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRow {
    /// Its place.
    pub entry: EntryNo,
    /// The run that added it; of a shared entry, one of another session, which may be deleted.
    pub run: RunId,
    /// The event that holds it.
    pub seq: Seq,
    /// The time at which it happened.
    pub at: Timestamp,
    /// What it is.
    pub content: Entry,
}

/// Some of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryStretch {
    /// The entries; none only where there are none.
    pub rows: Vec<EntryRow>,
    /// Whether there are more of them.
    pub more: bool,
}

/// Sessions: conversations that runs add entries to.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Creates a session; the same content again is confirmed.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when it exists with another title or other labels, or is a fork.
    async fn create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError>;

    /// Makes a session from the entries of another up to `at`, where 0 means all that are there; with its title and its
    /// labels. Each goes its own way from there, and neither needs the other: what both have is stored once, and stays
    /// until both are deleted. The source may have a live run. The same source and entry again is confirmed, also when
    /// the source is gone by then.
    ///
    /// # Errors
    /// [`StoreError::NoSession`] without a source, [`StoreError::EntryAhead`], [`StoreError::SessionExists`] when
    /// `session` is anything else than this fork.
    async fn fork(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError>;

    /// Writes a title or a summary on a session; a title only where there is none. `false`: there is no such session.
    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError>;

    /// A session's row.
    async fn session(&self, tenant: &TenantId, session: &SessionId)
    -> Result<Option<SessionRow>, StoreError>;

    /// Sessions, the last touched first.
    async fn sessions(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<SessionRow>, StoreError>;

    /// Entries after `after`, in order, at most `limit`.
    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Entries after `after`, in order, as many as are to be held in memory at a time. A store that can leaves the rest
    /// where it is; this one reads it and drops it.
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

    /// Deletes a session with its runs, events and questions; its ids are free again. `false`: there was none. What
    /// forks share of it stays theirs.
    ///
    /// # Errors
    /// [`StoreError::SessionBusy`] with its live run, or the first in its queue.
    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError>;
}
