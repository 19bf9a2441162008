//! A run begins: once per id, however often it is asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::input::{Input, Start};
use agentloop_core::run::machine::Machine;
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::engine::run::table::{Found, StartPermit};
use crate::store::{CreateRun, RunRow, StoreError};

/// How often a start is tried again because its session moved meanwhile.
pub(in crate::engine) const START_TRIES: u32 = 8;

/// What a caller wants to run.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// Whose it is.
    pub tenant: TenantId,
    /// Makes it idempotent; `None`: one is made up.
    pub run: Option<RunId>,
    /// The session to go on with; `None`: a new one.
    pub session: Option<SessionId>,
    /// Whether a session that does not exist is created.
    pub create_session: bool,
    /// How it is to behave.
    pub spec: Arc<RunSpec>,
    /// What enters the session.
    pub messages: Vec<SharedMessage>,
    /// Of everything that was asked for.
    pub digest: Digest,
    /// What to do where the session has a live run or a queue.
    pub on_busy: OnBusy,
    /// The caller's span. A repetition may come with another one: the first counts.
    pub traceparent: Option<TraceParent>,
}

/// What to do where a session has a live run or a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// Refuse.
    #[default]
    Reject,
    /// Wait until all that came before is over.
    Enqueue,
    /// End the live run, and come before those that wait.
    Interrupt,
    /// Hand the messages to the live run.
    Steer,
}

/// The run that there is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Whether it existed before.
    pub joined: bool,
    /// Whether it is another request's run, which was handed this one's messages.
    pub steered: bool,
}

impl Engine {
    /// Starts a run, or joins the one that the same request started before. When this returns, what was asked for is
    /// durable: the run, its place in the queue, or the messages that the live run was handed.
    ///
    /// # Errors
    /// [`EngineError::UnknownPlanner`], [`EngineError::IdReused`], [`EngineError::SessionNotFound`],
    /// [`EngineError::SessionBusy`], [`EngineError::QueueFull`], [`EngineError::TooManyRuns`],
    /// [`EngineError::ShuttingDown`], or the store's.
    pub async fn start(&self, request: StartRequest) -> Result<Started, EngineError> {
        Ok(self.start_with(request, |_| ()).await?.0)
    }

