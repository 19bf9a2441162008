//! Runs that wait for their session. A queued run has neither task nor memory. The queue is advanced when the session may
//! have become free: after a live run's end, after the write that queued a run, and at the start of the server.

use std::borrow::Cow;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::limits::QUEUED_RUNS_PER_SESSION_MAX;
use agentloop_core::policy::PolicyRule;
use agentloop_core::run::event::Steer;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::RunStatus;
use tokio::sync::oneshot;

use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::history::History;
use crate::engine::run::new_task::NewTask;
use crate::engine::run::recover::{HistoryNeed, RETRY_WAIT};
use crate::engine::run::table::{Lookup, StartPermit};
use crate::engine::run::task::{RunWrite, TaskEnd};
use crate::engine::session::first_input::{FirstInput, create_run, log_unknown_tools};
use crate::engine::session::request::StartRequest;
use crate::engine::session::start::START_TRIES;
use crate::engine::{Engine, OnBusy};
use crate::store::{Claimed, Interrupted, PageRequest, RunFilter, StoreError};

impl Engine {
    /// Creates a run in the session's queue.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`], or the store's.
    pub(in crate::engine) async fn enqueue(
        &self,
        permit: StartPermit,
        session: &SessionId,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = permit.key().clone();
        // Under the lock the length that is checked still holds when the run is written.
        let lock = self.0.queue_locks.exclusive(&tenant, session).await;
        // A run that interrupts the live one does not stay.
        let most = QUEUED_RUNS_PER_SESSION_MAX + usize::from(request.on_busy == OnBusy::Interrupt);
        if self.queue(&tenant, session).await?.len() >= most {
            return Err(EngineError::QueueFull);
        }
        let (seed, not_offered) = (deps.ids.seed(), self.tools().not_offered(&request.tenant, &request.spec));
        let unknown = not_offered.unknown.clone();
        let first = FirstInput { run: run.clone(), session, last_entry: None, seed, request, not_offered };
        let history = History::new(&deps.memory.histories.memory().of(&tenant));
        let (input, write) =
            (Input::Start(Box::new(first.start())), RunWrite::Enqueue(create_run(request, false)));
        let _new_run = self.write_new_run(permit, session, history, input, write).await?;
        drop(lock);
        log_unknown_tools(&run, request, &unknown);
        // The session may have become free before this run was in the queue.
        self.advance_queue_later(&tenant, session);
        Ok(())
    }

    /// Hands a request's messages to the session's live run.
    ///
    /// # Errors
    /// [`EngineError::IdReused`]; [`StoreError::SessionMoved`] if that run has ended; [`Refusal::TooManyWaitingMessages`]; the
    /// store's.
    pub(in crate::engine) async fn steer(
        &self,
        live: &RunId,
        id: &RunId,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let steer = Steer { id: id.clone(), digest: request.digest.clone() };
        let input = || Input::Steer { steer: steer.clone(), messages: request.messages.clone() };
        match self.deliver(&RunKey::new(request.tenant.clone(), live.clone()), input).await {
            Err(EngineError::RunNotFound | EngineError::Refused(Refusal::WrongPhase(_))) => {
                Err(EngineError::Store(StoreError::SessionMoved))
            }
            Err(EngineError::Refused(Refusal::IdReused)) => Err(EngineError::IdReused),
            other => other,
        }
    }

    /// Starts a queued run in its session, if the session is free and the run is the first in the queue.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::engine) async fn enter_session(
        &self,
        mut permit: StartPermit,
        queued: &Machine,
        claimed: &Claimed,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = permit.key().clone();
        let session = &claimed.row.session;
        let _lock = self.0.session_locks.shared(&tenant, session).await;
        for _ in 0..START_TRIES {
            if deps.store.next_queued(&tenant, session).await?.as_ref() != Some(&run) {
                return Ok(());
            }
            let Some(row) = deps.store.session(&tenant, session).await? else { return Ok(()) };
            let last_entry = row.last_entry;
            let rules = self.remembered_rules(&tenant, Some(session)).await?;
            let withdrawn_tools = self.withdrawn_tools(&tenant, queued.state().spec(), &rules);
            let mut history = self.history(&tenant, session, last_entry).await?;
            history.set_waiting(queued.state().waiting_messages());
            let mut machine = queued.clone();
            let transition = machine
                .handle(Input::Enter { last_entry, rules, withdrawn_tools }, deps.clock.now())
                .expect("a queued run enters its session");
            let (epoch, past) = (claimed.epoch, &claimed.records);
            let new = NewTask { permit, machine, epoch, session: session.clone(), history, past };
            let (mut task, mailbox) = self.new_task(new);
            let created_by = claimed.row.created_by.as_deref();
            task.take_columns(&claimed.row, deps.quotas.hold_run_anyway(&tenant, created_by));
            task.unwritten.records = transition.records;
            match task.write(RunWrite::Enter(last_entry)).await {
                Ok(()) => {
                    task.permit.set_live(mailbox);
                    self.await_caller(task.permit.key(), task.machine.state());
                    self.launch(task, transition.effects);
                    // The next run in the queue may have been queued to interrupt this one.
                    self.advance_queue_later(&tenant, session);
                    return Ok(());
                }
                Err(StoreError::SessionBusy { .. } | StoreError::SessionMoved) => permit = task.permit,
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Store(StoreError::SessionMoved))
    }

