//! The engine's interface to tools: list them, check calls, find a host for a call and cancel it.
//!
//! The engine calls [`Tools`]. Tools report what happens to calls through [`CallSink`].

mod catalogue;
mod cluster;
mod host;
mod in_process;

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, Epoch, HostId, InstanceId, RunId, RuntimeId, SessionId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::question::InputAnswer;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::{CallFacts, CallOutcome, NotOffered};
use agentloop_core::tool::{Digest, ToolDeclaration, ToolTerms};
use agentloop_core::trace::TraceParent;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub use agentloop_core::host::CallUpdate;
pub use agentloop_core::host::FleetCounts;
pub use agentloop_core::host::frame::{CallInHand, Disposition};

pub use self::catalogue::own::{BadTool, OwnTools};
pub use self::catalogue::registry::StoredTool;
pub use self::catalogue::terms::{RefusedDeclaration, TermsError};
pub use self::cluster::{
    ClusterTools, EncodeRequest, HubEnd, LINK_FRAME_BYTES_MAX, LinkDialer, LinkFrames, LinkInbound,
    LocatedOwners, RunOwner, RunOwners,
};
pub use self::host::connection::{FrameError, HostStream, Inbound, NotAccepted};
pub use self::host::identity::HostIdentity;
pub use self::host::ids::HostIds;
pub use self::host::options::RemoteToolsOptions;
pub use self::host::outbound::{Outbound, OutboundFrames};
pub use self::host::remote::{RemoteTools, UnsavedTools};
pub use self::host::rows::{StoredCatalogue, ToolRows};
pub use self::host::snapshot::{HostSnapshot, ToolSnapshot};
pub(crate) use in_process::{InProcess, ToolExecutors};
pub use in_process::{ToolExecution, ToolExecutor};

/// The tools that a model is offered, in the order to show them.
#[derive(Debug, Clone)]
pub struct Offered {
    /// The declarations, in the order to show them.
    pub tools: Arc<[Arc<ToolDeclaration>]>,
    /// Digest over the declarations in this order. It changes when a tool or the order changes.
    pub digest: Digest,
}

impl Offered {
    /// True if a tool of this name is among them.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }
}

/// The tenant, session and agent on whose behalf a call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOrigin {
    /// The tenant whose hosts may serve it.
    pub tenant: TenantId,
    /// The run's session. The host is told of it.
    pub session: SessionId,
    /// The agent, whose calls may have an executor of their own.
    pub agent: String,
    /// Name of the caller that started the run; `None` for an unauthenticated caller.
    pub caller: Option<String>,
    /// Groups of that caller, as they were when it started the run.
    pub caller_groups: Arc<[String]>,
    /// The parent span for the host's own spans.
    pub traceparent: Option<TraceParent>,
    /// The epoch under which the run's task owns the run. Calls of an earlier owner are refused where a later one is known.
    #[serde(default)]
    pub epoch: Epoch,
}

/// The result of seeking a host for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seek {
    /// This host has room, and keeps it for the call until it is offered or given up.
    Granted {
        /// The host with the room.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        instance: Option<InstanceId>,
        /// The terms that it declares for the tool. `None`: those that [`Tools::facts`] told.
        terms: Option<Arc<ToolTerms>>,
    },
    /// The call waits in the tool's queue; [`CallUpdate::Granted`] or [`CallUpdate::Denied`] follows.
    Queued,
    /// No host will have room: the queue is full, or no host serves the tool. The model reads this reason.
    Denied(String),
}

impl Seek {
    /// The result of a seek that this update tells. Any but a grant or a denial leaves the call in the queue.
    pub(crate) fn of(update: CallUpdate) -> Self {
        match update {
            CallUpdate::Granted { host, instance, terms } => Self::Granted { host, instance, terms },
            CallUpdate::Denied { message } => Self::Denied(message),
            CallUpdate::Accepted { .. }
            | CallUpdate::Checkpoint { .. }
            | CallUpdate::Resumable { .. }
            | CallUpdate::InputNeeded { .. }
            | CallUpdate::Lost { .. }
            | CallUpdate::Stopped { .. }
            | CallUpdate::Progress { .. }
            | CallUpdate::Output { .. } => Self::Queued,
        }
    }

    /// The update for a run that takes the call for queued. `None` if it is, or is granted under terms that need no
    /// look-up.
    pub(in crate::tool) fn update(self) -> Option<CallUpdate> {
        match self {
            Self::Granted { host, instance, terms: terms @ Some(_) } => {
                Some(CallUpdate::Granted { host, instance, terms })
            }
            Self::Denied(message) => Some(CallUpdate::Denied { message }),
            Self::Queued | Self::Granted { terms: None, .. } => None,
        }
    }
}

/// A typed output that does not follow its schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOutput {
    /// It breaks the schema that its host declared.
    #[error("{0}")]
    BreaksSchema(String),
    /// Nobody knows any more which schema its host declared, and it follows none that is known.
    #[error("{0}")]
    FitsNone(String),
}

