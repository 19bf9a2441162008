//! The parts that an embedder chooses for an engine, and the start of the engine from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::clock::{Clock, SystemClock};
use crate::cluster::busy_shards::BusyShards;
use crate::engine::after::follow_up::FollowUps;
use crate::engine::after::notes::Notes;
use crate::engine::after::runner;
use crate::engine::blobs;
use crate::engine::deps::job_queue::JobQueue;
use crate::engine::deps::options::EngineOptions;
use crate::engine::deps::recovery_bounds::RecoveryBounds;
use crate::engine::deps::{Deps, RunFailures, RunMemory, Watchers};
use crate::engine::feed::{Callers, Feeds};
use crate::engine::history::{HistoryCache, HistoryMemory};
use crate::engine::memory::{JournalGate, MemoryWaits};
use crate::engine::ports::{Compactors, ExecutorTable, Executors, JobExecutor, Observer};
use crate::engine::quota::EngineQuotas;
use crate::engine::run::table::LiveRuns;
use crate::engine::run::timers::{self, WakeSignal};
use crate::engine::session::locks::SessionLocks;
use crate::engine::session::new_sessions::NewSessions;
use crate::engine::session::retention;
use crate::engine::shards::ShardStops;
use crate::engine::{Engine, Inner};
use crate::extension::{Extensions, LocalExtensions};
use crate::ids::{Ids, RandomIds};
use crate::lifecycle::Tasks;
use crate::memory::MemoryLedger;
use crate::model::Models;
use crate::store::Store;
use crate::tool::{InProcess, ToolExecutor, Tools};

/// The parts of an engine, beside its store, models and tools. Each has a default.
pub struct EngineParts {
    /// Planners, hooks and context sources that runs may name. None by default.
    pub extensions: Arc<dyn Extensions>,
    /// Executors of instructions that replace the built-in ones, for every agent that has none of its own.
    pub executors: Executors,
    /// Executors of the instructions of one agent's runs, by the agent's name.
    pub agent_executors: BTreeMap<String, Executors>,
    /// Executors that run calls in this process, by the tool's name. The `Tools` given to [`Self::start`] must declare
    /// these tools.
    pub tool_executors: BTreeMap<String, Arc<dyn ToolExecutor>>,
    /// The clock. The system's by default.
    pub clock: Arc<dyn Clock>,
    /// The source of ids and seeds. Random by default.
    pub ids: Arc<dyn Ids>,
    /// Observers. Each gets every durable event.
    pub observers: Vec<Arc<dyn Observer>>,
    /// Compaction strategies beside the built-in ones, by the name that runs give in their context policy.
    pub compactors: Compactors,
    /// Executors of jobs that follow runs, beside the built-in ones for titles, summaries and extensions.
    pub job_executors: Vec<Arc<dyn JobExecutor>>,
    /// The tracker on which the engine starts its tasks.
    pub tasks: Tasks,
    /// Knows the shards for which tools run in this process. Of a replica, it is the one that its replica has.
    pub busy_shards: BusyShards,
    /// Bounds and times of the engine.
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
            busy_shards: BusyShards::default(),
            options: EngineOptions::default(),
        }
    }
}

impl EngineParts {
    /// Starts the engine. It continues every unfinished run, wakes parked runs when their time comes, and does the jobs
    /// that follow runs. `tools` report to it through a [`crate::tool::CallSink`].
    #[must_use]
    pub fn start(self, store: Arc<dyn Store>, models: Arc<dyn Models>, tools: Arc<dyn Tools>) -> Engine {
        let executors = ExecutorTable { engine: self.executors, agents: self.agent_executors };
        let in_process = executors.of_tools(self.tool_executors);
        let tools = InProcess::around(tools, in_process, self.busy_shards, self.tasks.clone());
        let notes = Notes::new(store.clone(), models.clone());
        let mut job_executors = self.job_executors;
        job_executors.push(Arc::new(notes));
        job_executors.push(Arc::new(FollowUps {
            store: store.clone(),
            extensions: self.extensions.clone(),
            tools: tools.clone(),
            clock: self.clock.clone(),
        }));
        let ledger = match self.options.tenants_leave_memory {
            true => MemoryLedger::divided(self.options.live_bytes_max),
            false => MemoryLedger::new(self.options.live_bytes_max),
        };
        let engine = Engine(Arc::new(Inner {
            deps: Arc::new(Deps {
                store,
                models,
                tools: tools.clone(),
                extensions: self.extensions,
                executors,
                clock: self.clock,
                ids: self.ids,
                observers: self.observers,
                retired_sessions: AtomicU64::default(),
                compactors: self.compactors,
                tasks: self.tasks,
                quotas: EngineQuotas::new(self.options.quotas.clone()),
                options: self.options,
                feeds: Feeds::default(),
                memory: RunMemory {
                    histories: HistoryCache::new(HistoryMemory::new(&ledger)),
                    waits: MemoryWaits::default(),
                    journal_gate: JournalGate::default(),
                },
                jobs: JobQueue::new(job_executors),
                callers: Callers::default(),
                waiting_rpcs: Callers::default(),
                shard_stops: ShardStops::default(),
                watchers: Watchers::default(),
                failures: RunFailures::default(),
                recovery_bounds: RecoveryBounds::default(),
            }),
            live_runs: LiveRuns::default(),
            queue_locks: SessionLocks::default(),
            session_locks: SessionLocks::default(),
            new_sessions: NewSessions::default(),
            wake_signal: WakeSignal::default(),
        }));
        tools.report_to(engine.sink());
        spawn_tasks(&engine);
        engine
    }
}

/// Starts what an engine does beside its runs.
fn spawn_tasks(engine: &Engine) {
    let tasks = &engine.deps().tasks;
    tasks.spawn("timers", timers::watch(engine.clone()));
    tasks.spawn("jobs", runner::watch(engine.clone()));
    tasks.spawn("recover", engine.clone().recover());
    if engine.deps().options.retention.is_on() {
        tasks.spawn("retention", retention::watch(engine.clone()));
    }
    if engine.store().blob_bytes_max() > 0 {
        tasks.spawn("blobs", blobs::watch(engine.clone()));
    }
}
