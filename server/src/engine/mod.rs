//! The engine runs the agent loop: it starts, continues and ends runs, and tells callers about them.

mod after;
mod blobs;
mod deps;
mod effect;
pub mod error;
pub mod feed;
mod fold;
mod history;
mod log;
mod memory;
mod parts;
mod ports;
mod query;
mod quota;
mod run;
mod session;
mod shards;
mod tool_rows;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::RunState;

pub use self::after::recall::Recall;
pub use self::blobs::{BadBlob, UNUSED_KEPT_LEAST};
pub use self::deps::options::{EngineOptions, KEPT_LEAST, Retention};
pub use self::effect::compact::STRATEGIES;
pub use self::log::LogObserver;
pub use self::memory::MemoryUse;
pub use self::parts::EngineParts;
pub use self::ports::{
    Compactor, Compactors, Executors, FinishExecutor, HumanExecutor, JobError, JobExecutor, Observer,
    RunObserver, ToolExecution, ToolExecutor,
};
pub use self::query::decide::Resolution;
pub use self::query::origin::RunOrigin;
pub use self::query::replay::ReplayReport;
pub use self::query::step::StepDone;
pub use self::query::subscribe::Subscription;
pub use self::query::view::{RunView, StoppedRun};
pub use self::session::delete::DeleteIf;
pub use self::session::request::{Author, OnBusy, StartRequest, StartedRun};
pub use self::watch::{
    PeerFollowing, RunChange, RunTap, SessionItem, SessionStreamItem, WatchChange, WatchItem,
};

use crate::audit;
use crate::engine::deps::Deps;
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::memory::journal_bytes;
use crate::engine::run::recover::{Opening, RETRY_WAIT};
use crate::engine::run::table::{LiveRuns, Lookup};
use crate::engine::run::timers::WakeSignal;
use crate::engine::session::locks::SessionLocks;
use crate::engine::session::new_sessions::NewSessions;
use crate::mask::Masks;
use crate::store::{Store, StoreError};
use crate::tool::Tools;

/// The handle to the engine. Clones share one engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    deps: Arc<Deps>,
    live_runs: LiveRuns,
    /// Held by a run that joins a session's queue: one at a time, so that the queue's bound holds.
    queue_locks: SessionLocks,
    /// Shared by runs that enter a session, exclusive for its deletion.
    session_locks: SessionLocks,
    new_sessions: NewSessions,
    wake_signal: WakeSignal,
}

