//! A run as callers see it, and the wait for its end.

use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::state::RunState;
use agentloop_core::run::status::RunStatus;
use futures_util::StreamExt as _;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::feed::{Feed, FeedHead, FeedItem};
use crate::engine::fold::{fold, incomplete};
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

/// A run that has ended, or waits for a human or an operator.
#[derive(Debug, Clone)]
pub struct StoppedRun {
    /// The session that the run belongs to.
    pub session: SessionId,
    /// The state as of the last durable event.
    pub state: Box<RunState>,
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
        let waits_for_memory = self.deps().memory.waits.contains(&key);
        Ok(RunView { row, state, queue_position, waits_for_memory })
    }

    /// Waits until a run has ended, or waits for a human or an operator. The store is read only for what is not in
    /// memory.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::ShuttingDown`], or the store's.
    pub async fn wait(&self, tenant: &TenantId, run: &RunId) -> Result<StoppedRun, EngineError> {
        let key = RunKey::new(tenant.clone(), run.clone());
        let _caller = self.deps().callers.enter(key.clone());
        let (session, mut after, status) = match self.deps().feeds.head(&key) {
            Some((_, FeedHead { session, last })) => (session, last.seq, last.status),
            None => {
                let row = self.store().run(tenant, run).await?.ok_or(EngineError::RunNotFound)?;
                (row.session, row.last_seq, row.summary.status)
            }
        };
        let (mut may_be_stopped, mut has_waited) = (is_stopped(status), false);
        loop {
            if may_be_stopped {
                let state = self.state_of(&key).await?;
                if state.status().is_some_and(is_stopped) {
                    return Ok(StoppedRun { session, state });
                }
                // A wait ends with an event, and events are stored before they are shown.
                if has_waited && state.seq() <= after {
                    return Err(incomplete(run));
                }
                after = state.seq();
            }
            let feed = self.wait_for_stop(tenant, run, after).await?;
            if let Some(journal) = feed.ended_journal() {
                let machine = fold(run, journal.iter().map(|record| &****record))?;
                return Ok(StoppedRun { session, state: Box::new(machine.state().clone()) });
            }
            (may_be_stopped, has_waited) = (true, true);
        }
    }

    /// Waits for an event after `after` with which the run ends or waits for a human or an operator. Returns the run's feed.
    pub(in crate::engine) async fn wait_for_stop(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
    ) -> Result<Feed, EngineError> {
        let subscription = self.subscribe(tenant, run, after).await?;
        let feed = subscription.feed.clone();
        let mut events = std::pin::pin!(subscription.events);
        while let Some(item) = events.next().await {
            match item? {
                FeedItem::Transient(_) => {}
                FeedItem::Durable(record) if is_stopped(record.status) => return Ok(feed),
                FeedItem::Durable(_) => {}
            }
        }
        Ok(feed)
    }
}

/// True for a run that has ended, or waits for a human or an operator.
fn is_stopped(status: RunStatus) -> bool {
    status.is_terminal() || status.is_interrupted()
}
