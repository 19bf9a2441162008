//! The task of a run: how it is made, started, and what follows its end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agentloop_core::id::{Epoch, RunKey, SessionId};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Machine;
use futures_util::FutureExt as _;
use tracing::Instrument as _;

use crate::engine::Engine;
use crate::engine::effect::tool_hooks::Judging;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::engine::ports::Observer;
use crate::engine::run::human::Executing;
use crate::engine::run::recover::fold;
use crate::engine::run::table::{Mailbox, StartPermit};
use crate::engine::run::task::{End, RunTask};
use crate::store::StoreError;

impl Engine {
    /// A task of this machine, which had these events before. It does nothing yet.
    pub(in crate::engine) fn assemble(
        &self,
        place: StartPermit,
        machine: Machine,
        epoch: Epoch,
        session: SessionId,
        history: History,
        past: &[Record],
    ) -> (RunTask, Mailbox) {
        let deps = self.deps();
        let RunKey { tenant, run } = place.key();
        let follow = |observer: &Arc<dyn Observer>| observer.follow(tenant, run, &session, past);
        let followers = deps.observers.iter().filter_map(follow).collect();
        let (mailbox, receiver) = Mailbox::new();
        let task = RunTask {
            feed: deps.feeds.of(place.key(), &session, deps.options.subscriber_buffer),
            deps: deps.clone(),
            wake: self.wake().clone(),
            place,
            machine,
            epoch,
            session,
            history,
            mailbox: receiver,
            steppers: Vec::new(),
            executing: Executing::default(),
            speaking: None,
            judging: Judging::default(),
            unwritten: Vec::new(),
            followers,
            write_by: None,
            wakes: false,
        };
        (task, mailbox)
    }

    /// Starts a task, and sees to what it leaves behind.
    pub(in crate::engine) fn launch(&self, mut task: RunTask, effects: Vec<Effect>) {
        let engine = self.clone();
        let RunKey { tenant, run } = task.place.key().clone();
        let span = tracing::info_span!(parent: None, "run", run.id = %run, session.id = %task.session, tenant = %tenant);
        let life = async move {
            let lived = AssertUnwindSafe(async {
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

    async fn ended(&self, task: RunTask, end: End) {
        let key = task.place.key().clone();
        self.deps().tools.release(&key.tenant, &key.run);
        match end {
            End::Finished => {
                self.deps().losses.forget(&key);
                drop(task.place);
                self.follow(&key.tenant, &task.session).await;
            }
            End::Parked | End::Stopped => {}
            End::Lost(StoreError::Conflict) => tracing::warn!("the run is owned elsewhere by now"),
            End::Lost(error) => {
                tracing::error!(%error, "the store failed; the run goes on when it is back");
                drop(task.place);
                self.revive_later(key);
            }
        }
    }

    /// A panic in one run is that run's: it is replayed once, and failed if that does not help.
    async fn panicked(&self, task: RunTask) {
        tracing::error!("a fault in this run");
        let key = task.place.key().clone();
        self.deps().tools.release(&key.tenant, &key.run);
        let first = self.deps().faults.bump(&key) == 1;
        drop(task);
        let result = if first { self.bring_up(&key).await } else { self.fail_faulty(&key).await };
        if let Err(error) = result {
            tracing::error!(%error, "cannot recover from a fault in this run");
            self.revive_later(key);
        }
    }

    /// Ends a run that faulted twice as failed.
    async fn fail_faulty(&self, key: &RunKey) -> Result<(), EngineError> {
        let crate::engine::run::table::Found::Vacant(place) = self.0.table.find(key).await else {
            return Ok(());
        };
        let Some(claimed) = self.store().claim(&key.tenant, &key.run).await? else { return Ok(()) };
        let machine = fold(&key.run, &claimed.records)?;
        let (mut task, _mailbox) = self.task(place, machine, &claimed).await?;
        let reason = "a fault of the server; its log has the details".to_owned();
        task.step(Input::Abort { cause: AbortCause::Fault, reason }, None).await?;
        self.advance_queue_later(&key.tenant, &claimed.row.session);
        Ok(())
    }
}