    /// As [`Self::start`], with something that is made at once when the run is there, and dropped if nobody waits for
    /// it any more.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with<T: Send + 'static>(
        &self,
        request: StartRequest,
        then: impl FnOnce(&Started) -> T + Send + 'static,
    ) -> Result<(Started, T), EngineError> {
        self.check_running()?;
        let engine = self.clone();
        let begun = async move {
            let started = engine.start_or_join(request).await?;
            let made = then(&started);
            Ok((started, made))
        };
        self.whole("start", begun).await
    }

    /// The run that the same request started before, or handed its messages to; `None` where it did not come before.
    ///
    /// # Errors
    /// [`EngineError::IdReused`], [`EngineError::ShuttingDown`], or the store's.
    pub async fn join(
        &self,
        tenant: &TenantId,
        run: &RunId,
        digest: &Digest,
        on_busy: OnBusy,
    ) -> Result<Option<Started>, EngineError> {
        self.check_running()?;
        self.known(tenant, run, digest, on_busy).await
    }

    async fn start_or_join(&self, request: StartRequest) -> Result<Started, EngineError> {
        let run = request.run.clone().unwrap_or_else(|| self.deps().ids.run());
        let key = RunKey::new(request.tenant.clone(), run.clone());
        for _ in 0..START_TRIES {
            // With the place in hand, nobody else is about to start, or steer, by this id: a request that comes again
            // finds what the first one led to, however long that took.
            let found = self.0.table.find(&key).await;
            if let Some(id) = &request.run
                && let Some(started) =
                    self.known(&request.tenant, id, &request.digest, request.on_busy).await?
            {
                return Ok(started);
            }
            self.check_planner(&request)?;
            let place = match found {
                // What was there a moment ago is gone.
                Found::Live => continue,
                Found::Vacant(place) => place,
            };
            if self.0.table.len() > self.deps().options.max_live_runs {
                return Err(EngineError::TooManyRuns);
            }
            match self.begin(place, &request).await {
                Err(error @ EngineError::Store(StoreError::Unavailable { .. })) => {
                    // It may be written all the same.
                    self.revive_later(key);
                    return Err(error);
                }
                Err(EngineError::Store(StoreError::SessionMoved | StoreError::RunExists)) => {}
                Err(EngineError::Store(StoreError::SessionBusy { run })) => {
                    if request.on_busy == OnBusy::Reject {
                        return Err(EngineError::SessionBusy { run });
                    }
                }
                Err(EngineError::Store(StoreError::NoSession)) => return Err(EngineError::SessionNotFound),
                other => return other,
            }
        }
        Err(EngineError::Store(StoreError::SessionMoved))
    }

    fn check_planner(&self, request: &StartRequest) -> Result<(), EngineError> {
        match &request.spec.planner {
            Some(name) if !self.deps().extensions.knows_planner(&request.tenant, name) => {
                Err(EngineError::UnknownPlanner { name: name.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The run that a request led to before, if it did.
    async fn known(
        &self,
        tenant: &TenantId,
        id: &RunId,
        digest: &Digest,
        on_busy: OnBusy,
    ) -> Result<Option<Started>, EngineError> {
        if let Some(row) = self.store().run(tenant, id).await? {
            let started = join(row, digest)?;
            if on_busy == OnBusy::Interrupt {
                self.advance_queue_later(tenant, &started.session);
            }
            return Ok(Some(started));
        }
        let Some((run, steered)) = self.store().steered(tenant, id).await? else { return Ok(None) };
        if steered != *digest {
            return Err(EngineError::IdReused);
        }
        let row = self.store().run(tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        Ok(Some(Started { run, session: row.session, joined: true, steered: true }))
    }

    async fn begin(&self, place: StartPermit, request: &StartRequest) -> Result<Started, EngineError> {
        let RunKey { tenant, run } = place.key().clone();
        let session = request.session.clone().unwrap_or_else(|| self.deps().ids.session());
        let way = self.way_in(&tenant, &session, request).await?;
        match (way, request.on_busy) {
            (WayIn::Free(last_entry), _) => {
                // Read once the session is seen to be free, so that no run before this one has more to remember.
                let request = self.with_remembered(&tenant, &session, request).await?;
                self.enter_new(place, &session, last_entry, &request).await?;
            }
            (WayIn::Busy(by) | WayIn::Queue(by), OnBusy::Reject) => {
                return Err(EngineError::SessionBusy { run: by });
            }
            (WayIn::Busy(_) | WayIn::Queue(_), OnBusy::Enqueue | OnBusy::Interrupt) => {
                self.enqueue(place, &session, request).await?;
            }
            (WayIn::Busy(live), OnBusy::Steer) => {
                self.steer(&live, &run, request).await?;
                return Ok(Started { run: live, session, joined: true, steered: true });
            }
            (WayIn::Queue(next), OnBusy::Steer) => {
                // It is about to be the live run.
                self.bring_up(&RunKey::new(tenant, next)).await?;
                return Err(EngineError::Store(StoreError::SessionMoved));
            }
        }
        Ok(Started { run, session, joined: false, steered: false })
    }

    /// Creates a run in a session that is free.
    async fn enter_new(
        &self,
        place: StartPermit,
        session: &SessionId,
        last_entry: EntryNo,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = place.key().clone();
        let _here = self.0.sessions.share(&tenant, session).await;
        let history = match last_entry {
            EntryNo(0) => History::default(),
            last => self.history(&tenant, session, last).await?,
        };
        let mut machine = Machine::new(run.clone());
        let start = start_input(run, session, Some(last_entry), deps.ids.seed(), request);
        let step = machine.handle(start, deps.clock.now()).expect("a new run takes its start");
        let epoch = deps.store.epoch();
        let (mut task, mailbox) = self.assemble(place, machine, epoch, session.clone(), history, &[]);
        task.unwritten = step.records;
        task.write(Some(create(request)), Some(last_entry)).await?;
        task.place.occupy(mailbox);
        self.launch(task, step.effects);
        Ok(())
    }

    /// What was said in a session up to its last entry.
    ///
    /// # Errors
    /// [`StoreError::SessionMoved`] when that is not its last entry any more: it may have been deleted. The store's.
    pub(in crate::engine) async fn history(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last: EntryNo,
    ) -> Result<History, StoreError> {
        let deps = self.deps();
        let history = deps.histories.take(&*deps.store, tenant, session, last).await;
        if let Err(StoreError::Corrupt { .. }) = &history
            && self.store().session(tenant, session).await?.is_none_or(|row| row.last_entry != last)
        {
            return Err(StoreError::SessionMoved);
        }
        history
    }

    /// The request with the rules that were remembered for it. In the journal they hold for the run, whatever becomes
    /// of them meanwhile.
    async fn with_remembered<'r>(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        request: &'r StartRequest,
    ) -> Result<Cow<'r, StartRequest>, EngineError> {
        let remembered = self.remembered(tenant, Some(session)).await?;
        let mut request = Cow::Borrowed(request);
        if !remembered.is_empty() {
            Arc::make_mut(&mut request.to_mut().spec).tool_policy.rules.extend(remembered);
        }
        Ok(request)
    }

    /// Whether the session takes a run now; refuses early what the store would refuse.
    async fn way_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        request: &StartRequest,
    ) -> Result<WayIn, EngineError> {
        if request.session.is_none() {
            return Ok(WayIn::Free(EntryNo(0)));
        }
        let row = match self.store().session(tenant, session).await? {
            Some(row) => row,
            None if request.create_session => return Ok(WayIn::Free(EntryNo(0))),
            None => return Err(EngineError::SessionNotFound),
        };
        if let Some(run) = row.live_run {
            return Ok(WayIn::Busy(run));
        }
        let next = self.store().next_queued(tenant, session).await?;
        Ok(next.map_or(WayIn::Free(row.last_entry), WayIn::Queue))
    }
}

/// How a session stands towards a new run.
enum WayIn {
    /// It is free; its last entry.
    Free(EntryNo),
    /// This is its live run.
    Busy(RunId),
    /// It has no live run, but this one is about to be it.
    Queue(RunId),
}

/// What the machine is told of a new run; without a last entry, it waits for its session.
pub(in crate::engine) fn start_input(
    run: RunId,
    session: &SessionId,
    last_entry: Option<EntryNo>,
    seed: u64,
    request: &StartRequest,
) -> Input {
    Input::Start(Box::new(Start {
        run,
        session: session.clone(),
        last_entry: last_entry.unwrap_or(EntryNo(0)),
        spec: request.spec.clone(),
        seed,
        messages: request.messages.clone(),
        queued: last_entry.is_none(),
        traceparent: request.traceparent,
    }))
}

pub(in crate::engine) fn create(request: &StartRequest) -> CreateRun {
    let labels: BTreeMap<String, String> = request.spec.labels.clone();
    CreateRun {
        request_digest: request.digest.clone(),
        create_session: request.create_session || request.session.is_none(),
        made_ids: request.run.is_none() && request.session.is_none(),
        agent: request.spec.agent.clone(),
        model: request.spec.model.clone(),
        labels,
        interrupts: request.on_busy == OnBusy::Interrupt,
    }
}

fn join(row: RunRow, digest: &Digest) -> Result<Started, EngineError> {
    if row.request_digest == *digest {
        Ok(Started { run: row.run, session: row.session, joined: true, steered: false })
    } else {
        Err(EngineError::IdReused)
    }
}
