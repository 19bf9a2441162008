//! The engine's dependencies and the state that its parts share.

pub(in crate::engine) mod job_queue;
pub(in crate::engine) mod lost_runs;
pub(in crate::engine) mod options;
pub(in crate::engine) mod recovery_bounds;
pub(in crate::engine) mod retries;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use agentloop_core::id::TenantId;
use agentloop_core::run::view::WaitingOn;
use futures_util::poll;

use crate::clock::Clock;
use crate::engine::deps::job_queue::JobQueue;
use crate::engine::deps::lost_runs::LostRuns;
use crate::engine::deps::options::EngineOptions;
use crate::engine::deps::recovery_bounds::RecoveryBounds;
use crate::engine::deps::retries::{RunCounts, RunRetries};
use crate::engine::feed::{Callers, Feeds};
use crate::engine::history::HistoryCache;
use crate::engine::memory::{JournalGate, MemoryWaits};
use crate::engine::ports::{Compactors, ExecutorTable, Observer};
use crate::engine::quota::EngineQuotas;
use crate::engine::shards::ShardStops;
use crate::engine::watch::{ChangedFrom, RunChange, RunWatchers, SessionWatchers};
use crate::extension::Extensions;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::memory::{Charge, MemoryLedger};
use crate::model::Models;
use crate::store::{RunRow, Store};
use crate::tool::Tools;

/// The engine's dependencies and its shared state.
pub(in crate::engine) struct Deps {
    pub(in crate::engine) store: Arc<dyn Store>,
    pub(in crate::engine) models: Arc<dyn Models>,
    pub(in crate::engine) tools: Arc<dyn Tools>,
    pub(in crate::engine) extensions: Arc<dyn Extensions>,
    pub(in crate::engine) executors: ExecutorTable,
    pub(in crate::engine) clock: Arc<dyn Clock>,
    pub(in crate::engine) ids: Arc<dyn Ids>,
    pub(in crate::engine) observers: Vec<Arc<dyn Observer>>,
    pub(in crate::engine) compactors: Compactors,
    pub(in crate::engine) tasks: Tasks,
    pub(in crate::engine) options: EngineOptions,
    pub(in crate::engine) feeds: Feeds,
    pub(in crate::engine) memory: RunMemory,
    pub(in crate::engine) quotas: EngineQuotas,
    pub(in crate::engine) jobs: JobQueue,
    pub(in crate::engine) callers: Callers,
    /// The callers of `Run` and `RunStream` alone.
    pub(in crate::engine) waiting_rpcs: Callers,
    /// End subscriptions in shards that are given away.
    pub(in crate::engine) shard_stops: ShardStops,
    pub(in crate::engine) watchers: Watchers,
    /// Number of sessions that were deleted because of their age or number.
    pub(in crate::engine) retired_sessions: AtomicU64,
    pub(in crate::engine) failures: RunFailures,
    pub(in crate::engine) recovery_bounds: RecoveryBounds,
}

/// The memory of all live runs, and those that wait for some.
pub(in crate::engine) struct RunMemory {
    pub(in crate::engine) histories: HistoryCache,
    pub(in crate::engine) waits: MemoryWaits,
    pub(in crate::engine) journal_gate: JournalGate,
}

/// Watchers of lists of runs, and of sessions.
#[derive(Default)]
pub(in crate::engine) struct Watchers {
    pub(in crate::engine) runs: Arc<RunWatchers>,
    pub(in crate::engine) sessions: Arc<SessionWatchers>,
    /// Number of subscribers, of runs too, that were ended because they did not read.
    pub(in crate::engine) slow_subscribers: Arc<AtomicU64>,
}

/// Failures of runs that are not of their own making.
#[derive(Default)]
pub(in crate::engine) struct RunFailures {
    /// Panics of each run's task.
    pub(in crate::engine) panics: RunCounts,
    /// Failures of the store in each run, which set the wait before its next retry.
    pub(in crate::engine) of_store: RunCounts,
    /// Runs whose store failed. Each is retried until the store is back.
    pub(in crate::engine) retries: RunRetries,
    /// Logs the runs whose store failed, many in one line.
    pub(in crate::engine) lost_runs: LostRuns,
}

impl Deps {
    /// The account of all memory that live runs hold.
    pub(in crate::engine) fn ledger(&self) -> &MemoryLedger {
        self.memory.histories.memory().ledger()
    }

    /// Tells watchers of lists of runs that a run's row has changed. Does nothing while there are none.
    pub(in crate::engine) fn run_changed(
        &self,
        tenant: &TenantId,
        row: RunRow,
        waiting_on: Option<WaitingOn>,
        from: ChangedFrom,
    ) {
        let (now, stall) = (self.clock.now(), self.options.subscriber_stall);
        let change = RunChange::new(tenant, row, waiting_on, from);
        self.count_slow(self.watchers.runs.changed(change, now, stall));
    }

    /// Counts subscribers that were ended because they did not read.
    pub(in crate::engine) fn count_slow(&self, subscribers: u64) {
        self.watchers.slow_subscribers.fetch_add(subscribers, Ordering::Relaxed);
    }

    /// The account of the memory that live runs of this tenant hold.
    pub(in crate::engine) fn ledger_of(&self, tenant: &TenantId) -> MemoryLedger {
        self.ledger().of(tenant)
    }

    /// Reserves memory. Drops idle histories if that frees enough. `None` if there is too little memory, or if others waited
    /// before.
    pub(in crate::engine) fn try_reserve(&self, tenant: &TenantId, bytes: usize) -> Option<Charge> {
        self.free_memory(tenant, bytes);
        self.ledger().try_reserve(tenant, bytes)
    }

    /// Reserves memory as soon as there is enough. Drops idle histories if it would have to wait for that.
    pub(in crate::engine) async fn reserve(&self, tenant: &TenantId, bytes: usize) -> Charge {
        let mut reserved = pin!(self.ledger().reserve(tenant, bytes));
        if let Poll::Ready(charge) = poll!(reserved.as_mut()) {
            return charge;
        }
        // From here on no history becomes idle.
        self.free_memory(tenant, bytes);
        reserved.await
    }

    /// Drops idle histories until the tenant may reserve this many bytes, or none is left.
    pub(in crate::engine) fn free_memory(&self, tenant: &TenantId, bytes: usize) {
        let needed = self.ledger_of(tenant).needed(bytes);
        if self.ledger().free() < needed {
            self.memory.histories.free_memory(needed);
        }
    }
}
