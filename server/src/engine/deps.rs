//! What the engine rests on: given once, read-only after.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agentloop_core::time::Millis;

use crate::clock::Clock;
use crate::engine::after::runner::Jobs;
use crate::engine::feed::Feeds;
use crate::engine::history::Histories;
use crate::engine::ports::{Compactors, ExecutorTable, Observer};
use crate::engine::run::retries::{Revivals, RunCounts};
use crate::extension::Extensions;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::store::Store;
use crate::tool::Tools;

/// How the engine is tuned.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Live runs, beyond which new ones are refused.
    pub max_live_runs: usize,
    /// A wait for the next model call longer than this gives up the run's task and memory.
    pub park_after: Millis,
    /// A subscriber that fell behind and did not read for this long is ended.
    pub subscriber_stall: Millis,
    /// Events that a subscriber may be behind before it loses what is transient.
    pub subscriber_buffer: usize,
    /// Whether runs are shown as traces: then tool hosts are told of the spans of their calls, else of the caller's.
    pub traced: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_live_runs: 10_000,
            park_after: Millis::secs(5),
            subscriber_stall: Millis::secs(30),
            subscriber_buffer: 1_024,
            traced: false,
        }
    }
}

/// The engine's dependencies and its shared state.
pub(in crate::engine) struct Deps {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) models: Arc<dyn Models>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) instructions: ExecutorTable,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    pub(in crate::engine) ids: Arc<dyn Ids>,
    pub(in crate::engine) observers: Vec<Arc<dyn Observer>>,
    pub(in crate::engine) compactors: Compactors,
    pub(in crate::engine) tasks: Tasks,
    pub(in crate::engine) options: EngineOptions,
    pub(in crate::engine) feeds: Feeds,
    pub(in crate::engine) histories: Histories,
    pub(in crate::engine) jobs: Jobs,
    /// Subscribers that were ended because they did not read.
    pub(in crate::engine) slow_subscribers: Arc<AtomicU64>,
    /// Panics.
    pub(in crate::engine) faults: RunCounts,
    /// Failures of the store.
    pub(in crate::engine) losses: RunCounts,
    /// Runs that wait for the store to be back.
    pub(in crate::engine) revivals: Revivals,
}
