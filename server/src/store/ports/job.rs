//! The port for jobs: background work after the end of a run. A job is written with that end, so that it is not lost.

use async_trait::async_trait;
use std::fmt;

use super::StoreError;

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;

/// A kind of work. Stored as text: `title`, `summary`, `post_run:HOOK`, `memory:SOURCE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Give the session a title, if it has none.
    Title,
    /// Bring the session's summary up to date.
    Summary,
    /// Tell a hook of the run's end.
    PostRun {
        /// Name of the hook, as it is registered.
        hook: String,
    },
    /// Hand a context source the entries that the run added.
    Memory {
        /// Name of the source, as it is registered.
        source: String,
    },
}

impl JobKind {
    /// Reads the stored text. `None` for a kind that this server does not know.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "title" => Some(Self::Title),
            None if text == "summary" => Some(Self::Summary),
            Some(("post_run", hook)) if !hook.is_empty() => Some(Self::PostRun { hook: hook.to_owned() }),
            Some(("memory", source)) if !source.is_empty() => {
                Some(Self::Memory { source: source.to_owned() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Title => f.write_str("title"),
            Self::Summary => f.write_str("summary"),
            Self::PostRun { hook } => write!(f, "post_run:{hook}"),
            Self::Memory { source } => write!(f, "memory:{source}"),
        }
    }
}

/// Id of a job. A run has at most one job of a kind. Its text, `RUN/KIND`, is the idempotency key for those who do the
/// work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The tenant that the run belongs to.
    pub tenant: TenantId,
    /// The run that it follows.
    pub run: RunId,
    /// The kind of work.
    pub kind: JobKind,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.kind)
    }
}

/// A job as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The run that it follows, and the kind.
    pub id: JobId,
    /// The session that the run belongs to. Its title and summary are the work of such jobs.
    pub session: SessionId,
    /// Time at which it is due.
    pub due_at: Timestamp,
    /// Number of attempts that failed.
    pub attempts: u32,
    /// Error of the last of them.
    pub error: Option<String>,
}

/// Title and summary that background work writes on a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// A title. Ignored if the session has one.
    pub title: Option<String>,
    /// A summary, and the last entry that it covers. Ignored if the session's summary covers as much.
    pub summary: Option<(String, EntryNo)>,
}

/// Jobs: background work after the end of a run.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Jobs that are due at `now`, tenant by tenant: of at most `limit` tenants, in the order of their ids, beginning behind
    /// `after` and going round. Of each, at most `limit` jobs, the longest due first. And the time at which the next job
    /// becomes due.
    async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError>;

    /// Records that an attempt failed, and when the next one is due. Does nothing if the job is gone.
    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError>;

    /// Deletes a job that is done or given up.
    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_as_text() {
        let named = |name: &str| {
            [JobKind::PostRun { hook: name.to_owned() }, JobKind::Memory { source: name.to_owned() }]
        };
        let kinds = [JobKind::Title, JobKind::Summary].into_iter().chain(named("a")).chain(named("a:b"));
        for kind in kinds {
            assert_eq!(JobKind::parse(&kind.to_string()), Some(kind));
        }
    }

    #[test]
    fn what_is_no_kind_is_refused() {
        for text in ["", "Title", "title:", "title:a", "post_run", "post_run:", "memory:", ":a", "other:a"] {
            assert_eq!(JobKind::parse(text), None, "{text:?}");
        }
    }
}
