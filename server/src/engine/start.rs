//! A run begins: once per id, however often it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::message::SharedMessage;
use agentloop_core::run::input::{Input, Start};
use agentloop_core::run::machine::Machine;
use agentloop_core::tool::Digest;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::executing::Executing;
use crate::engine::history::History;
use crate::engine::run_task::RunTask;
use crate::engine::table::{Found, Mailbox, Vacancy};
use crate::store::{CreateRun, RunRow, StoreError};

/// How often a start is tried again because its session moved meanwhile.
const START_TRIES: u32 = 8;

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
}

impl Engine {
    /// Starts a run, or joins the one that the same request started before. When this returns, the run is durable.
    ///
    /// # Errors
    /// [`EngineError::UnknownPlanner`], [`EngineError::IdReused`], [`EngineError::SessionNotFound`], [`EngineError::SessionBusy`],
    /// [`EngineError::TooManyRuns`], [`EngineError::ShuttingDown`], or the store's.
    pub async fn start(&self, request: StartRequest) -> Result<Started, EngineError> {
        self.check_running()?;
        let run = request.run.clone().unwrap_or_else(|| self.deps().ids.run());
        let key = (request.tenant.clone(), run.clone());
        for _ in 0..START_TRIES {
            if request.run.is_some()
                && let Some(row) = self.store().run(&request.tenant, &run).await?
            {
                return join(row, &request);
            }
            self.check_planner(&request)?;
            let place = match self.0.table.find(&key).await {
                // Someone was faster; what they started is in the store.
                Found::Live => continue,
                Found::Vacant(place) => place,
            };
            if self.0.table.len() > self.deps().options.max_live_runs {
                return Err(EngineError::TooManyRuns);
            }
            match self.begin(place, &request).await {
                Err(EngineError::Store(StoreError::SessionMoved | StoreError::RunExists)) => {}
                Err(EngineError::Store(StoreError::SessionBusy { run })) => {
                    return Err(EngineError::SessionBusy { run });
                }
                Err(EngineError::Store(StoreError::NoSession)) => return Err(EngineError::SessionNotFound),
                Err(error) => return Err(error),
                Ok(session) => return Ok(Started { run, session, joined: false }),
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

    async fn begin(&self, place: Vacancy, request: &StartRequest) -> Result<SessionId, EngineError> {
        let deps = self.deps();
        let (tenant, run) = place.key().clone();
        let session = request.session.clone().unwrap_or_else(|| deps.ids.session());
        let last_entry = self.session_end(&tenant, &session, request).await?;
        let history = match last_entry {
            EntryNo(0) => History::default(),
            last => deps.histories.take(&*deps.store, &tenant, &session, last).await?,
        };
        let mut machine = Machine::new(run.clone());
        let start = Start {
            run,
            session: session.clone(),
            last_entry,
            spec: request.spec.clone(),
            seed: deps.ids.seed(),
            messages: request.messages.clone(),
        };
        let step = machine
            .handle(Input::Start(Box::new(start)), deps.clock.now())
            .expect("a new run takes its start");
        let (mailbox, receiver) = Mailbox::new();
        let mut task = RunTask {
            feed: deps.feeds.of(place.key(), deps.options.subscriber_buffer),
            deps: deps.clone(),
            wake: self.wake().clone(),
            place,
            machine,
            epoch: deps.store.epoch(),
            session: session.clone(),
            history,
            mailbox: receiver,
            steppers: Vec::new(),
            executing: Executing::default(),
            speaking: None,
            unwritten: step.records,
            write_by: None,
        };
        task.write(Some(create(request)), Some(last_entry)).await?;
        task.place.occupy(mailbox);
        self.launch(task, step.effects);
        Ok(session)
    }

    /// The session's last entry; refuses early what the store would refuse.
    async fn session_end(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        request: &StartRequest,
    ) -> Result<EntryNo, EngineError> {
        if request.session.is_none() {
            return Ok(EntryNo(0));
        }
        match self.store().session(tenant, session).await? {
            Some(row) => match row.live_run {
                Some(run) => Err(EngineError::SessionBusy { run }),
                None => Ok(row.last_entry),
            },
            None if request.create_session => Ok(EntryNo(0)),
            None => Err(EngineError::SessionNotFound),
        }
    }
}

fn create(request: &StartRequest) -> CreateRun {
    let labels: BTreeMap<String, String> = request.spec.labels.clone();
    CreateRun {
        request_digest: request.digest.clone(),
        create_session: request.create_session || request.session.is_none(),
        agent: request.spec.agent.clone(),
        model: request.spec.model.clone(),
        labels,
    }
}

fn join(row: RunRow, request: &StartRequest) -> Result<Started, EngineError> {
    if row.request_digest == request.digest {
        Ok(Started { run: row.run, session: row.session, joined: true })
    } else {
        Err(EngineError::IdReused)
    }
}
