//! Executors of instructions, put in place of the built-in ones by whoever embeds the engine: for one agent, or for
//! all. Those of the agent win over those of the engine, and those over the built-in ones.
//!
//! What they do is journalled like what is built in, so it survives restarts in the same way: a model call that was cut
//! is made again; a tool call that was cut is made again if its tool's effect class allows it, else it is in doubt.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use async_trait::async_trait;
use futures_util::FutureExt as _;

use crate::engine::effect::compact::Compactor;
use crate::extension::RunContext;
use crate::model::Model;
use crate::tool::ToolExecutors;
pub use crate::tool::{ToolExecution, ToolExecutor};

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
pub(in crate::engine) struct ExecutorTable {
    pub(in crate::engine) engine: Executors,
    pub(in crate::engine) agents: BTreeMap<String, Executors>,
}

impl ExecutorTable {
    /// Those of tool calls, beside those that were given for one tool each.
    pub(in crate::engine) fn of_tools(
        &self,
        tools: BTreeMap<String, Arc<dyn ToolExecutor>>,
    ) -> ToolExecutors {
        let agents = self.agents.iter();
        let agents = agents.filter_map(|(agent, own)| Some((agent.clone(), own.tools.clone()?)));
        ToolExecutors { agents: agents.collect(), all: self.engine.tools.clone(), tools }
    }

    /// The executor of one kind of instruction; `None` means the built-in one.
    pub(in crate::engine) fn of<'a, T: ?Sized>(
        &'a self,
        agent: &str,
        kind: impl Fn(&'a Executors) -> Option<&'a Arc<T>>,
    ) -> Option<&'a Arc<T>> {
        self.agents.get(agent).and_then(&kind).or_else(|| kind(&self.engine))
    }
}

/// What an executor says to a question, as what comes of it.
pub(in crate::engine) async fn answer(
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
