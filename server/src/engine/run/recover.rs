//! A run comes up from its journal: after a restart, when someone moves a parked one, when its task was lost.

use std::time::Duration;

use agentloop_core::id::{EntryNo, RunId, RunKey};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Record;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::Phase;
use futures_util::StreamExt as _;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::engine::run::retries::Revival;
use crate::engine::run::table::{Mailbox, StartPermit};
use crate::engine::run::task::RunTask;
use crate::store::{Claimed, Interrupted, StoreError};

/// Runs brought up at a time after a restart.
const RECOVER_TOGETHER: usize = 32;
/// Before a run whose store failed is brought up again; doubled each time, since each time may call the model anew.
pub(in crate::engine) const REVIVE_WAIT: Duration = Duration::from_secs(1);
/// No such wait is longer.
const REVIVE_WAIT_MAX: Duration = Duration::from_secs(300);

impl Engine {
    /// Every run that was under way goes on, those that interrupts were written for end, and sessions that are free let
    /// the first in their queues in.
    pub(in crate::engine) async fn recover(self) {
        let (keys, interrupted) = loop {
            match self.owed().await {
                Ok(owed) => break owed,
                Err(error) => {
                    tracing::error!(%error, "cannot read which runs are unfinished; trying again");
                    tokio::time::sleep(REVIVE_WAIT).await;
                }
            }
        };
        if !keys.is_empty() {
            tracing::info!(runs = keys.len(), "going on with unfinished runs");
        }
        let engine = &self;
        futures_util::stream::iter(keys)
            .for_each_concurrent(RECOVER_TOGETHER, |key| async move {
                if let Err(error) = engine.bring_up(&key).await {
                    tracing::error!(run.id = %key.run, %error, "cannot go on with a run");
                }
            })
            .await;
        futures_util::stream::iter(interrupted)
            .for_each_concurrent(RECOVER_TOGETHER, |found| async move {
                while let Err(error) = engine.interrupt(&found).await {
                    tracing::error!(run.id = %found.run, %error, "cannot interrupt a run");
                    if !error.passes() || engine.has_stopped_after(REVIVE_WAIT).await {
                        break;
                    }
                }
            })
            .await;
    }

    /// Runs that are to be brought up, and live ones that are to end for a queued one.
    async fn owed(&self) -> Result<(Vec<RunKey>, Vec<Interrupted>), StoreError> {
        let mut keys = self.store().unfinished().await?;
        keys.extend(self.store().queue_heads().await?);
        Ok((keys, self.store().interrupted().await?))
    }

    /// Claims a run and starts its task. Where the store fails in between, nobody knows what is written, and the run is
    /// brought up when it is back.
    pub(in crate::engine) async fn open(&self, place: StartPermit) -> Result<(), EngineError> {
        let key = place.key().clone();
        let opened = self.claim(place).await;
        if opened.as_ref().is_err_and(EngineError::passes) {
            self.revive_later(key);
        }
        opened
    }

    async fn claim(&self, place: StartPermit) -> Result<(), EngineError> {
        self.check_running()?;
        let RunKey { tenant, run } = place.key().clone();
        let claimed = self.store().claim(&tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        if let Some(last) = claimed.records.last() {
            self.deps().feeds.remind(place.key(), &claimed.row.session, last);
        }
        if claimed.row.summary.status.is_terminal() {
            // Whoever saw it end may not have seen that it did.
            self.advance_queue_later(&tenant, &claimed.row.session);
            return Ok(());
        }
        let machine = fold(&run, &claimed.records)?;
        if machine.state().phase == Phase::Queued {
            return self.enter(place, &machine, &claimed).await;
        }
        let (mut task, mailbox) = self.task(place, machine, &claimed).await?;
        // It seeks hosts before it is written that it does, and a host that is found meanwhile is told of only once.
        task.place.occupy(mailbox);
        let effects = task.take_over().await?;
        self.launch(task, effects);
        Ok(())
    }

    pub(in crate::engine) async fn task(
        &self,
        place: StartPermit,
        machine: Machine,
        claimed: &Claimed,
    ) -> Result<(RunTask, Mailbox), EngineError> {
        let deps = self.deps();
        let session = claimed.row.session.clone();
        let EntryNo(last) = machine.state().last_entry;
        let mut history = History::load(&*deps.store, &place.key().tenant, &session, EntryNo(last)).await?;
        history.hold(&machine.state().held);
        let (mut task, mailbox) =
            self.assemble(place, machine, claimed.epoch, session, history, &claimed.records);
        task.wakes = claimed.row.summary.wake_at.is_some();
        Ok((task, mailbox))
    }

    /// Brings a run up when the store is back, without anyone waiting for it.
    pub(in crate::engine) fn revive_later(&self, key: RunKey) {
        if let Some(revivals) = self.deps().revivals.begin(&key) {
            let engine = self.clone();
            drop(self.deps().tasks.spawn("revive", async move { engine.revive(key, revivals).await }));
        }
    }

    /// Tries until the store is back.
    async fn revive(&self, key: RunKey, revival: Revival) {
        loop {
            let doublings = self.deps().losses.bump(&key).min(16) - 1;
            if self.has_stopped_after((REVIVE_WAIT * (1 << doublings)).min(REVIVE_WAIT_MAX)).await {
                return;
            }
            revival.begins();
            match self.bring_up(&key).await {
                Err(error) if error.passes() => continue,
                // What was to create it came to nothing.
                Ok(()) | Err(EngineError::RunNotFound) => {}
                Err(error) => tracing::error!(run.id = %key.run, %error, "cannot go on with the run"),
            }
            if revival.is_done() {
                return;
            }
        }
    }

    /// Waits, unless the server goes down.
    pub(in crate::engine) async fn has_stopped_after(&self, wait: Duration) -> bool {
        let sleep = tokio::time::sleep(wait);
        self.deps().tasks.soft().run_until_cancelled(sleep).await.is_none()
    }
}

impl RunTask {
    /// Decides what a new owner has to do, and makes it durable.
    async fn take_over(&mut self) -> Result<Vec<Effect>, StoreError> {
        let mut step = self
            .machine
            .handle(Input::Recovered, self.deps.clock.now())
            .expect("a run that has started can be taken over");
        self.seek(&mut step, self.deps.clock.now());
        self.unwritten.extend(step.records);
        self.flush().await?;
        self.ask_executor_anew();
        Ok(step.effects)
    }
}

/// A run as its journal says.
///
/// # Errors
/// When the journal is not one that a machine wrote.
pub(in crate::engine) fn fold(run: &RunId, records: &[Record]) -> Result<Machine, EngineError> {
    std::panic::catch_unwind(|| Machine::replay(run.clone(), records)).map_err(|_| {
        EngineError::Store(StoreError::Corrupt { what: format!("the journal of run {run} does not fold") })
    })
}
