//! Starts the task of an existing run from its journal: after a restart, when an input reaches a parked run, or after a
//! failure of the store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentloop_core::id::{RunId, RunKey, TenantId};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::{Phase, RunState};
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::SemaphorePermit;

use crate::engine::Engine;
use crate::engine::deps::recovery_bounds::BRING_UP_TOGETHER;
use crate::engine::deps::retries::RetryGuard;
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::memory::{RESPONSE_BYTES, RUN_BYTES, journal_bytes};
use crate::engine::run::new_task::NewTask;
use crate::engine::run::recovery_order::{RecoveryOrder, RecoveryPlace};
use crate::engine::run::table::{Mailbox, StartPermit};
use crate::engine::run::task::RunTask;
use crate::engine::watch::{ChangedFrom, SessionSignal};
use crate::memory::Charge;
use crate::store::{Claimed, Interrupted, PageRequest, RunFilter, RunRow, StoreError};

/// Paused runs that are read at a time after a restart.
const PAUSED_PER_PAGE: u32 = 256;
/// The wait before the first retry after a failure of the store. It doubles with each retry until the run has an event again,
/// because each one may call the model again. It ends when the store is back.
pub(in crate::engine) const RETRY_WAIT: Duration = Duration::from_secs(1);
/// The longest wait between two retries.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(300);
/// The end of a run that a queued one interrupts, in the log.
const INTERRUPT: &str = "interrupt a run";
/// The resumption of a paused run, in the log.
const RESUME: &str = "resume a run whose model has a provider again";

/// The time at which a task needs its session's history. Only a damaged session makes a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) enum HistoryNeed {
    /// Without its history the run does not start.
    Now,
    /// The run starts. It fails if something that it does needs the history.
    #[default]
    Later,
}

/// The way in which a run is started from its journal.
#[derive(Default)]
pub(in crate::engine) struct Opening {
    /// The time at which it needs its session's history.
    pub(in crate::engine) need: HistoryNeed,
    /// Its place among the runs of a recovery: they request memory in that order. `None` outside of a recovery.
    pub(in crate::engine) place: Option<RecoveryPlace>,
}

/// The work that the last process left behind, of one tenant.
#[derive(Default)]
struct Unfinished {
    /// Runs to start: those under way, and the first of each queue whose session is free.
    runs: Vec<RunKey>,
    /// Live runs that a queued run is to interrupt.
    interrupts: Vec<Interrupted>,
}

impl Engine {
    /// Continues the work of the last process, until the server shuts down. Of each tenant it starts every unfinished run, then
    /// ends those that are to be interrupted. Then it lets those go on that an earlier process paused because no provider served
    /// their model, if the model has one now. A tenant whose runs wait for memory holds up no other.
    pub(in crate::engine) async fn recover(self) {
        let Some(unfinished) = self.until_read("the unfinished runs", || self.unfinished()).await else {
            return;
        };
        let runs: usize = unfinished.values().map(|left| left.runs.len()).sum();
        if runs > 0 {
            tracing::info!(runs, "continuing unfinished runs");
        }
        let with_work: BTreeSet<TenantId> = unfinished.keys().cloned().collect();
        let with_work_end =
            join_all(unfinished.into_iter().map(|(tenant, left)| self.recover_tenant(tenant, left)));
        let others_end = async {
            let read = || self.store().tenants_with_sessions();
            let Some(tenants) = self.until_read("the tenants", read).await else { return };
            for tenant in tenants.into_iter().filter(|tenant| !with_work.contains(tenant)) {
                self.resume_runs_of(tenant).await;
            }
        };
        tokio::join!(with_work_end, others_end);
    }

    async fn recover_tenant(&self, tenant: TenantId, left: Unfinished) {
        self.start_unfinished(left.runs).await;
        self.end_interrupted(left.interrupts).await;
        self.resume_runs_of(tenant).await;
    }

