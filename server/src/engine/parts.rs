//! What an engine is made of, and its start: dependencies are given once, and read-only after.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::engine::after::follow_up::FollowUps;
use crate::engine::after::notes::Notes;
use crate::engine::after::runner::{self, Jobs};
use crate::engine::deps::{Deps, EngineOptions};
use crate::engine::feed::Feeds;
use crate::engine::history::Histories;
use crate::engine::ports::{Compactors, ExecutorTable, Executors, JobExecutor, Observer};
use crate::engine::run::retries::{Revivals, RunCounts};
use crate::engine::run::table::Table;
use crate::engine::run::timers::{self, Wake};
use crate::engine::session::locks::SessionLocks;
use crate::engine::{Engine, Inner};
use crate::extension::{Extensions, LocalExtensions};
use crate::ids::{Ids, RandomIds};
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::store::Store;
use crate::tool::{InProcess, ToolExecutor, Tools};

/// What an engine is made of beside its store, models and tools. Each part has a default.
pub struct EngineParts {
    /// Planners, hooks and context sources that runs may name. By default there are none.
    pub extensions: Arc<dyn Extensions>,
    /// Executors of instructions in place of the built-in ones, for every agent that has none of its own.
    pub executors: Executors,
    /// Executors of the instructions of one agent's runs, by the agent's name.
    pub agent_executors: BTreeMap<String, Executors>,
    /// Runs calls in this process, by the tool's name. That there is such a tool, the tools that the engine rests on
    /// must say.
    pub tool_executors: BTreeMap<String, Arc<dyn ToolExecutor>>,
    /// By default the system's.
    pub clock: Arc<dyn Clock>,
    /// Where ids and chance come from, by default at random.
    pub ids: Arc<dyn Ids>,
    /// Each sees every durable event.
    pub observers: Vec<Arc<dyn Observer>>,
    /// More ways to make a context smaller, by the name that runs have in their context policy.
    pub compactors: Compactors,
    /// More executors of what follows runs, beside the built-in one of titles and summaries.
    pub job_executors: Vec<Arc<dyn JobExecutor>>,
    /// The tracker that the engine's tasks are started on.
    pub tasks: Tasks,
    /// Bounds.
    pub options: EngineOptions,
}

impl Default for EngineParts {
    fn default() -> Self {
        Self {
            extensions: Arc::new(LocalExtensions::new()),
            executors: Executors::default(),
            agent_executors: BTreeMap::new(),
            tool_executors: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            observers: Vec::new(),
            compactors: Compactors::new(),
            job_executors: Vec::new(),
            tasks: Tasks::new(),
            options: EngineOptions::default(),
        }
    }
}

impl EngineParts {
    /// Starts the engine: every unfinished run goes on, parked ones are woken when their time comes, and what follows
    /// runs is done. What happens to tool calls reaches it as a [`crate::tool::CallSink`].
    #[must_use]
    pub fn start(self, store: Arc<dyn Store>, models: Arc<dyn Models>, tools: Arc<dyn Tools>) -> Engine {
        let instructions = ExecutorTable { engine: self.executors, agents: self.agent_executors };
        let in_process = instructions.of_tools(self.tool_executors);
        let tools = InProcess::around(tools, in_process, self.tasks.clone());
        let notes = Notes::new(store.clone(), models.clone());
        let mut executors = self.job_executors;
        executors.push(Arc::new(notes));
        executors.push(Arc::new(FollowUps {
            store: store.clone(),
            extensions: self.extensions.clone(),
            tools: tools.clone(),
            clock: self.clock.clone(),
        }));
        let engine = Engine(Arc::new(Inner {
            deps: Arc::new(Deps {
                store,
                models,
                tools: tools.clone(),
                extensions: self.extensions,
                instructions,
                clock: self.clock,
                ids: self.ids,
                observers: self.observers,
                slow_subscribers: Arc::default(),
                compactors: self.compactors,
                tasks: self.tasks,
                options: self.options,
                feeds: Feeds::default(),
                histories: Histories::default(),
                jobs: Jobs::new(executors),
                faults: RunCounts::default(),
                losses: RunCounts::default(),
                revivals: Revivals::default(),
            }),
            table: Table::default(),
            queues: SessionLocks::default(),
            sessions: SessionLocks::default(),
            wake: Wake::default(),
        }));
        tools.report_to(engine.sink());
        let tasks = &engine.deps().tasks;
        tasks.spawn("timers", timers::watch(engine.clone()));
        tasks.spawn("jobs", runner::watch(engine.clone()));
        tasks.spawn("recover", engine.clone().recover());
        engine
    }
}
