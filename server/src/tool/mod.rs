//! Tools as the engine sees them: what there is, what a call may do, and who runs it.
//!
//! The engine calls down through [`Tools`]; what happens to calls comes up through [`CallSink`].

mod catalogue;
mod host;
mod in_process;

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::ask::InputAnswer;
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, SessionId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::run::effect::Offer;
use agentloop_core::run::input::{CallFacts, CallOutcome};
use agentloop_core::tool::{Digest, ToolDeclaration};
use agentloop_core::trace::TraceParent;
use async_trait::async_trait;

pub use agentloop_core::host::FleetCounts;
pub use agentloop_core::host::News as CallNews;
pub use agentloop_core::host::frame::{CallInHand, Disposition};

pub use self::catalogue::own::{BadTool, OwnTools};
pub use self::catalogue::registry::RememberedTool;
pub use self::host::connection::{Connection, FrameError, Inbound, TooManyHosts};
pub use self::host::options::HostOptions;
pub use self::host::outbound::{Outbound, Sending};
pub use self::host::remote::RemoteTools;
pub use self::host::snapshot::{HostSnapshot, ToolSnapshot};
pub(crate) use in_process::{InProcess, ToolExecutors};
pub use in_process::{ToolExecution, ToolExecutor};

/// The tools that a model is offered, in the order to show them.
#[derive(Debug, Clone)]
pub struct Offered {
    /// The declarations.
    pub tools: Arc<[Arc<ToolDeclaration>]>,
    /// Of all of them, in order.
    pub digest: Digest,
}

/// Who wants a call to run, beside the call itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOwner {
    /// The tenant whose hosts may serve it.
    pub tenant: TenantId,
    /// The session, for the host's information.
    pub session: SessionId,
    /// The agent, whose calls may have an executor of their own.
    pub agent: String,
    /// The span above what the host does, for the host's information.
    pub traceparent: Option<TraceParent>,
}

/// What came of seeking a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seek {
    /// This host has room, and keeps it for the call until it is offered or given up.
    Granted(HostId),
    /// The call waits its turn; [`CallNews::Granted`] or [`CallNews::Denied`] follows.
    Queued,
    /// No host will have room: the queue is full, or nobody serves the tool. The model reads why.
    Denied(String),
}

/// Tools, wherever they run. Calls do not block; nothing here is durable.
pub trait Tools: Send + Sync + 'static {
    /// What a run's model is offered now: registered tools within the run's lists, in the run's order.
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered;

    /// What is known about calls that a model asks for: whether the tool exists and is allowed, and whether the
    /// arguments follow its schema (the message for the model names the path of what is wrong).
    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts>;

    /// Checks arguments that did not come from the model, such as those that a human edited.
    ///
    /// # Errors
    /// What is wrong, with its path; also when nobody knows the tool.
    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String>;

    /// Seeks a host for a call. Seeking twice is seeking once.
    fn seek(&self, owner: &CallOwner, call: &CallId, tool: &str) -> Seek;

    /// Like [`Tools::seek`], on the host that has the run's runtime; elsewhere only if that host is gone.
    fn seek_on(&self, owner: &CallOwner, call: &CallId, tool: &str, _host: &HostId) -> Seek {
        self.seek(owner, call, tool)
    }

    /// A runtime is used no longer: tells its host to close it, if it is connected.
    fn close_runtime(&self, _tenant: &TenantId, _host: &HostId, _runtime: &RuntimeId) {}

    /// Gives up the place in the queue, or the room that was granted.
    fn stop_seeking(&self, tenant: &TenantId, call: &CallId);

    /// Sends a call to the host that has room for it. If the host is gone by now, [`CallNews::Lost`] follows.
    fn offer(&self, owner: &CallOwner, call: &CallId, offer: Offer);

    /// Waits for a host to come back with a call that it may have been given before a restart; after the grace
    /// period [`CallNews::Lost`] follows.
    fn reclaim(&self, owner: &CallOwner, call: &CallId, offer: Offer);

    /// This try is over, or the call is settled otherwise: tells the host to stop, at once. A try whose answer is being
    /// recorded is only forgotten; a later try that is being sought is left alone.
    fn cancel(&self, tenant: &TenantId, call: &CallId, attempt: u32, reason: &str);

    /// Tells a running call's host what became of its question, if it is there.
    fn answer_input(
        &self,
        _tenant: &TenantId,
        _call: &CallId,
        _attempt: u32,
        _input: &str,
        _answer: InputAnswer,
    ) {
    }

    /// Forgets every call of a run, whatever its state: its task ended. Hosts keep working; what they send later goes
    /// through [`CallSink::finished`] as news of an unknown call.
    fn release(&self, tenant: &TenantId, run: &RunId);
}

/// A host's answer to a call, as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnswer {
    /// The try, counted from 1.
    pub attempt: u32,
    /// The lease that came with it.
    pub lease: String,
    /// The host.
    pub host: HostId,
    /// The answer.
    pub outcome: CallOutcome,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is recorded, durably, or led to another try.
    Recorded,
    /// It was recorded before.
    Duplicate,
    /// The call was settled otherwise, or is another host's by now.
    Stale,
    /// There is no such call, or the lease was never given out.
    Unknown,
}

/// The store cannot say now; the host is to connect again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unavailable")]
pub struct SinkUnavailable;

/// Where news of calls go: the engine.
#[async_trait]
pub trait CallSink: Send + Sync + 'static {
    /// Something happened to a call. In order per call. News of a call that nobody waits for are dropped.
    async fn news(&self, tenant: &TenantId, call: &CallId, news: CallNews);

    /// A host answers a call: from its stream, after a reconnect, or without a stream. Returns when the answer is
    /// durable or refused, also when the run was not in memory.
    ///
    /// # Errors
    /// When the store cannot say; the host keeps its answer.
    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        answer: CallAnswer,
    ) -> Result<Verdict, SinkUnavailable>;

    /// Whether a run still uses a runtime that a host says it has open, also when the run is not in memory.
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

    /// What a reconnecting host is to do with its calls of one run, in their order; also when the run is not in memory,
    /// which costs as much as its journal is long, however many the calls are.
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
