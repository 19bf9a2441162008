//! The engine's own traits that an embedder may implement: observers, compaction strategies, executors of jobs that
//! follow runs, and executors that replace the built-in ones for an instruction. [`crate::app::ports`] has those of all
//! modules.
//!
//! An executor is given for one agent or for all agents. The agent's comes before the engine's, and that before the
//! built-in one.
//!
//! The work of an executor is journalled like built-in work, so it survives restarts in the same way. A model call that
//! was cut is made again. A tool call that was cut is made again if the tool's effect class allows it; otherwise it is in
//! doubt.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::context::compact::CompactionGoal;
use agentloop_core::entry::{Compaction, Entry};
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::model::error::ErrorClass;
use agentloop_core::run::event::Record;
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use agentloop_core::run::state::RunState;
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
    /// Decides a question. `None` leaves it to a human. A human may answer meanwhile; the first answer counts. An open
    /// question is asked again when its run is taken over, for example after a restart.
    async fn answer(&self, run: RunContext, question: &Question) -> Option<Decision>;
}

/// Gets a call at the end of each run.
#[async_trait]
pub trait FinishExecutor: Send + Sync + 'static {
    /// Called once the run's end is durable, at most once: a restart in between loses the call.
    async fn finished(&self, run: RunContext);
}

/// Gets every event of every run, after it is durable. Its methods are called on the run's task and must not block.
pub trait Observer: Send + Sync + 'static {
    /// Called for each durable event, in order within a run.
    fn event(&self, _tenant: &TenantId, _run: &RunId, _session: &SessionId, _record: &Record) {}

    /// Makes an observer of one run, which lives as long as the run's task. It can keep what it knows of the run, so it
    /// needs no look-up for each event. Called each time the run becomes live; `past` are its events so far.
    fn follow(
        &self,
        _tenant: &TenantId,
        _run: &RunId,
        _session: &SessionId,
        _past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        None
    }

    /// Called after each commit of a run: the number of events in it, and the time until they were durable.
    fn appended(&self, _events: usize, _took: Duration) {}
}

/// Observes one run. It is dropped with the run's task, when the run ends or parks.
pub trait RunObserver: Send + Sync + 'static {
    /// Called for each durable event, in order. Must not block.
    fn event(&mut self, record: &Record);
}

/// A compaction strategy of the embedder.
#[async_trait]
pub trait Compactor: Send + Sync + 'static {
    /// Decides how the entries are shown to the model from here on. If the result misses the goal, the engine trims it
    /// further.
    ///
    /// # Errors
    /// The reason, for people. The engine then trims the context itself.
    async fn compact(&self, entries: &[Entry], goal: CompactionGoal) -> Result<Compaction, String>;
}

/// An embedder's compaction strategies, by name.
pub type Compactors = BTreeMap<String, Arc<dyn Compactor>>;

/// Does jobs of some kinds that follow runs. At a run's end the engine reads from every executor which jobs are wanted,
/// and gives each job to the first executor that takes its kind.
#[async_trait]
pub trait JobExecutor: Send + Sync + 'static {
    /// The jobs to do after this run, whose end is about to be written. Must not block: the write waits for it.
    fn wanted(&self, tenant: &TenantId, ended: &RunState) -> Vec<JobKind>;

    /// True if this executor does jobs of this kind.
    fn takes(&self, kind: &JobKind) -> bool;

    /// Does a job of a run with this spec. The future is dropped when the server stops. The job is then given again with
    /// the same id, so it may have been done before.
    ///
    /// # Errors
    /// [`JobError`] says if another attempt may help.
    async fn execute(&self, job: &Job, spec: &RunSpec) -> Result<(), JobError>;
}

/// The reason why an attempt of a job failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Another attempt may succeed.
    #[error("{why}")]
    Retryable {
        /// The reason. It is stored with the job and never logged.
        why: String,
        /// The shortest wait before the next attempt.
        after: Option<Millis>,
    },
    /// No further attempt would succeed.
    #[error("{why}")]
    Fatal {
        /// The reason, for callers of the executor. It is neither stored nor logged.
        why: String,
    },
}

impl JobError {
    /// The class, which decides about another attempt.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Retryable { .. } => ErrorClass::Retryable,
            Self::Fatal { .. } => ErrorClass::Fatal,
        }
    }

    /// The shortest wait before another attempt.
    pub(in crate::engine) fn after(&self) -> Option<Millis> {
        match self {
            Self::Retryable { after, .. } => *after,
            Self::Fatal { .. } => None,
        }
    }
}

/// Executors of instructions. Each replaces the built-in one; `None` keeps it.
#[derive(Clone, Default)]
pub struct Executors {
    /// Makes all model calls, for every model that a run names.
    pub model: Option<Arc<dyn Model>>,
    /// Runs tool calls of the tools that it takes.
    pub tools: Option<Arc<dyn ToolExecutor>>,
    /// Does compactions of every strategy except `trim`, which stays built in as the last resort.
    pub compactor: Option<Arc<dyn Compactor>>,
    /// Answers questions in a human's place.
    pub human: Option<Arc<dyn HumanExecutor>>,
    /// Gets a call at the end of each run.
    pub finish: Option<Arc<dyn FinishExecutor>>,
}

/// All executors: those for every agent, and those of single agents by the agent's name.
#[derive(Clone, Default)]
pub(in crate::engine) struct ExecutorTable {
    pub(in crate::engine) engine: Executors,
    pub(in crate::engine) agents: BTreeMap<String, Executors>,
}

impl ExecutorTable {
    /// The executors of tool calls: those in this table, and `tools`, which are given for one tool each.
    pub(in crate::engine) fn of_tools(
        &self,
        tools: BTreeMap<String, Arc<dyn ToolExecutor>>,
    ) -> ToolExecutors {
        let agents = self.agents.iter();
        let agents = agents.filter_map(|(agent, own)| Some((agent.clone(), own.tools.clone()?)));
        ToolExecutors { agents: agents.collect(), all: self.engine.tools.clone(), tools }
    }

    /// The agent's executor of one kind of instruction, or the engine's. `None`: the built-in one.
    pub(in crate::engine) fn of<'a, T: ?Sized>(
        &'a self,
        agent: &str,
        kind: impl Fn(&'a Executors) -> Option<&'a Arc<T>>,
    ) -> Option<&'a Arc<T>> {
        self.agents.get(agent).and_then(&kind).or_else(|| kind(&self.engine))
    }
}

/// Calls an executor for a question and turns its decision into an input. `None` if it decides nothing or panics.
pub(in crate::engine) async fn decision_input(
    executor: Arc<dyn HumanExecutor>,
    run: RunContext,
    question: Question,
) -> Option<Input> {
    let decision = AssertUnwindSafe(executor.answer(run, &question)).catch_unwind().await.ok()??;
    Some(Input::Decided {
        request: question.request,
        decision,
        digest: None,
        by: "executor".to_owned().into(),
        remember: None,
    })
}
