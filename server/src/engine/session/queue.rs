//! Runs that wait for their session. A queued run has neither task nor memory; whoever sees its session become free
//! lets it in: the end of the live run, the write that queued it, or the start of the server.

use agentloop_core::error::Refusal;
use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::limits::QUEUED_RUNS_PER_SESSION_MAX;
use agentloop_core::run::event::Steer;
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::RunStatus;
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::engine::run::recover::{REVIVE_WAIT, fold};
use crate::engine::run::table::{Found, StartPermit};
use crate::engine::run::task::End;
use crate::engine::session::start::{START_TRIES, StartRequest, create, start_input};
use crate::store::{Claimed, Interrupted, PageRequest, RunFilter, StoreError};

impl Engine {
    /// Creates a run that waits for its session.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`], or the store's.
    pub(in crate::engine) async fn enqueue(
        &self,
        place: StartPermit,
        session: &SessionId,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = place.key().clone();
        // What is counted must still hold when the run is written.
        let turn = self.0.queues.pass(&tenant, session).await;
        if self.queue(&tenant, session).await?.len() >= QUEUED_RUNS_PER_SESSION_MAX {
            return Err(EngineError::QueueFull);
        }
        let mut machine = Machine::new(run.clone());
        let start = start_input(run, session, None, deps.ids.seed(), request);
        let step = machine.handle(start, deps.clock.now()).expect("a new run takes its start");
        let epoch = deps.store.epoch();
        let history = History::default();
        let (mut task, _mailbox) = self.assemble(place, machine, epoch, session.clone(), history, &[]);
        task.unwritten = step.records;
        task.write(Some(create(request)), None).await?;
        drop(turn);
        // The session may have become free before this run was there to be let in.
        self.advance_queue_later(&tenant, session);
        Ok(())
    }

    /// Hands a request's messages to the live run.
    ///
    /// # Errors
    /// [`EngineError::IdReused`]; [`StoreError::SessionMoved`] when that run is over; [`Refusal::TooMuchHeld`]; the
    /// store's.
    pub(in crate::engine) async fn steer(
        &self,
        live: &RunId,
        id: &RunId,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let steer = Steer { id: id.clone(), digest: request.digest.clone() };
        let input = || Input::Steer { steer: steer.clone(), messages: request.messages.clone() };
        match self.ask(&RunKey::new(request.tenant.clone(), live.clone()), input).await {
            Err(EngineError::RunNotFound | EngineError::Refused(Refusal::WrongPhase(_))) => {
                Err(EngineError::Store(StoreError::SessionMoved))
            }
            Err(EngineError::Refused(Refusal::IdReused)) => Err(EngineError::IdReused),
            other => other,
        }
    }

    /// Lets a queued run into its session, if that is free and the run is the first in the queue.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::engine) async fn enter(
        &self,
        mut place: StartPermit,
        queued: &Machine,
        claimed: &Claimed,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = place.key().clone();
        let session = &claimed.row.session;
        let _here = self.0.sessions.share(&tenant, session).await;
        for _ in 0..START_TRIES {
            if deps.store.next_queued(&tenant, session).await?.as_ref() != Some(&run) {
                return Ok(());
            }
            let Some(row) = deps.store.session(&tenant, session).await? else { return Ok(()) };
            let last_entry = row.last_entry;
            let rules = self.remembered(&tenant, Some(session)).await?;
            let mut history = self.history(&tenant, session, last_entry).await?;
            history.hold(&queued.state().held);
            let mut machine = queued.clone();
            let step = machine
                .handle(Input::Enter { last_entry, rules }, deps.clock.now())
                .expect("a queued run enters its session");
            let past = &claimed.records;
            let (mut task, mailbox) =
                self.assemble(place, machine, claimed.epoch, session.clone(), history, past);
            task.unwritten = step.records;
            match task.write(None, Some(last_entry)).await {
                Ok(()) => {
                    task.place.occupy(mailbox);
                    self.launch(task, step.effects);
                    // The next in the queue may be there to interrupt this one.
                    self.advance_queue_later(&tenant, session);
                    return Ok(());
                }
                Err(StoreError::SessionBusy { .. } | StoreError::SessionMoved) => place = task.place,
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Store(StoreError::SessionMoved))
    }

    /// Hands an input to a run that waits for its session, without letting it in. `None`: it does not wait any more.
    pub(in crate::engine) async fn ask_queued(
        &self,
        key: &RunKey,
        input: Input,
    ) -> Result<Option<Result<(), Refusal>>, EngineError> {
        self.check_running()?;
        let Found::Vacant(place) = self.0.table.find(key).await else { return Ok(None) };
        let asked = self.ask_where_it_waits(place, input).await;
        if asked.as_ref().is_err_and(EngineError::passes) {
            // What was written, if anything was, nobody has told those who watch.
            self.revive_later(key.clone());
        }
        asked
    }

