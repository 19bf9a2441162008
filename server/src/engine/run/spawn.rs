//! Starts a run's task, and handles its end: the next run of the session, a failure of the store, a panic.

use std::panic::AssertUnwindSafe;

use agentloop_core::id::RunKey;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::input::{AbortCause, Input};
use futures_util::FutureExt as _;
use tracing::Instrument as _;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::run::recover::HistoryNeed;
use crate::engine::run::table::Lookup;
use crate::engine::run::task::{RunTask, TaskEnd};
use crate::store::StoreError;
use crate::telemetry::fields::{RUN_ID, RUN_SPAN};

impl Engine {
    /// Starts a task. When it ends, or panics, the engine does what has to follow.
    pub(in crate::engine) fn launch(&self, mut task: RunTask, effects: Vec<Effect>) {
        let engine = self.clone();
        let RunKey { tenant, run } = task.permit.key().clone();
        let span = tracing::info_span!(parent: None, RUN_SPAN, { RUN_ID } = %run, session.id = %task.session, tenant = %tenant);
        let life = async move {
            let lived = AssertUnwindSafe(async {
                // Its session was given away while it came up, and nobody has told it.
                if !engine.store().owns(&task.permit.key().tenant, &task.session) {
                    return TaskEnd::Lost(StoreError::Elsewhere);
                }
                for effect in effects {
                    task.perform(effect);
                }
                task.run().await
            });
            match lived.catch_unwind().await {
                Ok(end) => engine.ended(task, end).await,
                Err(_) => engine.panicked(task).await,
            }
        };
        drop(self.deps().tasks.spawn("run", life.instrument(span)));
    }

    async fn ended(&self, task: RunTask, end: TaskEnd) {
        let key = task.permit.key().clone();
        self.deps().tools.release(&key.tenant, &key.run);
        match end {
            TaskEnd::Finished => {
                self.deps().failures.of_store.forget(&key);
                self.deps().failures.panics.forget(&key);
                drop(task.permit);
                self.advance_queue_after_end(&key.tenant, &task.session).await;
            }
            TaskEnd::Parked => {}
            TaskEnd::Stopped if task.given_away.is_none() => {}
            TaskEnd::Stopped => self.go_on_if_own(task, key),
            TaskEnd::Lost(StoreError::Conflict | StoreError::Elsewhere) => {
                tracing::warn!("the run's journal has gone on without its task here, which ends");
                // At a server alone it was a write whose result was lost.
                self.go_on_if_own(task, key);
            }
            TaskEnd::Lost(error) => {
                self.deps().failures.lost_runs.note(&error, &self.deps().tasks);
                drop(task.permit);
                self.retry_later(key);
            }
        }
    }

    /// Starts the run again if its shard has come back before its task has ended: a caller, or the take-over, found this task,
    /// and did not start the run.
    fn go_on_if_own(&self, task: RunTask, key: RunKey) {
        // First: a shard that is gained before this look finds that the run is not live.
        drop(task.permit);
        if self.store().owns(&key.tenant, &task.session) {
            self.retry_later(key);
        }
    }

    /// Handles a panic in a run's task. The first time the run is started again from its journal, the second time it
    /// fails. Other runs are not affected.
    async fn panicked(&self, task: RunTask) {
        tracing::error!("the task of this run has panicked");
        let key = task.permit.key().clone();
        self.deps().tools.release(&key.tenant, &key.run);
        let first = self.deps().failures.panics.increment(&key) == 1;
        drop(task);
        let result = match first {
            true => self.ensure_live(&key).await,
            false => match AssertUnwindSafe(self.fail_after_panic(&key)).catch_unwind().await {
                Ok(failed) => failed,
                // Its end panics, too.
                Err(_) => self.end_after_panic(&key).await,
            },
        };
        if let Err(error) = result {
            tracing::error!(%error, "cannot restart a run that panicked; trying again");
            self.retry_later(key);
        }
    }

    /// Handles a panic of a run that came up. The first time it is tried again, the second time the run fails.
    ///
    /// # Errors
    /// [`EngineError::Fault`] the first time, else the store's.
    pub(in crate::engine) async fn opening_panicked(&self, key: &RunKey) -> Result<(), EngineError> {
        tracing::error!(run.id = %key.run, "this run has panicked while it came up");
        self.deps().tools.release(&key.tenant, &key.run);
        if self.deps().failures.panics.increment(key) == 1 {
            self.retry_later(key.clone());
            return Err(EngineError::Fault);
        }
        self.end_after_panic(key).await
    }

    /// Ends a run as failed, because its task panicked twice.
    async fn fail_after_panic(&self, key: &RunKey) -> Result<(), EngineError> {
        let Lookup::NotLive(permit) = self.0.live_runs.find(key).await else { return Ok(()) };
        let Some(claimed) = self.store().claim(&key.tenant, &key.run).await? else { return Ok(()) };
        let machine = fold(&key.run, &claimed.records)?;
        let (mut task, _mailbox) =
            self.task_from_claim(permit, machine, &claimed, HistoryNeed::Later).await?;
        let reason = "a fault of the server; its log has the details".to_owned();
        task.handle_input(Input::Abort { cause: AbortCause::Fault, reason }, None).await?;
        self.advance_queue_later(&key.tenant, &claimed.row.session);
        Ok(())
    }
}
