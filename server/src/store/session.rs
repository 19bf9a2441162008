//! The port for sessions and their entries.

use std::collections::BTreeMap;

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::limits::LABELS_MAX;
use agentloop_core::message::{FinishReason, Role, Usage};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::todo::TodoItem;
use async_trait::async_trait;

use super::filter::{contains, has_labels};
use super::{CallTitles, EntrySpan, Page, PageRequest, SessionNotes, StoreError, StretchMax, TimeRange};

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Id of the session, unique within its tenant.
    pub session: SessionId,
    /// Title for people: the one that was given, else the one that a model made.
    pub title: String,
    /// Labels that the caller gave it.
    pub labels: BTreeMap<String, String>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time at which an entry was last added.
    pub updated_at: Timestamp,
    /// Number of its last entry; 0 if it has none.
    pub last_entry: EntryNo,
    /// The one run that may add entries now.
    pub live_run: Option<RunId>,
    /// The session that it was forked from, which may be deleted, and the last entry that both share.
    pub forked_from: Option<(SessionId, EntryNo)>,
    /// Summary that a model keeps of it; empty without one.
    pub summary: String,
    /// The last entry that the summary takes into account.
    pub summary_upto: EntryNo,
    /// Name of the caller that created it; `None` where nobody was asked who they are.
    pub created_by: Option<String>,
    /// Beginning of the first user message, on one line. Empty without one.
    pub preview: String,
    /// The live run, or else the run that was created last.
    pub last_run: Option<LastRun>,
}

/// The part of a session's last run that lists of sessions show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    /// Status after its last event.
    pub status: RunStatus,
    /// Name of the configured agent.
    pub agent: String,
    /// The model, as `provider/model`.
    pub model: String,
}

/// Conditions of a list of sessions; all must hold. Of a list of values, a session has one; an empty list means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Labels, all of which a session has.
    pub labels: BTreeMap<String, String>,
    /// Statuses of the last run.
    pub statuses: Vec<RunStatus>,
    /// Agents of the last run.
    pub agents: Vec<String>,
    /// Models of the last run, as `provider/model`.
    pub models: Vec<String>,
    /// Time of the last entry.
    pub updated: TimeRange,
    /// Text in the id, the title or the preview, in any case. Empty means any.
    pub text: String,
    /// Session that it was forked from. Absent means any.
    pub forked_from: Option<SessionId>,
    /// Caller that created it. Absent means any.
    pub created_by: Option<String>,
}

impl SessionFilter {
    /// True if the session meets every condition.
    #[must_use]
    pub fn matches(&self, row: &SessionRow) -> bool {
        let last = row.last_run.as_ref();
        let of_last = |is_meant: &dyn Fn(&LastRun) -> bool| last.is_some_and(is_meant);
        has_labels(&row.labels, &self.labels)
            && (self.statuses.is_empty() || of_last(&|run| self.statuses.contains(&run.status)))
            && (self.agents.is_empty() || of_last(&|run| self.agents.contains(&run.agent)))
            && (self.models.is_empty() || of_last(&|run| self.models.contains(&run.model)))
            && self.updated.contains(row.updated_at)
            && (self.created_by.is_none() || row.created_by == self.created_by)
            && self.matches_text(row)
            && self
                .forked_from
                .as_ref()
                .is_none_or(|from| row.forked_from.as_ref().is_some_and(|(source, _)| source == from))
    }

    /// True if the session meets the condition on its texts.
    #[must_use]
    pub fn matches_text(&self, row: &SessionRow) -> bool {
        self.text.is_empty()
            || [row.session.as_str(), &row.title, &row.preview].iter().any(|text| contains(text, &self.text))
    }

    /// True if the sessions are those of one user, which are few and which an index finds.
    #[must_use]
    pub fn is_of_user(&self) -> bool {
        self.labels.contains_key(USER_LABEL)
    }

    /// True if sessions are left out that only a look at their rows can tell, so that few of many may be left.
    #[must_use]
    pub fn looks_at_rows(&self) -> bool {
        let Self { labels, statuses, agents, models, updated: _, text, forked_from, created_by: _ } = self;
        !(labels.is_empty()
            && statuses.is_empty()
            && agents.is_empty()
            && models.is_empty()
            && text.is_empty()
            && forked_from.is_none())
    }
}

/// One entry of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRow {
    /// Its number in the session, from 1.
    pub entry: EntryNo,
    /// The run that added it. The run of an entry that a fork shares is of another session, and may be deleted.
    pub run: RunId,
    /// The event of that run that holds it.
    pub seq: Seq,
    /// Time of that event.
    pub at: Timestamp,
    /// The message or the compaction.
    pub content: Entry,
    /// The source of the content.
    pub source: EntrySource,
}

/// Facts about the call that wrote an entry, for a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntrySource {
    /// The reason why the model stopped. Only of a message that a model of this server wrote.
    pub finish: Option<FinishReason>,
    /// Tokens and cost of the model call. Only of such a message.
    pub usage: Option<Usage>,
    /// Duration of the model call or of the tool call.
    pub duration: Option<Millis>,
    /// The model, as `provider/model`. Empty unless a model wrote the message.
    pub model: String,
}