    /// Reads from the store, again after each failure. `None`: the server shuts down.
    async fn until_read<T, F>(&self, name: &str, read: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match read().await {
                Ok(found) => return Some(found),
                Err(error) => {
                    tracing::error!(%error, "cannot read {name} from the store; trying again");
                    if self.has_stopped_after(RETRY_WAIT).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Starts those runs of one tenant that are not live. They come up in their order, and only while there is memory. Those that
    /// an earlier recovery has yet to start are left to it.
    async fn start_unfinished(&self, mut runs: Vec<RunKey>) {
        let outstanding = &self.deps().recovery_bounds.runs;
        runs.retain(|key| outstanding.take_on(key));
        let mut order = RecoveryOrder::default();
        futures_util::stream::iter(runs)
            .then(|key| {
                let place = order.next();
                async move {
                    // A live run needs none, and may hold the memory that would be waited for.
                    let room = match self.0.live_runs.live(&key) {
                        Some(_) => None,
                        None => Some(self.room_to_come_up(&key.tenant).await),
                    };
                    outstanding.begin(&key);
                    (key, place, room)
                }
            })
            .for_each_concurrent(None, |(key, place, room)| async move {
                self.continue_run(&key, place).await;
                // An `async` block holds what it names alone.
                drop(room);
            })
            .await;
    }

    /// Waits for memory for a run that comes up, and for a place among those that come up together. While it waits for one of
    /// the two, it holds neither.
    async fn room_to_come_up(&self, tenant: &TenantId) -> (Charge, SemaphorePermit<'_>) {
        const BYTES: usize = RUN_BYTES + RESPONSE_BYTES;
        let (deps, together) = (self.deps(), &self.deps().recovery_bounds.together);
        loop {
            let reserved = deps.reserve(tenant, BYTES).await;
            if let Ok(place) = together.try_acquire() {
                return (reserved, place);
            }
            drop(reserved);
            let place = together.acquire().await.expect("it is never closed");
            if let Some(reserved) = deps.try_reserve(tenant, BYTES) {
                return (reserved, place);
            }
        }
    }

    /// Starts one run of a recovery. A failure is reported, and retried if that may help.
    async fn continue_run(&self, key: &RunKey, place: RecoveryPlace) {
        match self.ensure_live_with(key, Opening { place: Some(place), ..Opening::default() }).await {
            Ok(()) | Err(EngineError::ShuttingDown | EngineError::Store(StoreError::Elsewhere)) => {}
            // It is retried, as all others are that fail with it.
            Err(error) if error.is_transient() => {
                self.deps().failures.lost_runs.note(&error, &self.deps().tasks);
            }
            Err(error) => tracing::error!(run.id = %key.run, %error, "cannot continue a run"),
        }
    }

    /// Ends runs of one tenant that queued runs are to interrupt.
    async fn end_interrupted(&self, interrupts: Vec<Interrupted>) {
        futures_util::stream::iter(interrupts)
            .for_each_concurrent(BRING_UP_TOGETHER, |found| async move {
                self.until_done(&found.run, INTERRUPT, || self.interrupt(&found)).await;
            })
            .await;
    }

    /// Lets paused runs of a tenant go on whose model has a provider again.
    async fn resume_runs_of(&self, tenant: TenantId) {
        let failed = self.resume_listed(&tenant).await;
        futures_util::stream::iter(failed)
            .for_each_concurrent(BRING_UP_TOGETHER, async |(run, request)| {
                if !self.has_stopped_after(RETRY_WAIT).await {
                    self.until_done(&run, RESUME, || self.resume(&tenant, &run, &request, "server")).await;
                }
            })
            .await;
    }

    /// As [`Self::resume_runs_of`], once. Returns the runs for which the store failed, with their requests.
    async fn resume_listed(&self, tenant: &TenantId) -> Vec<(RunId, String)> {
        let bounds = &self.deps().recovery_bounds;
        if !bounds.tenants.take_on(tenant) {
            return Vec::new();
        }
        let _list = bounds.lists.acquire().await;
        bounds.tenants.begin(tenant);
        let (mut after, mut failed) = (None, Vec::new());
        while !self.deps().tasks.soft().is_cancelled() {
            let page = PageRequest { size: PAUSED_PER_PAGE, after: after.clone() };
            let read = || {
                let filter = RunFilter { statuses: vec![RunStatus::Paused], ..RunFilter::default() };
                self.store().runs(tenant, filter, page.clone())
            };
            let Some(page) = self.until_read("the paused runs", read).await else { break };
            let mut rows = page.rows;
            rows.retain(|row| self.store().owns(tenant, &row.session) && self.has_its_model_again(row));
            for row in rows {
                // A repetition of the same request is confirmed.
                let request = format!("model-configured:{}", row.last_seq.0);
                let resumed = self.resume(tenant, &row.run, &request, "server").await;
                if is_to_repeat(&row.run, RESUME, resumed) {
                    failed.push((row.run, request));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        failed
    }

    /// Gives an input to a run, again while the store fails.
    async fn until_done<F>(&self, run: &RunId, name: &str, give: impl Fn() -> F)
    where
        F: Future<Output = Result<(), EngineError>>,
    {
        while self.check_running().is_ok()
            && is_to_repeat(run, name, give().await)
            && !self.has_stopped_after(RETRY_WAIT).await
        {}
    }

    /// True if the run was paused for want of a provider, which is configured now.
    fn has_its_model_again(&self, row: &RunRow) -> bool {
        let missing = RunErrorCode::Model(ModelErrorKind::NotConfigured);
        row.summary.error.as_ref().is_some_and(|error| error.code == missing)
            && self.deps().models.resolve(&row.model).is_ok()
    }

    /// The work that the last process left behind, of the tenants that have some.
    async fn unfinished(&self) -> Result<BTreeMap<TenantId, Unfinished>, StoreError> {
        let (store, mut left) = (self.store(), BTreeMap::<TenantId, Unfinished>::new());
        for key in store.unfinished().await?.into_iter().chain(store.queue_heads().await?) {
            left.entry(key.tenant.clone()).or_default().runs.push(key);
        }
        for found in store.interrupted().await? {
            left.entry(found.tenant.clone()).or_default().interrupts.push(found);
        }
        Ok(left)
    }

    /// Claims a run and starts its task. If the store fails in between, it is unknown what was written; the run is then
    /// retried in the background.
    pub(in crate::engine) async fn resume_from_journal(
        &self,
        permit: StartPermit,
        opening: Opening,
    ) -> Result<(), EngineError> {
        let key = permit.key().clone();
        let resumed = self.claim_and_launch(permit, opening).await;
        if resumed.as_ref().is_err_and(EngineError::is_transient) {
            self.retry_later(key);
        }
        resumed
    }

    async fn claim_and_launch(&self, permit: StartPermit, opening: Opening) -> Result<(), EngineError> {
        self.check_running()?;
        let RunKey { tenant, run } = permit.key().clone();
        let _entered = self.deps().memory.journal_gate.enter(&tenant).await;
        let claimed = match self.store().claim(&tenant, &run).await {
            Err(error) if error.is_damage() => return self.end_damaged(permit, error.into()).await,
            claimed => claimed?.ok_or(EngineError::RunNotFound)?,
        };
        let bytes = journal_bytes(&claimed.records);
        self.deps().memory.journal_gate.note_size(bytes);
        let _journal_charge = self.deps().ledger_of(&tenant).charge(bytes);
        if let Some(last) = claimed.records.last() {
            self.deps().feeds.publish_last(permit.key(), &claimed.row.session, last);
        }
        if claimed.row.summary.status.is_terminal() {
            self.deps().failures.of_store.forget(permit.key());
            self.tell_watchers_of_claimed(&tenant, &claimed.row, None);
            // The process that wrote the end may have died before it advanced the queue.
            self.advance_queue_later(&tenant, &claimed.row.session);
            return Ok(());
        }
        let folded = fold(&run, &claimed.records);
        self.tell_watchers_of_claimed(&tenant, &claimed.row, folded.as_ref().ok().map(Machine::state));
        let machine = match folded {
            Err(damage) => return self.end_damaged(permit, damage).await,
            Ok(machine) => machine,
        };
        if *machine.state().phase() == Phase::Queued {
            return self.enter_session(permit, &machine, &claimed).await;
        }
        let (mut task, mailbox) = self.task_from_claim(permit, machine, &claimed, opening.need).await?;
        // The mailbox must be open before hosts are sought: the grant of a host is reported only once, and may come
        // before the transition is durable.
        task.permit.set_live(mailbox);
        task.memory.recovery_place = opening.place;
        let effects = match task.take_over().await {
            Ok(effects) => effects,
            Err(error) => {
                // Hosts that were sought have kept room for it.
                self.deps().tools.release(&tenant, &run);
                return Err(error.into());
            }
        };
        self.await_caller(task.permit.key(), task.machine.state());
        self.launch(task, effects);
        Ok(())
    }

    /// Tells watchers what a run is now: the response to a write before the claim may have been lost. Without its state, they
    /// learn of its wait what its row tells.
    pub(in crate::engine) fn tell_watchers_of_claimed(
        &self,
        tenant: &TenantId,
        row: &RunRow,
        state: Option<&RunState>,
    ) {
        let deps = self.deps();
        deps.watchers.sessions.changed(tenant, &row.session, SessionSignal::Runs);
        if deps.watchers.runs.is_active() {
            let waiting_on = state.map_or_else(|| row.waiting_on(), RunState::waiting_on);
            deps.run_changed(tenant, row.clone(), waiting_on, ChangedFrom::Unknown);
        }
    }

    /// A task for a run that was claimed, with the session's history from the store.
    pub(in crate::engine) async fn task_from_claim(
        &self,
        permit: StartPermit,
        machine: Machine,
        claimed: &Claimed,
        need: HistoryNeed,
    ) -> Result<(RunTask, Mailbox), EngineError> {
        let deps = self.deps();
        let session = claimed.row.session.clone();
        let last = machine.state().last_entry();
        let taken = deps.memory.histories.take(&*deps.store, &permit.key().tenant, &session, last).await;
        let mut history = match (taken, need) {
            (Err(error), HistoryNeed::Later) if error.is_damage() => {
                deps.memory.histories.unloaded(&permit.key().tenant, last)
            }
            (taken, _) => taken?,
        };
        history.set_waiting(machine.state().waiting_messages());
        let created_by = claimed.row.created_by.as_deref();
        let use_permit = deps.quotas.hold_run_anyway(&permit.key().tenant, created_by);
        let (epoch, past) = (claimed.epoch, &claimed.records);
        let new = NewTask { permit, machine, epoch, session, history, past };
        let (mut task, mailbox) = self.new_task(new);
        task.take_columns(&claimed.row, use_permit);
        Ok((task, mailbox))
    }

    /// Starts the run in the background, retrying until the store is back.
    pub(in crate::engine) fn retry_later(&self, key: RunKey) {
        if let Some(retry) = self.deps().failures.retries.begin(&key) {
            let engine = self.clone();
            drop(self.deps().tasks.spawn("revive", async move { engine.retry_until_live(key, retry).await }));
        }
    }

    /// Ends the waits of all runs that are retried: the store is back.
    pub fn store_is_back(&self) {
        self.deps().failures.retries.wake_all();
    }

    async fn retry_until_live(&self, key: RunKey, retry: RetryGuard) {
        let mut wakes = retry.wakes();
        loop {
            let doublings = self.deps().failures.of_store.increment(&key).min(16) - 1;
            tokio::select! { biased;
                has_stopped = self.has_stopped_after((RETRY_WAIT * (1 << doublings)).min(RETRY_WAIT_MAX)) => {
                    if has_stopped {
                        return;
                    }
                }
                // The sender lives as long as the engine.
                Ok(()) = wakes.changed() => {}
            }
            wakes.mark_unchanged();
            retry.start_try();
            match self.ensure_live(&key).await {
                Err(error) if error.is_transient() => continue,
                Ok(()) | Err(EngineError::ShuttingDown) => {}
                // Not found: the write that was to create the run failed.
                Err(EngineError::RunNotFound | EngineError::Store(StoreError::Elsewhere)) => {
                    self.deps().failures.of_store.forget(&key);
                }
                Err(error) => tracing::error!(run.id = %key.run, %error, "cannot continue a run"),
            }
            if retry.is_done() {
                return;
            }
        }
    }

    /// Waits for this long. True, at once, if the server is shutting down.
    pub(in crate::engine) async fn has_stopped_after(&self, wait: Duration) -> bool {
        let sleep = tokio::time::sleep(wait);
        self.deps().tasks.soft().run_until_cancelled(sleep).await.is_none()
    }
}

/// True if an input that was given to a run has to be given again, because the store failed. Each failure is logged. A run whose
/// session is another replica's is left to that one, and after a shutdown to the next process.
fn is_to_repeat(run: &RunId, name: &str, given: Result<(), EngineError>) -> bool {
    match given {
        Ok(()) | Err(EngineError::ShuttingDown | EngineError::Store(StoreError::Elsewhere)) => false,
        Err(error) => {
            tracing::error!(run.id = %run, %error, "cannot {name}");
            error.is_transient()
        }
    }
}

impl RunTask {
    /// Handles [`Input::Recovered`] and makes the events durable. Returns the effects that are still to be performed.
    async fn take_over(&mut self) -> Result<Vec<Effect>, StoreError> {
        let mut transition = self
            .machine
            .handle(Input::Recovered, self.deps.clock.now())
            .expect("a run that has started can be taken over");
        // Nobody waits for the responses, so they come through the mailbox: many runs may come up at once, in turn.
        self.seek_hosts(&mut transition, self.deps.clock.now(), &mut VecDeque::new());
        self.unwritten.records.extend(transition.records);
        // The take-over is no event of the run's own: each retry has one.
        self.is_past_failure = true;
        self.flush().await?;
        self.is_past_failure = false;
        self.ask_open_questions();
        Ok(transition.effects)
    }
}
