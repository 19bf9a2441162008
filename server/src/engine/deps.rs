//! What the engine rests on: given once, read-only after.

use std::sync::Arc;

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Millis;

use crate::clock::Clock;
use crate::engine::compact::Compactors;
use crate::engine::executor::ExecutorTable;
use crate::engine::feed::Feeds;
use crate::engine::history::Histories;
use crate::engine::jobs::Jobs;
use crate::engine::resume::{Reviving, Tally};
use crate::extension::Extensions;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::model::Models;
use crate::store::Store;
use crate::tool::Tools;

/// Sees every durable event of every run, after it is durable. Must not block.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn event(&self, tenant: &TenantId, run: &RunId, session: &SessionId, record: &Record);
}

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
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_live_runs: 10_000,
            park_after: Millis::secs(5),
            subscriber_stall: Millis::secs(30),
            subscriber_buffer: 1_024,
        }
    }
}

/// The engine's dependencies and its shared state.
pub(super) struct Deps {
    pub(super) store: Arc<dyn Store>,
    pub(super) models: Arc<dyn Models>,
    pub(super) tools: Arc<dyn Tools>,
    pub(super) extensions: Arc<dyn Extensions>,
    pub(super) instructions: ExecutorTable,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) compactors: Compactors,
    pub(super) tasks: Tasks,
    pub(super) options: EngineOptions,
    pub(super) feeds: Feeds,
    pub(super) histories: Histories,
    pub(super) jobs: Jobs,
    /// Panics.
    pub(super) faults: Tally,
    /// Failures of the store.
    pub(super) losses: Tally,
    /// Runs that wait for the store to be back.
    pub(super) reviving: Reviving,
}