impl EntrySource {
    /// The facts that an event tells. `model` is the model of its run.
    #[must_use]
    pub fn of(event: &Event, model: &str) -> Self {
        match event {
            Event::AssistantMessage { finish, usage, duration, .. } => Self {
                finish: Some(finish.clone()),
                usage: Some(*usage),
                duration: Some(*duration),
                model: model.to_owned(),
            },
            Event::CallSettled { duration, .. } => Self { duration: Some(*duration), ..Self::default() },
            Event::Imported { message, .. } if message.role == Role::Assistant => {
                Self { model: model.to_owned(), ..Self::default() }
            }
            _ => Self::default(),
        }
    }
}

/// A bounded part of a session's entries.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryStretch {
    /// The entries, in order. Empty only if there are none.
    pub rows: Vec<EntryRow>,
    /// True if more follow.
    pub more: bool,
}

/// An entry as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub enum ListedEntry {
    /// An entry that fits its checksum, or has none.
    Whole(EntryRow),
    /// An entry that was stored and cannot be read any more.
    Damaged {
        /// Its number in the session.
        entry: EntryNo,
        /// The run that added it, if that is still known.
        run: Option<RunId>,
        /// The event of that run that held it.
        seq: Seq,
    },
}

impl ListedEntry {
    /// Its number in the session.
    #[must_use]
    pub fn entry(&self) -> EntryNo {
        match self {
            Self::Whole(row) => row.entry,
            Self::Damaged { entry, .. } => *entry,
        }
    }
}

/// A bounded part of a session's entries, damaged ones included.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEntries {
    /// The entries, in order. Empty only if there are none.
    pub rows: Vec<ListedEntry>,
    /// True if more follow.
    pub more: bool,
}

/// Label of a session that names its user. It is indexed.
pub const USER_LABEL: &str = "user";
/// Label of a session that names its project. It is indexed.
pub const PROJECT_LABEL: &str = "project";

/// A change of a session's title and labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The title that a caller gives it. Absent leaves what is there; empty leaves the title to the model.
    pub title: Option<String>,
    /// Labels to be set. Others stay.
    pub set_labels: BTreeMap<String, String>,
    /// Keys of labels to be removed, before any is set. A key that is not there is no error.
    pub remove_labels: Vec<String>,
}

impl SessionUpdate {
    /// The labels of a session that has these now.
    ///
    /// # Errors
    /// [`StoreError::TooManyLabels`].
    pub fn labels(&self, now: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, StoreError> {
        let mut labels = now.clone();
        labels.retain(|key, _| !self.remove_labels.contains(key));
        labels.extend(self.set_labels.clone());
        if labels.len() > LABELS_MAX { Err(StoreError::TooManyLabels) } else { Ok(labels) }
    }
}

/// A session that no run is live in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleSession {
    /// Time at which an entry was last added.
    pub updated_at: Timestamp,
    /// Id of the session.
    pub session: SessionId,
}

/// Sessions: conversations that runs add entries to.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Creates a session, `by` this caller; the same content again is confirmed to the same caller, also when the title or
    /// labels were changed since.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when it was created with another title or other labels, or is a fork.
    async fn create_session_by(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError>;

    /// The session with these labels [`USER_LABEL`] and [`PROJECT_LABEL`] that was touched last. If there is none, creates
    /// `session`. Without the label of a project, only sessions without one are meant. Of calls at the same time, one
    /// creates a session, and all return it. With a caller, only sessions that it created count.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when a session has this id and other labels.
    async fn get_or_create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError>;

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

    /// Makes a session, `by` this caller, from the entries of another up to `at`, where 0 means all, with its title and
    /// labels. From there on they are independent: entries that both have are stored once, and stay until both sessions are
    /// deleted. The source may have a live run. A repetition with the same source and entry is confirmed, even after the
    /// source was deleted.
    ///
    /// # Errors
    /// [`StoreError::NoSession`] without a source, [`StoreError::EntryAhead`], [`StoreError::SessionExists`] when
    /// `session` exists and is not this fork.
    async fn fork_by(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError>;

    /// As [`Self::create_session_by`], by nobody who was asked who they are.
    async fn create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.create_session_by(tenant, session, title, labels, now, None).await
    }

    /// As [`Self::fork_by`], by nobody who was asked who they are.
    async fn fork(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.fork_by(tenant, source, at, session, now, None).await
    }

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

    /// The number of a tenant's sessions; with a caller, of those that it created. Starts of sessions ask, so a store answers
    /// from an index.
    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError>;

    /// Bytes of a tenant's journals and blobs; with a caller, of the runs that it started and the blobs that are its own. The
    /// quota `stored_bytes` asks, less often the longer an answer takes. A store keeps the number of each run, so that it need
    /// not read the events.
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