    async fn ask_where_it_waits(
        &self,
        place: StartPermit,
        input: Input,
    ) -> Result<Option<Result<(), Refusal>>, EngineError> {
        let RunKey { tenant, run } = place.key().clone();
        let claimed = self.store().claim(&tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        let machine = fold(&run, &claimed.records)?;
        if machine.state().phase != Phase::Queued {
            return Ok(None);
        }
        let (mut task, _mailbox) = self.task(place, machine, &claimed).await?;
        let (reply, answer) = oneshot::channel();
        let end = task.step(input, Some(reply)).await?;
        drop(task);
        if matches!(end, Some(End::Finished)) {
            self.advance_queue_later(&tenant, &claimed.row.session);
        }
        Ok(answer.await.ok())
    }

    /// Ends a live run for the one that interrupts it.
    pub(in crate::engine) async fn interrupt(&self, found: &Interrupted) -> Result<(), EngineError> {
        let reason = format!("interrupted by run {}", found.by);
        self.abort(&found.tenant, &found.run, AbortCause::Caller, &reason).await
    }

    /// A run of this session is over: if others wait, the next is let in.
    pub(in crate::engine) async fn follow(&self, tenant: &TenantId, session: &SessionId) {
        match self.store().next_queued(tenant, session).await {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => self.advance_queue(tenant, session).await,
        }
    }

    /// As [`Self::advance_queue`], without anyone waiting for it.
    pub(in crate::engine) fn advance_queue_later(&self, tenant: &TenantId, session: &SessionId) {
        let (engine, tenant, session) = (self.clone(), tenant.clone(), session.clone());
        drop(self.deps().tasks.spawn("queue", async move { engine.advance_queue(&tenant, &session).await }));
    }

    /// Does what a session's queue calls for, and tries until the store is there to do it.
    async fn advance_queue(&self, tenant: &TenantId, session: &SessionId) {
        loop {
            match self.attend_once(tenant, session).await {
                Ok(()) | Err(EngineError::ShuttingDown) => return,
                Err(error) if error.passes() => {}
                Err(error) => {
                    tracing::error!(session.id = %session, %error, "cannot see to a session's queue");
                    return;
                }
            }
            if self.has_stopped_after(REVIVE_WAIT).await {
                return;
            }
        }
    }

    /// Where the session is free, the first in the queue enters; where it is not, the live run ends if it is to be
    /// interrupted.
    async fn attend_once(&self, tenant: &TenantId, session: &SessionId) -> Result<(), EngineError> {
        if let Some(next) = self.store().next_queued(tenant, session).await? {
            return self.bring_up(&RunKey::new(tenant.clone(), next)).await;
        }
        match self.store().interrupted_in(tenant, session).await? {
            Some(found) => self.interrupt(&found).await,
            None => Ok(()),
        }
    }

    /// The last event of the run that a request is about: the run of its id, the one that it steered, or, where it is to
    /// steer, its session's live run. 0: it would be a new one.
    ///
    /// # Errors
    /// The store's.
    pub async fn last_seq(
        &self,
        tenant: &TenantId,
        id: Option<&RunId>,
        steers: Option<&SessionId>,
    ) -> Result<Seq, EngineError> {
        let store = self.store();
        if let Some(id) = id {
            if let Some(row) = store.run(tenant, id).await? {
                return Ok(row.last_seq);
            }
            if let Some((run, _)) = store.steered(tenant, id).await? {
                return Ok(store.run(tenant, &run).await?.map_or(Seq(0), |row| row.last_seq));
            }
        }
        let Some(session) = steers else { return Ok(Seq(0)) };
        let Some(live) = store.session(tenant, session).await?.and_then(|row| row.live_run) else {
            return Ok(Seq(0));
        };
        Ok(store.run(tenant, &live).await?.map_or(Seq(0), |row| row.last_seq))
    }

    /// A place in a session's queue as people count it, from 1.
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

    /// The places that are taken in a session's queue, in no order.
    async fn queue(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<u64>, StoreError> {
        let filter = RunFilter { session: Some(session.clone()), statuses: vec![RunStatus::Queued] };
        let page = PageRequest { size: 1_000, after: None };
        let found = self.store().runs(tenant, filter, page).await?;
        Ok(found.rows.into_iter().filter_map(|row| row.queue_no).collect())
    }
}
