//! Work that follows a run's end: written with it, so that it is not lost, and done in the background.

use async_trait::async_trait;
use std::fmt;

use super::StoreError;

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;

/// What is to be done. As text, as it is stored: `title`, `summary`, `post_run:HOOK`, `memory:SOURCE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// The session gets a title, if it has none.
    Title,
    /// The session's summary is brought up to date.
    Summary,
    /// A hook is told of the run's end.
    PostRun {
        /// Its name.
        hook: String,
    },
    /// A context source is handed what the run added to its session.
    Memory {
        /// Its name.
        source: String,
    },
}

impl JobKind {
    /// Reads the textual form back. `None` for what this server does not know.
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

/// Which job: what is to be done, and after which run. The same of both is the same job, so asking for it twice is
/// asking once. As text, for whoever has to recognise a repetition: `RUN/KIND`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The run that it follows.
    pub run: RunId,
    /// What is to be done.
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
    /// The job's id.
    pub id: JobId,
    /// The run's session.
    pub session: SessionId,
    /// When it is to be done.
    pub due_at: Timestamp,
    /// Tries that failed.
    pub attempts: u32,
    /// Why the last of them did.
    pub error: Option<String>,
}

/// What background work writes on a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionNotes {
    /// A title, where nobody gave one and none was made.
    pub title: Option<String>,
    /// A summary, and the last entry that it takes into account. One that is not further than what is there is left
    /// out.
    pub summary: Option<(String, EntryNo)>,
}

/// Work that follows a run's end.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Jobs of every tenant that are due at `now`, the longest due first, at most `limit`, and when the next one is due
    /// after those.
    async fn due_jobs(&self, now: Timestamp, limit: u32)
    -> Result<(Vec<Job>, Option<Timestamp>), StoreError>;

    /// Notes that a try of a job failed, and when the next one is due. Of a job that is gone, it notes nothing.
    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError>;

    /// Removes a job that is done, or given up.
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