/// Tools on hosts or in this process. No method blocks, and nothing here is durable.
pub trait Tools: Send + Sync + 'static {
    /// The tools that a run's model may call now, in the run's order: those that are registered, within the run's lists, and
    /// not denied by a rule whatever their arguments.
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered;

    /// The tools that a run which starts now is not offered, although its lists name or allow them.
    fn not_offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> NotOffered {
        NotOffered::default()
    }

    /// Checks the calls that a model requests, one result per call in the same order. A call is rejected if the tool
    /// does not exist, is not allowed, or its arguments break the schema; the message names the JSON path.
    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts>;

    /// Checks arguments that a human edited, against the tool's schema.
    ///
    /// # Errors
    /// The fault with its JSON path, or that there is no such tool.
    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String>;

    /// Checks the typed output of a call against the output schema under which it was offered, by its digest. If that is not
    /// known any more, it may follow any schema that is known. A tool without one gives none.
    ///
    /// # Errors
    /// The fault with its JSON path.
    fn check_output(
        &self,
        _tenant: &TenantId,
        _tool: &str,
        _declared: Option<&Digest>,
        _structured: &str,
    ) -> Result<(), BadOutput> {
        Ok(())
    }

    /// Seeks a host for a call: the host `on`, which has the run's runtime, or any. Another one than `on` is used only if that is
    /// gone. Idempotent: a second call for the same attempt changes nothing.
    fn seek(&self, origin: &CallOrigin, call: &CallId, tool: &str, on: Option<&HostId>) -> Seek;

    /// The response of another replica, which has the hosts, to the last seek of this call: [`CallUpdate::Granted`] or
    /// [`CallUpdate::Denied`], which the sink is then not told. Without one, the call is queued. A response that comes after the
    /// receiver is dropped goes to the sink.
    fn seek_response(&self, _tenant: &TenantId, _call: &CallId) -> Option<oneshot::Receiver<CallUpdate>> {
        None
    }

    /// True while a run that offered a call should wait, before it stops, for its host to confirm or reject the call.
    fn is_offer_open(&self, _tenant: &TenantId, _call: &CallId) -> bool {
        false
    }

    /// Tells the host, if it is connected, to close a runtime that no run uses any more.
    fn close_runtime(&self, _tenant: &TenantId, _host: &HostId, _runtime: &RuntimeId) {}

    /// Removes the call from the queue, or releases the room that was granted to it.
    fn stop_seeking(&self, tenant: &TenantId, call: &CallId);

    /// Sends a call to the host that has room for it. If the host is gone by now, [`CallUpdate::Lost`] follows.
    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer);

    /// Waits for a host to come back with a call that it may have been given before a restart; after the grace
    /// period [`CallUpdate::Lost`] follows.
    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer);

    /// Tells the host at once to stop this attempt. If the attempt's result is being recorded, only forgets it. A later
    /// attempt that seeks a host is not affected.
    fn cancel(&self, tenant: &TenantId, call: &CallRef, cause: CancelCause, reason: &str);

    /// Sends a running call's host the answer to its question, if the host is connected.
    fn answer_input(&self, _tenant: &TenantId, _call: &CallRef, _input: &str, _answer: InputAnswer) {}

    /// Tells a running call's host, if it is connected, that the state which the call left is recorded.
    fn ack_resume_state(&self, _tenant: &TenantId, _call: &CallRef, _resume_no: u64) {}

    /// Takes an attempt from its host: the call waits for a person, and its next attempt goes on.
    fn release_call(&self, _tenant: &TenantId, _call: &CallRef) {}

    /// Forgets every call of a run whose task ended. Hosts keep working: a result that arrives later is passed to
    /// [`CallSink::finished`] like that of any unknown call.
    fn release(&self, tenant: &TenantId, run: &RunId);
}

/// A host's result for one attempt of a call, as received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportedResult {
    /// The attempt that the host had. The run may be at a later one.
    pub attempt: Attempt,
    /// The lease that the host returned. Not checked yet.
    pub lease: String,
    /// The host that sent it.
    pub host: HostId,
    /// Success with output, or failure.
    pub outcome: CallOutcome,
}

/// The fate of a host's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is durable, or led to another attempt.
    Recorded,
    /// The same result was recorded earlier.
    Duplicate,
    /// The call was settled without it, another host has the call by now, or the journal of its run is damaged.
    Stale,
    /// There is no such call, or the lease was never given out.
    Unknown,
}

/// The store does not respond at the moment. The host is told to connect again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store does not respond; try again later")]
pub struct SinkUnavailable;

/// Receiver of everything that happens to calls. The engine implements it.
#[async_trait]
pub trait CallSink: Send + Sync + 'static {
    /// Reports that something happened to a call. Reports of one call arrive in order. A report of a call that no run
    /// waits for is dropped. False: the run could not be told, and its next owner needs the report.
    async fn report_update(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool;

    /// Records a host's result, from its stream or from `CompleteCall`. Returns when the result is durable or refused.
    /// A run that is not in memory is loaded for it.
    ///
    /// # Errors
    /// When the store does not respond; the host keeps its result.
    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable>;

    /// True while results that cannot be recorded are kept and tried again, and the streams of their hosts stay. Several replicas
    /// own the runs of one host, and the results of the others can be recorded.
    fn keeps_results(&self) -> bool {
        false
    }

    /// True if several replicas own runs, and the owner of this one is known without a look-up.
    fn has_owner(&self, _tenant: &TenantId, _run: &RunId) -> bool {
        false
    }

    /// True if a run still uses a runtime that a host reports as open, also when the run is not in memory.
    ///
    /// # Errors
    /// When the store cannot say.
    async fn uses_runtime(
        &self,
        _tenant: &TenantId,
        _runtime: &RuntimeId,
        _host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        Ok(true)
    }

    /// Decides what a reconnecting host is to do with its calls of one run, one result per call in the same order. A run
    /// that is not in memory is read from its journal once, for all calls together.
    ///
    /// # Errors
    /// When the store cannot say.
    async fn dispositions(
        &self,
        tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable>;
}

#[cfg(test)]
pub(crate) mod tests;
