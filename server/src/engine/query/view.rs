//! A run as callers see it, and the wait for its end.

use agentloop_core::id::{RunId, RunKey, Seq, TenantId};
use agentloop_core::run::state::RunState;
use futures_util::StreamExt as _;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::feed::FeedItem;
use crate::store::RunRow;

/// A run: its row and its state.
#[derive(Debug, Clone)]
pub struct RunView {
    /// The run's row in the store.
    pub row: RunRow,
    /// The run's durable state. It is at least as old as the row.
    pub state: Box<RunState>,
    /// The run's position in its session's queue, counted from 1. 0 if it is not queued.
    pub queue_position: u32,
    /// True if the run waits for memory before its next model call.
    pub waits_for_memory: bool,
}

impl Engine {
    /// The run's row and its durable state.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], or the store's.
    pub async fn view(&self, tenant: &TenantId, run: &RunId) -> Result<RunView, EngineError> {
        let key = RunKey::new(tenant.clone(), run.clone());
        let state = self.state_of(&key).await?;
        let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
        let queue_position = match row.queue_no {
            Some(mine) => self.queue_position(tenant, &row.session, mine).await?,
            None => 0,
        };
        let waits_for_memory = self.deps().memory_waits.contains(&key);
        Ok(RunView { row, state, queue_position, waits_for_memory })
    }

    /// Waits until a run has ended, or waits for a human or an operator.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::ShuttingDown`], or the store's.
    pub async fn wait(&self, tenant: &TenantId, run: &RunId) -> Result<RunView, EngineError> {
        let _caller = self.deps().callers.enter(RunKey::new(tenant.clone(), run.clone()));
        loop {
            let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
            let status = row.summary.status;
            if status.is_terminal() || status.is_interrupted() {
                let view = self.view(tenant, run).await?;
                let now = view.state.status();
                if now.is_some_and(|now| now.is_terminal() || now.is_interrupted()) {
                    return Ok(view);
                }
            }
            self.wait_for_stop(tenant, run, row.last_seq).await?;
        }
    }

    /// Waits for an event after `after` with which the run ends or waits for a human or an operator.
    pub(in crate::engine) async fn wait_for_stop(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<(), EngineError> {
        let subscription = self.subscribe(tenant, run, after).await?;
        let mut events = std::pin::pin!(subscription.events);
        while let Some(item) = events.next().await {
            match item? {
                FeedItem::Transient(_) => {}
                FeedItem::Durable(record) => {
                    if record.status.is_terminal() || record.status.is_interrupted() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
