//! A request to start a run, and the run that it leads to.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;

/// A request to start a run, or to hand messages to a live one.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// The tenant that owns the run.
    pub tenant: TenantId,
    /// The run's id, which makes the request idempotent. `None`: the engine makes one.
    pub run: Option<RunId>,
    /// The session to continue. `None`: a new one.
    pub session: Option<SessionId>,
    /// True to create the session if it does not exist.
    pub create_session: bool,
    /// The run's model, prompt, tools and limits.
    pub spec: Arc<RunSpec>,
    /// The caller's messages. They are added to the session.
    pub messages: Vec<SharedMessage>,
    /// Digest of the whole request. A repetition with another digest is
    /// [`IdReused`](crate::engine::error::EngineError::IdReused).
    pub digest: Digest,
    /// The caller that requests the run.
    pub author: Author,
    /// The choice for a session that has a live run or a queue.
    pub on_busy: OnBusy,
    /// The caller's span. A repetition may carry another one; the first is used.
    pub traceparent: Option<TraceParent>,
    /// True if the messages are a conversation that was held elsewhere: they enter the session, and the run ends.
    pub imports: bool,
}

/// The caller that starts a run. By default an unauthenticated caller, which may enter every session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// Name that new runs and sessions are recorded with.
    pub name: Option<String>,
    /// Groups that a new run is recorded with. The hosts of its calls are told.
    pub groups: Vec<String>,
    /// True if only runs and sessions with this name may be joined and entered; others are as if they were not there.
    pub only_own: bool,
}

impl Author {
    /// True if the author may use what this caller created.
    #[must_use]
    pub fn may_use(&self, created_by: Option<&str>) -> bool {
        !self.only_own || (created_by.is_some() && created_by == self.name.as_deref())
    }
}

/// The choice for a start in a session that has a live run or a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// Refuse the start, with [`SessionBusy`](crate::engine::error::EngineError::SessionBusy).
    #[default]
    Reject,
    /// Queue the run behind all earlier ones.
    Enqueue,
    /// Abort the live run, and queue the run before all others.
    Interrupt,
    /// Hand the messages to the live run.
    Steer,
}

/// The run that a request led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedRun {
    /// The new run, or the one that was joined.
    pub run: RunId,
    /// The session of that run.
    pub session: SessionId,
    /// True if the run existed before this request.
    pub joined: bool,
    /// True if the messages were handed to another request's live run.
    pub steered: bool,
}