impl Engine {
    /// The store, for callers that only read.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.deps.store
    }

    /// The tools that runs may be offered.
    #[must_use]
    pub fn tools(&self) -> &Arc<dyn Tools> {
        &self.0.deps.tools
    }

    /// The time of the engine's clock, which tests may set.
    #[must_use]
    pub fn now(&self) -> agentloop_core::time::Timestamp {
        self.0.deps.clock.now()
    }

    /// True if a compaction strategy of this name exists.
    #[must_use]
    pub fn has_strategy(&self, name: &str) -> bool {
        STRATEGIES.contains(&name) || self.deps().compactors.contains_key(name)
    }

    /// Number of live runs. Parked and queued ones are not counted.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.0.live_runs.len()
    }

    /// Number of runs that this engine has in hand: the live ones, and those whose store failed and that are tried again.
    #[must_use]
    pub fn runs_at_work(&self) -> usize {
        self.live_runs() + self.deps().failures.retries.len()
    }

    /// The memory of live runs.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        let ledger = self.0.deps.ledger();
        MemoryUse { bytes: ledger.used(), bytes_max: ledger.bytes_max() }
    }

    /// Number of runs that wait for memory before they go on.
    #[must_use]
    pub fn waiting_for_memory(&self) -> usize {
        self.deps().memory.waits.len()
    }

    /// The arguments of tools that people do not see.
    #[must_use]
    pub fn masks(&self) -> &Masks {
        &self.deps().options.masks
    }

    /// Bounds on how long sessions are kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.deps().options.retention
    }

    /// Number of sessions that were deleted since the start because of their age or number.
    #[must_use]
    pub fn retired_sessions(&self) -> u64 {
        self.0.deps.retired_sessions.load(Ordering::Relaxed)
    }

    /// Number of subscribers that were ended since the start because they did not read.
    #[must_use]
    pub fn slow_subscribers(&self) -> u64 {
        self.0.deps.watchers.slow_subscribers.load(Ordering::Relaxed)
    }

    /// Aborts a run. A run that has ended stays as it is, and this succeeds.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], or the store's.
    pub async fn abort(
        &self,
        tenant: &TenantId,
        run: &RunId,
        cause: AbortCause,
        reason: &str,
    ) -> Result<(), EngineError> {
        let input = || Input::Abort { cause, reason: reason.to_owned() };
        match self.deliver(&RunKey::new(tenant.clone(), run.clone()), input).await {
            Err(EngineError::Refused(Refusal::WrongPhase(Some(status)))) if status.is_terminal() => Ok(()),
            // A run whose journal is damaged has ended by that, or earlier.
            Err(EngineError::Store(error)) if error.is_damage() && self.has_ended(tenant, run).await? => {
                Ok(())
            }
            other => other,
        }
    }

    async fn has_ended(&self, tenant: &TenantId, run: &RunId) -> Result<bool, EngineError> {
        Ok(self.store().run(tenant, run).await?.is_some_and(|row| row.summary.status.is_terminal()))
    }

    /// Aborts a run in the background. Retries while the store fails. Of a run that moves to another replica, the replica that the
    /// caller dialled tells the next owner that the caller has left.
    pub fn abort_later(self, tenant: TenantId, run: RunId, cause: AbortCause) {
        let tasks = self.deps().tasks.clone();
        drop(tasks.spawn("abort", async move {
            loop {
                match self.abort(&tenant, &run, cause, "").await {
                    // The write that was to create the run failed.
                    Ok(()) | Err(EngineError::RunNotFound | EngineError::ShuttingDown) => return,
                    Err(EngineError::Store(StoreError::Elsewhere)) => return,
                    Err(error) => {
                        tracing::warn!(run.id = %run, %error, "cannot abort a run");
                        if !error.is_transient() || self.has_stopped_after(RETRY_WAIT).await {
                            return;
                        }
                    }
                }
            }
        }));
    }

    /// Aborts the live run of a session and returns its id. `None` if there is none. The session's queue then goes on.
    ///
    /// # Errors
    /// [`EngineError::SessionNotFound`], or the store's.
    pub async fn abort_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        reason: &str,
    ) -> Result<Option<RunId>, EngineError> {
        let row = self.store().session(tenant, session).await?.ok_or(EngineError::SessionNotFound)?;
        let Some(run) = row.live_run else { return Ok(None) };
        self.abort(tenant, &run, AbortCause::Caller, reason).await?;
        Ok(Some(run))
    }

    /// Continues a paused run. `request` makes the call idempotent; `by` is recorded.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::Refused`] if the run is not paused, or the store's.
    pub async fn resume(
        &self,
        tenant: &TenantId,
        run: &RunId,
        request: &str,
        by: &str,
    ) -> Result<(), EngineError> {
        let input = || Input::Resume { request: request.to_owned(), by: by.to_owned() };
        self.deliver(&RunKey::new(tenant.clone(), run.clone()), input).await
    }

    /// A run's durable state, from its task or else from its journal. Does not start a task.
    async fn state_of(&self, key: &RunKey) -> Result<Box<RunState>, EngineError> {
        if let Some(mailbox) = self.0.live_runs.live(key)
            && let Some(state) = mailbox.state().await
        {
            return Ok(state);
        }
        let _entered = self.deps().memory.journal_gate.enter(&key.tenant).await;
        let records = self.journal(key).await?;
        if records.is_empty() {
            return Err(EngineError::RunNotFound);
        }
        Ok(Box::new(fold(&key.run, &records)?.state().clone()))
    }

    async fn journal(&self, key: &RunKey) -> Result<Vec<Record>, EngineError> {
        let records = self.store().records(&key.tenant, &key.run, Seq(0), u32::MAX).await?;
        self.deps().memory.journal_gate.note_size(journal_bytes(&records));
        Ok(records)
    }

    /// Makes a run live: starts its task from the journal, unless it has one. If its session is damaged, it fails as
    /// soon as it needs the history.
    async fn ensure_live(&self, key: &RunKey) -> Result<(), EngineError> {
        self.ensure_live_with(key, Opening::default()).await
    }

    async fn ensure_live_with(&self, key: &RunKey, opening: Opening) -> Result<(), EngineError> {
        match self.0.live_runs.find(key).await {
            Lookup::Live => Ok(()),
            Lookup::NotLive(permit) => {
                let engine = self.clone();
                let resuming = async move { engine.resume_from_journal(permit, opening).await };
                match self.run_detached("open", resuming).await {
                    Err(EngineError::Fault) => Box::pin(self.opening_panicked(key)).await,
                    opened => opened,
                }
            }
        }
    }

    /// Runs `work` on a task of its own, so that it completes even if the caller goes away. Otherwise a run could be
    /// written to the store and have no task.
    async fn run_detached<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let work = audit::within(audit::current(), work);
        match self.deps().tasks.spawn_contained(name, work).await {
            Ok(Some(done)) => done,
            // `None`: the server stops at once and dropped the task.
            Ok(None) => Err(EngineError::ShuttingDown),
            Err(fault) if fault.is_panic() => Err(EngineError::Fault),
            Err(_) => Err(EngineError::ShuttingDown),
        }
    }

    fn check_running(&self) -> Result<(), EngineError> {
        if self.deps().tasks.soft().is_cancelled() { Err(EngineError::ShuttingDown) } else { Ok(()) }
    }

    fn deps(&self) -> &Arc<Deps> {
        &self.0.deps
    }

    fn wake_signal(&self) -> &WakeSignal {
        &self.0.wake_signal
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("live_runs", &self.live_runs()).finish_non_exhaustive()
    }
}