    /// The tools that a run with this spec is not offered if it enters its session with these rules.
    fn withdrawn_tools(&self, tenant: &TenantId, spec: &RunSpec, rules: &[PolicyRule]) -> Vec<String> {
        let mut spec = Cow::Borrowed(spec);
        if !rules.is_empty() {
            spec.to_mut().tool_policy.rules.extend_from_slice(rules);
        }
        self.tools().not_offered(tenant, &spec).withdrawn
    }

    /// Hands an input to a queued run, which stays in the queue. `None` if the run is not queued any more.
    pub(in crate::engine) async fn deliver_to_queued(
        &self,
        key: &RunKey,
        input: Input,
    ) -> Result<Option<Result<(), Refusal>>, EngineError> {
        self.check_running()?;
        let Lookup::NotLive(permit) = self.0.live_runs.find(key).await else { return Ok(None) };
        let delivered = self.deliver_in_queue(permit, input).await;
        if delivered.as_ref().is_err_and(EngineError::is_transient) {
            // The write may have reached the store. The retry publishes what was written.
            self.retry_later(key.clone());
        }
        delivered
    }

    async fn deliver_in_queue(
        &self,
        permit: StartPermit,
        input: Input,
    ) -> Result<Option<Result<(), Refusal>>, EngineError> {
        let RunKey { tenant, run } = permit.key().clone();
        let claimed = match self.store().claim(&tenant, &run).await {
            Err(error) if error.is_damage() => return Box::pin(self.end_damaged(permit, error.into())).await,
            claimed => claimed?.ok_or(EngineError::RunNotFound)?,
        };
        let machine = match fold(&run, &claimed.records) {
            Err(damage) => return Box::pin(self.end_damaged(permit, damage)).await,
            Ok(machine) => machine,
        };
        if *machine.state().phase() != Phase::Queued {
            return Ok(None);
        }
        let (mut task, _mailbox) =
            self.task_from_claim(permit, machine, &claimed, HistoryNeed::Later).await?;
        let (reply, verdict) = oneshot::channel();
        let end = task.handle_input(input, Some(reply)).await?;
        drop(task);
        if matches!(end, Some(TaskEnd::Finished)) {
            self.advance_queue_later(&tenant, &claimed.row.session);
        }
        Ok(verdict.await.ok())
    }

    /// Aborts a live run because a queued run interrupts it.
    pub(in crate::engine) async fn interrupt(&self, found: &Interrupted) -> Result<(), EngineError> {
        let reason = format!("interrupted by run {}", found.by);
        self.abort(&found.tenant, &found.run, AbortCause::Caller, &reason).await
    }

    /// Advances the queue after the end of the session's live run. The common case of an empty queue costs one query.
    pub(in crate::engine) async fn advance_queue_after_end(&self, tenant: &TenantId, session: &SessionId) {
        match self.store().next_queued(tenant, session).await {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => self.advance_queue(tenant, session).await,
        }
    }

    /// As [`Self::advance_queue`], in the background.
    pub(in crate::engine) fn advance_queue_later(&self, tenant: &TenantId, session: &SessionId) {
        let (engine, tenant, session) = (self.clone(), tenant.clone(), session.clone());
        drop(self.deps().tasks.spawn("queue", async move { engine.advance_queue(&tenant, &session).await }));
    }

    /// Starts the next queued run or interrupts the live one, if the queue needs it. Retries while the store fails.
    async fn advance_queue(&self, tenant: &TenantId, session: &SessionId) {
        loop {
            match self.advance_queue_once(tenant, session).await {
                // The next owner of the session starts them.
                Ok(()) | Err(EngineError::ShuttingDown | EngineError::Store(StoreError::Elsewhere)) => return,
                Err(error) if error.is_transient() => {}
                Err(error) => {
                    tracing::error!(session.id = %session, %error, "cannot advance a session's queue; its queued runs do not start");
                    return;
                }
            }
            if self.has_stopped_after(RETRY_WAIT).await {
                return;
            }
        }
    }

    /// If the session is free, the first run in the queue enters it. If it is busy, its live run is aborted if the next
    /// run was queued to interrupt it.
    async fn advance_queue_once(&self, tenant: &TenantId, session: &SessionId) -> Result<(), EngineError> {
        if let Some(next) = self.store().next_queued(tenant, session).await? {
            return self.ensure_live(&RunKey::new(tenant.clone(), next)).await;
        }
        match self.store().interrupted_in(tenant, session).await? {
            Some(found) => self.interrupt(&found).await,
            None => Ok(()),
        }
    }

    /// The position in the session's queue that belongs to this queue number, counted from 1.
    pub(in crate::engine) async fn queue_position(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        queue_no: u64,
    ) -> Result<u32, EngineError> {
        let queue = self.queue(tenant, session).await?;
        let before = queue.into_iter().filter(|other| *other < queue_no).count();
        Ok(u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// The queue numbers of the session's queued runs, in no order.
    async fn queue(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<u64>, StoreError> {
        let (session, statuses) = (Some(session.clone()), vec![RunStatus::Queued]);
        let filter = RunFilter { session, statuses, ..RunFilter::default() };
        let (mut queue, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().runs(tenant, filter.clone(), PageRequest { size: 1_000, after }).await?;
            queue.extend(page.rows.into_iter().filter_map(|row| row.queue_no));
            after = page.next;
            if after.is_none() {
                return Ok(queue);
            }
        }
    }
}
