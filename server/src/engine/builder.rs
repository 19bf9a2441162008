//! Builds an engine: dependencies once, read-only after.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::engine::after::follow_up::FollowUps;
use crate::engine::after::notes::Notes;
use crate::engine::after::runner::{self, JobExecutor, Jobs};
use crate::engine::deps::{Deps, EngineOptions, Observer};
use crate::engine::effect::compact::{Compactor, Compactors};
use crate::engine::feed::Feeds;
use crate::engine::history::Histories;
use crate::engine::ports::{ExecutorTable, Executors};
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

/// What an engine is made of.
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
    tool_executors: BTreeMap<String, Arc<dyn ToolExecutor>>,
    extensions: Arc<dyn Extensions>,
    instructions: ExecutorTable,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    observers: Vec<Arc<dyn Observer>>,
    compactors: Compactors,
    executors: Vec<Arc<dyn JobExecutor>>,
    tasks: Tasks,
    options: EngineOptions,
}

impl EngineBuilder {
    /// With these ports, the system's clock, and random ids.
    pub fn new(store: Arc<dyn Store>, models: Arc<dyn Models>, tools: Arc<dyn Tools>) -> Self {
        Self {
            store,
            models,
            tools,
            tool_executors: BTreeMap::new(),
            extensions: Arc::new(LocalExtensions::new()),
            instructions: ExecutorTable::default(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            observers: Vec::new(),
            compactors: Compactors::new(),
            executors: Vec::new(),
            tasks: Tasks::new(),
            options: EngineOptions::default(),
        }
    }

    /// Planners, hooks and context sources that runs may name.
    #[must_use]
    pub fn extensions(mut self, extensions: Arc<dyn Extensions>) -> Self {
        self.extensions = extensions;
        self
    }

    /// Executors of instructions in place of the built-in ones, for every agent that has none of its own.
    #[must_use]
    pub fn executors(mut self, executors: Executors) -> Self {
        self.instructions.engine = executors;
        self
    }

    /// Executors of the instructions of one agent's runs.
    #[must_use]
    pub fn agent_executors(mut self, agent: impl Into<String>, executors: Executors) -> Self {
        self.instructions.agents.insert(agent.into(), executors);
        self
    }

    /// Runs the calls of this tool in this process. That there is such a tool, the tools that the engine rests on
    /// must say.
    #[must_use]
    pub fn tool_executor(mut self, tool: impl Into<String>, executor: Arc<dyn ToolExecutor>) -> Self {
        self.tool_executors.insert(tool.into(), executor);
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another source of ids and chance.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = ids;
        self
    }

    /// One more observer.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// One more way to make a context smaller, which runs name in their context policy.
    #[must_use]
    pub fn compactor(mut self, name: impl Into<String>, compactor: Arc<dyn Compactor>) -> Self {
        self.compactors.insert(name.into(), compactor);
        self
    }

    /// One more executor of what follows runs, beside the built-in one of titles and summaries.
    #[must_use]
    pub fn job_executor(mut self, executor: Arc<dyn JobExecutor>) -> Self {
        self.executors.push(executor);
        self
    }

    /// The tracker that the engine's tasks are started on.
    #[must_use]
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = tasks;
        self
    }

    /// Other bounds.
    #[must_use]
    pub fn options(mut self, options: EngineOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the engine: every unfinished run goes on, parked ones are woken when their time comes, and what follows
    /// runs is done. What happens to tool calls reaches it as a [`crate::tool::CallSink`].
    #[must_use]
    pub fn start(self) -> Engine {
        let executors = self.instructions.of_tools(self.tool_executors);
        let tools = InProcess::around(self.tools, executors, self.tasks.clone());
        let notes = Notes::new(self.store.clone(), self.models.clone());
        let mut executors = self.executors;
        executors.push(Arc::new(notes));
        executors.push(Arc::new(FollowUps {
            store: self.store.clone(),
            extensions: self.extensions.clone(),
            tools: tools.clone(),
            clock: self.clock.clone(),
        }));
        let engine = Engine(Arc::new(Inner {
            deps: Arc::new(Deps {
                store: self.store,
                models: self.models,
                tools: tools.clone(),
                extensions: self.extensions,
                instructions: self.instructions,
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
