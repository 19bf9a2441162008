//! What whoever embeds the engine may put in: observers, strategies of compaction, executors of what follows runs, and
//! executors of instructions in place of the built-in ones, for one agent or for all. Those of the agent win over those
//! of the engine, and those over the built-in ones.
//!
//! What they do is journalled like what is built in, so it survives restarts in the same way: a model call that was cut
//! is made again; a tool call that was cut is made again if its tool's effect class allows it, else it is in doubt.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::context::compact::Goal;
use agentloop_core::entry::{Compaction, Entry};
use agentloop_core::error::ErrorClass;
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use agentloop_core::run::state::State;
use agentloop_core::time::Millis;
use async_trait::async_trait;
use futures_util::FutureExt as _;

use crate::extension::RunContext;
use crate::model::Model;
use crate::store::{Job, JobKind};
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

/// Sees every durable event of every run, after it is durable. Must not block.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn event(&self, _tenant: &TenantId, _run: &RunId, _session: &SessionId, _record: &Record) {}

    /// Who is to follow one run, as long as it has a task here: for observers that would otherwise have to look up
    /// what they know of a run at each of its events. `past` are the events that it had before, none for a new run.
    /// Asked each time that a run comes up.
    fn follow(
        &self,
        _tenant: &TenantId,
        _run: &RunId,
        _session: &SessionId,
        _past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        None
    }

    /// So many events of a run were made durable together, which took so long.
    fn appended(&self, _events: usize, _took: Duration) {}
}

/// Follows one run. Dropped with the run's task: when the run is over, waits, or goes on elsewhere.
pub trait RunObserver: Send + Sync + 'static {
    /// One event, after it is durable. Must not block.
    fn event(&mut self, record: &Record);
}

/// A strategy of one's own, for those who embed the engine.
#[async_trait]
pub trait Compactor: Send + Sync + 'static {
    /// How the entries are to be shown from here on. `goal` says what is to be achieved; what it does not achieve is
    /// trimmed further.
    ///
    /// # Errors
    /// Why it cannot; the context is trimmed then.
    async fn compact(&self, entries: &[Entry], goal: Goal) -> Result<Compaction, String>;
}

/// An embedder's strategies, by name.
pub type Compactors = BTreeMap<String, Arc<dyn Compactor>>;

/// Does what follows runs, as far as it is its business. The engine asks each of its executors what a run that ends
/// wants done, and gives a job to the first that takes it.
#[async_trait]
pub trait JobExecutor: Send + Sync + 'static {
    /// What is to be done after this run, which is about to be written as over. Must not block: the run's end waits for
    /// it.
    fn wanted(&self, tenant: &TenantId, ended: &State) -> Vec<JobKind>;

    /// Whether jobs of this kind are its business.
    fn takes(&self, kind: &JobKind) -> bool;

    /// Does a job of a run with this spec. It may have been done before, and is dropped where the server stops: either
    /// way it is given again, with the same id.
    ///
    /// # Errors
    /// [`JobError`], which says whether trying again may help.
    async fn execute(&self, job: &Job, spec: &RunSpec) -> Result<(), JobError>;
}

/// Why a job was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Another try may succeed.
    #[error("{why}")]
    Retryable {
        /// Stored with the job, never logged.
        why: String,
        /// The least to wait.
        after: Option<Millis>,
    },
    /// No further try will do better.
    #[error("{why}")]
    Fatal {
        /// For whoever embeds the executor; it is neither stored nor logged.
        why: String,
    },
}

impl JobError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Retryable { .. } => ErrorClass::Retryable,
            Self::Fatal { .. } => ErrorClass::Fatal,
        }
    }

    /// The least to wait before another try.
    pub(in crate::engine) fn after(&self) -> Option<Millis> {
        match self {
            Self::Retryable { after, .. } => *after,
            Self::Fatal { .. } => None,
        }
    }
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
