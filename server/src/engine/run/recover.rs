//! A run comes up from its journal: after a restart, when someone moves a parked one, when its task was lost.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentloop_core::id::{EntryNo, Epoch, RunId, SessionId};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Record;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::Phase;
use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use tracing::Instrument as _;

use crate::engine::Engine;
use crate::engine::deps::Observer;
use crate::engine::effect::tool_hooks::Judging;
use crate::engine::error::EngineError;
use crate::engine::feed::RunKey;
use crate::engine::history::History;
use crate::engine::run::human::Executing;
use crate::engine::run::table::{Mailbox, Vacancy};
use crate::engine::run::task::{End, RunTask};
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
                    tracing::error!(run.id = %key.1, %error, "cannot go on with a run");
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
    pub(in crate::engine) async fn open(&self, place: Vacancy) -> Result<(), EngineError> {
        let key = place.key().clone();
        let opened = self.claim(place).await;
        if opened.as_ref().is_err_and(EngineError::passes) {
            self.revive_later(key);
        }
        opened
    }

    async fn claim(&self, place: Vacancy) -> Result<(), EngineError> {
        self.check_running()?;
        let (tenant, run) = place.key().clone();
        let claimed = self.store().claim(&tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        if let Some(last) = claimed.records.last() {
            self.deps().feeds.remind(place.key(), &claimed.row.session, last);
        }
        if claimed.row.summary.status.is_terminal() {
            // Whoever saw it end may not have seen that it did.
            self.attend_later(&tenant, &claimed.row.session);
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
        place: Vacancy,
        machine: Machine,
        claimed: &Claimed,
    ) -> Result<(RunTask, Mailbox), EngineError> {
        let deps = self.deps();
        let session = claimed.row.session.clone();
        let EntryNo(last) = machine.state().last_entry;
        let mut history = History::load(&*deps.store, &place.key().0, &session, EntryNo(last)).await?;
        history.hold(&machine.state().held);
        let (mut task, mailbox) =
            self.assemble(place, machine, claimed.epoch, session, history, &claimed.records);
        task.wakes = claimed.row.summary.wake_at.is_some();
        Ok((task, mailbox))
    }

    /// A task of this machine, which had these events before. It does nothing yet.
    pub(in crate::engine) fn assemble(
        &self,
        place: Vacancy,
        machine: Machine,
        epoch: Epoch,
        session: SessionId,
        history: History,
        past: &[Record],
    ) -> (RunTask, Mailbox) {
        let deps = self.deps();
        let (tenant, run) = place.key();
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
        let (tenant, run) = task.place.key().clone();
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
        self.deps().tools.release(&key.0, &key.1);
        match end {
            End::Finished => {
                self.deps().losses.forget(&key);
                drop(task.place);
                self.follow(&key.0, &task.session).await;
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

    /// Brings a run up when the store is back, without anyone waiting for it.
    pub(in crate::engine) fn revive_later(&self, key: RunKey) {
        if let Some(reviving) = self.deps().reviving.begin(&key) {
            let engine = self.clone();
            drop(self.deps().tasks.spawn("revive", async move { engine.revive(key, reviving).await }));
        }
    }

    /// Tries until the store is back.
    async fn revive(&self, key: RunKey, reviver: Reviver) {
        loop {
            let doublings = self.deps().losses.bump(&key).min(16) - 1;
            if self.has_stopped_after((REVIVE_WAIT * (1 << doublings)).min(REVIVE_WAIT_MAX)).await {
                return;
            }
            reviver.begins();
            match self.bring_up(&key).await {
                Err(error) if error.passes() => continue,
                // What was to create it came to nothing.
                Ok(()) | Err(EngineError::RunNotFound) => {}
                Err(error) => tracing::error!(run.id = %key.1, %error, "cannot go on with the run"),
            }
            if reviver.is_done() {
                return;
            }
        }
    }

    /// Waits, unless the server goes down.
    pub(in crate::engine) async fn has_stopped_after(&self, wait: Duration) -> bool {
        let sleep = tokio::time::sleep(wait);
        self.deps().tasks.soft().run_until_cancelled(sleep).await.is_none()
    }

    /// A panic in one run is that run's: it is replayed once, and failed if that does not help.
    async fn panicked(&self, task: RunTask) {
        tracing::error!("a fault in this run");
        let key = task.place.key().clone();
        self.deps().tools.release(&key.0, &key.1);
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
        let Some(claimed) = self.store().claim(&key.0, &key.1).await? else { return Ok(()) };
        let machine = fold(&key.1, &claimed.records)?;
        let (mut task, _mailbox) = self.task(place, machine, &claimed).await?;
        let reason = "a fault of the server; its log has the details".to_owned();
        task.step(Input::Abort { cause: AbortCause::Fault, reason }, None).await?;
        self.attend_later(&key.0, &claimed.row.session);
        Ok(())
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

/// Runs that are being brought up once the store is back: each by one task. With each, whether it was asked for again
/// since it was last tried: a run that came up may be lost again before whoever brought it up is done.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Reviving(Arc<Mutex<HashMap<RunKey, bool>>>);

/// Whoever holds it is the one.
struct Reviver {
    all: Reviving,
    key: RunKey,
}

impl Reviving {
    /// `None`: somebody is at it, and tries once more.
    fn begin(&self, key: &RunKey) -> Option<Reviver> {
        match self.runs().entry(key.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                None
            }
            Entry::Vacant(new) => {
                new.insert(false);
                Some(Reviver { all: self.clone(), key: key.clone() })
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reviver {
    /// What was asked for before is about to be done.
    fn begins(&self) {
        self.all.runs().insert(self.key.clone(), false);
    }

    /// Whether nobody has asked again. Then somebody else may be the one from here on.
    fn is_done(&self) -> bool {
        let mut runs = self.all.runs();
        let again = runs.get(&self.key).copied().unwrap_or(false);
        if !again {
            runs.remove(&self.key);
        }
        !again
    }
}

/// How often something befell each run in this process.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tally(Mutex<HashMap<RunKey, u32>>);

impl Tally {
    /// Once more; how often by now.
    fn bump(&self, key: &RunKey) -> u32 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        *count
    }

    fn forget(&self, key: &RunKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::TenantId;

    use super::*;

    #[test]
    fn a_run_that_is_lost_while_it_is_brought_up_is_brought_up_once_more() {
        let (all, key) = (Reviving::default(), (TenantId::local(), RunId::parse("r").unwrap()));
        let reviver = all.begin(&key).unwrap();
        assert!(all.begin(&key).is_none(), "one is at it");
        reviver.begins();
        assert!(reviver.is_done(), "what was asked for before it began is done by it");

        let reviver = all.begin(&key).unwrap();
        reviver.begins();
        assert!(all.begin(&key).is_none());
        assert!(!reviver.is_done(), "it was asked for meanwhile");
        reviver.begins();
        assert!(reviver.is_done());
        assert!(all.begin(&key).is_some(), "whoever comes next is the one");
    }
}
