//! Sessions and their entries as stored, the conditions of their lists, and their changes.

use std::collections::BTreeMap;

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::limits::LABELS_MAX;
use agentloop_core::message::{FinishReason, Role, Usage};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::{Millis, Timestamp};

use crate::store::ports::filter::{contains, has_labels};
use crate::store::{StoreError, TimeRange};

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
    /// Name of the caller that created it; `None` without authentication.
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
    pub fn needs_rows(&self) -> bool {
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

/// A session to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// Its id, unique within the tenant.
    pub session: SessionId,
    /// The title that a caller gives it; empty leaves the title to the model.
    pub title: String,
    /// Labels that the caller gives it.
    pub labels: BTreeMap<String, String>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// The caller that creates it; `None` without authentication.
    pub created_by: Option<String>,
}

/// A session to be made from the entries of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFork {
    /// The tenant of both.
    pub tenant: TenantId,
    /// The session whose entries it shares.
    pub source: SessionId,
    /// The last entry to share; 0 means all of them.
    pub at: EntryNo,
    /// The id of the fork, unique within the tenant.
    pub session: SessionId,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// The caller that makes it; `None` without authentication.
    pub created_by: Option<String>,
    /// The caller that must have made the source, because it may read no others; `None` if anybody may have. A fork that was made
    /// before is confirmed whoever made the source by now.
    pub source_of: Option<String>,
}

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
    /// The session, by its id within the tenant.
    pub session: SessionId,
}
