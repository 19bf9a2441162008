//! Executors of instructions, put in place of the built-in ones by whoever embeds the engine: for one agent, or for
//! all. Those of the agent win over those of the engine, and those over the built-in ones.
//!
//! What they do is journalled like what is built in, so it survives restarts in the same way: a model call that was cut
//! is made again; a tool call that was cut is made again if its tool's effect class allows it, else it is in doubt.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agentloop_core::id::{CallId, HostId, SessionId, TenantId};
use agentloop_core::outcome::Ran;
use agentloop_core::run::effect::Offer;
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::{CallOutcome, Input};
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt as _;

use crate::engine::compact::Compactor;
use crate::extension::RunContext;
use crate::model::Model;

/// The host that the journal names for calls that an executor runs.
const IN_PROCESS: &str = "in-process";

/// Runs tool calls in this process. Which tools there are, and whether a call may run, is decided as ever; hosts are
/// not asked.
#[async_trait]
pub trait ToolExecutor: Send + Sync + 'static {
    /// Whether it runs the calls of this tool; hosts run the others.
    fn takes(&self, tool: &str) -> bool;

    /// Runs a call. Dropped where the call is given up: when the run ends first, or the call's time is up.
    async fn run(&self, call: ToolExecution) -> CallOutcome;
}

/// A tool call to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExecution {
    /// Whose it is.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// Which try, from 1.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    /// The same for every try.
    pub idempotency_key: String,
    /// Given up after this.
    pub deadline: Timestamp,
}

/// Answers questions in a human's place.
#[async_trait]
pub trait HumanExecutor: Send + Sync + 'static {
    /// The answer; `None` leaves the question to a human. Whoever answers first counts. Asked again about a question
    /// that still waits when the run is taken up again.
    async fn answer(&self, run: RunContext, question: &Question) -> Option<Decision>;
}

/// Sees runs end.
#[async_trait]
pub trait FinishExecutor: Send + Sync + 'static {
    /// The run is over, durably. Called once at most: not again after a restart.
    async fn finished(&self, run: RunContext);
}

/// Executors, each in place of the built-in one.
#[derive(Clone, Default)]
pub struct Executors {
    /// Of model calls: asked whatever model the run names.
    pub model: Option<Arc<dyn Model>>,
    /// Of tool calls.
    pub tools: Option<Arc<dyn ToolExecutor>>,
    /// Of compactions, whichever strategy is asked for; `trim`, the last resort, stays built in.
    pub compactor: Option<Arc<dyn Compactor>>,
    /// Of questions to humans.
    pub human: Option<Arc<dyn HumanExecutor>>,
    /// Of what is done at the end.
    pub finish: Option<Arc<dyn FinishExecutor>>,
}

/// Every executor that there is.
#[derive(Clone, Default)]
pub(super) struct ExecutorTable {
    pub(super) engine: Executors,
    pub(super) agents: BTreeMap<String, Executors>,
}

impl ExecutorTable {
    /// The executor of one kind of instruction; `None` means the built-in one.
    pub(super) fn of<'a, T: ?Sized>(
        &'a self,
        agent: &str,
        kind: impl Fn(&'a Executors) -> Option<&'a Arc<T>>,
    ) -> Option<&'a Arc<T>> {
        self.agents.get(agent).and_then(&kind).or_else(|| kind(&self.engine))
    }
}

/// The host that stands for this process.
pub(super) fn in_process() -> HostId {
    HostId::parse(IN_PROCESS).expect("it is made of letters and a dash")
}

/// A call under way in this process, as what comes of it.
pub(super) async fn execute(
    executor: Arc<dyn ToolExecutor>,
    execution: ToolExecution,
    offer: Offer,
) -> Option<Input> {
    // A fault of the embedder's is one call's, and not the run's.
    let outcome = AssertUnwindSafe(executor.run(execution)).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|_| CallOutcome::Failed {
        message: "a fault in the tool".to_owned(),
        retryable: false,
        delay: Millis(0),
        ran: Ran::Maybe,
    });
    let Offer { slot, attempt, lease, host, .. } = offer;
    Some(Input::CallFinished { slot, attempt, lease, host, outcome, applied: Vec::new() })
}

/// What an executor says to a question, as what comes of it.
pub(super) async fn answer(
    executor: Arc<dyn HumanExecutor>,
    run: RunContext,
    question: Question,
) -> Option<Input> {
    let decision = AssertUnwindSafe(executor.answer(run, &question)).catch_unwind().await.ok()??;
    Some(Input::Decided {
        request: question.request,
        decision,
        digest: None,
        by: "executor".to_owned(),
        remember: None,
    })
}
