//! Starts runs. A request that is repeated with the same id joins the run that the first one started.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{RunSpec, ToolChoice};
use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::message::{SharedMessage, preview};
use agentloop_core::run::input::{Input, NotOffered, Start};
use agentloop_core::tool::Digest;
use agentloop_core::trace::TraceParent;

use crate::audit::{self, OTHERS_SESSION};
use crate::auth::UsePermit;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::history::History;
use crate::engine::memory::{RESPONSE_BYTES, RUN_BYTES};
use crate::engine::run::new_task::NewRun;
use crate::engine::run::table::{LiveRunsBound, Lookup, StartPermit};
use crate::engine::run::task::RunWrite;
use crate::memory::Charge;
use crate::store::{CreateRun, NewSession, StoreError};

/// Unknown tool names that one line of the log has.
const UNKNOWN_TOOLS_LOGGED_MAX: usize = 20;

/// Attempts of a start. Another attempt is made if the session changed between the check and the write. Each change is
/// another request's success, so many requests at a time for one session need many.
pub(in crate::engine) const START_TRIES: u32 = 64;

/// A request to start a run, or to hand messages to a live one.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// The tenant that owns the run.
    pub tenant: TenantId,
    /// The run's id, which makes the request idempotent. `None`: the engine makes one.
    pub run: Option<RunId>,
    /// The session to continue. `None`: a new one.
    pub session: Option<SessionId>,
    /// True to create the session if it does not exist.
    pub create_session: bool,
    /// The run's model, prompt, tools and limits.
    pub spec: Arc<RunSpec>,
    /// The caller's messages. They are added to the session.
    pub messages: Vec<SharedMessage>,
    /// Digest of the whole request. A repetition with another digest is [`EngineError::IdReused`].
    pub digest: Digest,
    /// The caller that asks for the run.
    pub author: Author,
    /// The choice for a session that has a live run or a queue.
    pub on_busy: OnBusy,
    /// The caller's span. A repetition may carry another one; the first is used.
    pub traceparent: Option<TraceParent>,
    /// True if the messages are a conversation that was held elsewhere: they enter the session, and the run ends.
    pub imports: bool,
}

/// The caller that asks to start a run. By default nobody who was asked who they are: then every session may be entered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// Name that new runs and sessions are recorded with.
    pub name: Option<String>,
    /// Groups that a new run is recorded with. The hosts of its calls are told.
    pub groups: Vec<String>,
    /// True if only runs and sessions with this name may be joined and entered; others are as if they were not there.
    pub only_own: bool,
}

impl Author {
    /// True if the author may use what this caller created.
    #[must_use]
    pub fn may_use(&self, created_by: Option<&str>) -> bool {
        !self.only_own || (created_by.is_some() && created_by == self.name.as_deref())
    }
}

/// The choice for a start in a session that has a live run or a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnBusy {
    /// Refuse the start, with [`EngineError::SessionBusy`].
    #[default]
    Reject,
    /// Queue the run behind all earlier ones.
    Enqueue,
    /// Abort the live run, and queue the run before all others.
    Interrupt,
    /// Hand the messages to the live run.
    Steer,
}

/// The run that a request led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedRun {
    /// The new run, or the one that was joined.
    pub run: RunId,
    /// The session of that run.
    pub session: SessionId,
    /// True if the run existed before this request.
    pub joined: bool,
    /// True if the messages were handed to another request's live run.
    pub steered: bool,
}

impl Engine {
    /// Starts a run, or joins the one that the same request started before. When this returns, the result is durable:
    /// the run, its position in the queue, or the messages that were handed to the live run.
    ///
    /// # Errors
    /// [`EngineError::UnknownPlanner`], [`EngineError::IdReused`], [`EngineError::SessionNotFound`],
    /// [`EngineError::SessionBusy`], [`EngineError::QueueFull`], [`EngineError::TooManyRuns`], [`EngineError::TooManyRunsOfTenant`],
    /// [`EngineError::QuotaExceeded`], [`EngineError::MemoryExhausted`], [`EngineError::RequestTooLarge`],
    /// [`EngineError::ShuttingDown`], or the store's.
    pub async fn start(&self, request: StartRequest) -> Result<StartedRun, EngineError> {
        Ok(self.start_with(request, |_| ()).await?.0)
    }

    /// As [`Self::start`]. Calls `then` as soon as the run exists, even if the caller has stopped waiting. Its output is
    /// then dropped.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with<T: Send + 'static>(
        &self,
        request: StartRequest,
        then: impl FnOnce(&StartedRun) -> T + Send + 'static,
    ) -> Result<(StartedRun, T), EngineError> {
        self.check_running()?;
        let engine = self.clone();
        let begun = async move {
            let started = engine.start_or_join(request).await?;
            let made = then(&started);
            Ok((started, made))
        };
        self.run_detached("start", Box::pin(begun)).await
    }

    async fn start_or_join(&self, request: StartRequest) -> Result<StartedRun, EngineError> {
        let run = request.run.clone().unwrap_or_else(|| self.deps().ids.run());
        let key = RunKey::new(request.tenant.clone(), run.clone());
        for _ in 0..START_TRIES {
            // While this holds the permit, no other request can start or steer with this id. So a repetition sees the
            // result of the first request, however long that takes.
            let found = self.0.live_runs.find(&key).await;
            if let Some(id) = &request.run
                && let Some(started) = self
                    .find_started(&request.tenant, id, &request.digest, request.on_busy, &request.author)
                    .await?
            {
                return Ok(started);
            }
            self.check_planner(&request)?;
            let permit = match found {
                // The live run was deleted with its session a moment ago.
                Lookup::Live => continue,
                Lookup::NotLive(permit) => permit,
            };
            let author = request.author.name.as_deref();
            self.check_work(&request.tenant, author).await?;
            let _room = self.reserve_for_start(&request)?;
            match self.admit(permit, &request).await {
                Err(error @ EngineError::Store(StoreError::Unavailable { .. })) => {
                    // The write may have reached the store. The retry starts the run then.
                    self.retry_later(key);
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

    /// Room for the request's messages and what is made of them, until the run has been started and holds them itself.
    fn reserve_for_start(&self, request: &StartRequest) -> Result<Charge, EngineError> {
        let messages: usize = request.messages.iter().map(|message| message.size()).sum();
        // Each message is in the history and in the request to the model.
        let bytes = RUN_BYTES + RESPONSE_BYTES + request.spec.system_prompt.len() + 2 * messages;
        let deps = self.deps();
        let max = deps.ledger().bytes_max();
        if bytes > max {
            return Err(EngineError::RequestTooLarge { bytes, max });
        }
        deps.try_reserve(&request.tenant, bytes).ok_or(EngineError::MemoryExhausted)
    }

    fn check_planner(&self, request: &StartRequest) -> Result<(), EngineError> {
        match &request.spec.planner {
            Some(name) if !self.deps().extensions.knows_planner(&request.tenant, name) => {
                Err(EngineError::UnknownPlanner { name: name.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a request that demands calls of a tool which its run is not offered.
    ///
    /// # Errors
    /// [`EngineError::ToolNotOffered`], [`EngineError::NoToolOffered`]
    pub fn check_tool_choice(&self, tenant: &TenantId, spec: &RunSpec) -> Result<(), EngineError> {
        match &spec.options.tool_choice {
            Some(ToolChoice::Named(name)) if !self.tools().offered(tenant, spec).has(name) => {
                Err(EngineError::ToolNotOffered { name: name.clone() })
            }
            Some(ToolChoice::Required) if self.tools().offered(tenant, spec).tools.is_empty() => {
                Err(EngineError::NoToolOffered)
            }
            _ => Ok(()),
        }
    }

    async fn admit(&self, permit: StartPermit, request: &StartRequest) -> Result<StartedRun, EngineError> {
        let RunKey { tenant, run } = permit.key().clone();
        let session = request.session.clone().unwrap_or_else(|| self.new_session_id(&tenant));
        let author = request.author.name.as_deref();
        // A session that is made with the run counts, too.
        let _new_session = match request.create_session || request.session.is_none() {
            true => Some(self.room_for_session(&tenant, author, &session).await?),
            false => None,
        };
        let session_state = self.session_state(&tenant, &session, request).await?;
        match (session_state, request.on_busy) {
            (SessionState::Free(last_entry), _) if request.imports => {
                let last_entry =
                    self.create_if_missing(&tenant, &session, last_entry, &request.author).await?;
                self.import(permit, &session, last_entry, request).await?;
            }
            (SessionState::Free(last_entry), _) => {
                // The others add no live run: they queue one, or hand messages to one.
                let options = &self.deps().options;
                let bound =
                    LiveRunsBound { max: options.max_live_runs, leaves_room: options.tenants_leave_room };
                permit.try_admit(bound)?;
                let use_permit = self.deps().quotas.hold_run(&tenant, author)?;
                // Rules are read after the session was seen free: no earlier run can add one any more.
                let request = self.with_remembered_rules(&tenant, &session, request).await?;
                self.check_tool_choice(&tenant, &request.spec)?;
                // Last: a run that is refused leaves no session behind.
                let last_entry =
                    self.create_if_missing(&tenant, &session, last_entry, &request.author).await?;
                self.enter_new(permit, use_permit, &session, last_entry, &request).await?;
            }
            (SessionState::Busy(by) | SessionState::Queued(by), OnBusy::Reject) => {
                return Err(EngineError::SessionBusy { run: by });
            }
            (SessionState::Busy(_) | SessionState::Queued(_), OnBusy::Enqueue | OnBusy::Interrupt) => {
                self.enqueue(permit, &session, request).await?;
            }
            (SessionState::Busy(live), OnBusy::Steer) => {
                self.steer(&live, &run, request).await?;
                return Ok(StartedRun { run: live, session, joined: true, steered: true });
            }
            (SessionState::Queued(next), OnBusy::Steer) => {
                // Start the run that is about to be the live one; the next attempt steers it.
                self.ensure_live(&RunKey::new(tenant, next)).await?;
                return Err(EngineError::Store(StoreError::SessionMoved));
            }
        }
        Ok(StartedRun { run, session, joined: false, steered: false })
    }

    /// Creates a run in a free session and starts its task.
    async fn enter_new(
        &self,
        permit: StartPermit,
        use_permit: Option<UsePermit>,
        session: &SessionId,
        last_entry: EntryNo,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = permit.key().clone();
        let _lock = self.0.session_locks.shared(&tenant, session).await;
        let history = self.history_before(&tenant, session, last_entry).await?;
        let (seed, not_offered) = (deps.ids.seed(), self.not_offered(&run, request));
        let first = FirstInput { run, session, last_entry: Some(last_entry), seed, request, not_offered };
        let input = Input::Start(Box::new(first.start()));
        let write = RunWrite::Start(create_run(request), last_entry);
        let NewRun { mut task, mailbox, effects } =
            self.write_new_run(permit, session, history, input, write).await?;
        task.use_permit = use_permit;
        task.permit.set_live(mailbox);
        self.launch(task, effects);
        Ok(())
    }

    /// The tools that a new run is not offered. Names that nobody has declared are probably misspelt, so they are logged.
    pub(in crate::engine) fn not_offered(&self, run: &RunId, request: &StartRequest) -> NotOffered {
        let not_offered = self.tools().not_offered(&request.tenant, &request.spec);
        let unknown = &not_offered.unknown;
        if !unknown.is_empty() {
            let shown: Vec<&str> =
                unknown.iter().map(String::as_str).take(UNKNOWN_TOOLS_LOGGED_MAX).collect();
            tracing::warn!(
                run.id = %run, agent = request.spec.agent, tools = ?shown, count = unknown.len(),
                "allowed_tools or tool_order names tools that no host has declared; check their spelling, or connect their host"
            );
        }
        not_offered
    }

    /// Creates a run in a free session that adds its messages and ends, in one write.
    async fn import(
        &self,
        permit: StartPermit,
        session: &SessionId,
        last_entry: EntryNo,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let deps = self.deps();
        let RunKey { tenant, run } = permit.key().clone();
        let _lock = self.0.session_locks.shared(&tenant, session).await;
        let history = self.history_before(&tenant, session, last_entry).await?;
        let (seed, not_offered) = (deps.ids.seed(), NotOffered::default());
        let first = FirstInput { run, session, last_entry: Some(last_entry), seed, request, not_offered };
        let input = Input::Import(Box::new(first.start()));
        let write = RunWrite::Start(create_run(request), last_entry);
        let _new_run = self.write_new_run(permit, session, history, input, write).await?;
        self.advance_queue_later(&tenant, session);
        Ok(())
    }

    /// The history that a new run begins with: empty in a session without entries, for which nothing is read.
    async fn history_before(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last: EntryNo,
    ) -> Result<History, StoreError> {
        match last {
            EntryNo(0) => Ok(History::new(&self.deps().histories.memory().of(tenant))),
            last => self.history(tenant, session, last).await,
        }
    }

    /// The session's history up to its last entry, from the cache or the store.
    ///
    /// # Errors
    /// [`StoreError::SessionMoved`] if the session has another last entry by now, or was deleted; the store's.
    pub(in crate::engine) async fn history(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last: EntryNo,
    ) -> Result<History, StoreError> {
        let deps = self.deps();
        let history = deps.histories.take(&*deps.store, tenant, session, last).await;
        if history.as_ref().is_err_and(StoreError::is_damage)
            && self.store().session(tenant, session).await?.is_none_or(|row| row.last_entry != last)
        {
            return Err(StoreError::SessionMoved);
        }
        history
    }

    /// The request with the remembered rules added to its spec. The run's journal then has them: rules that are deleted
    /// later still hold for this run.
    async fn with_remembered_rules<'r>(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        request: &'r StartRequest,
    ) -> Result<Cow<'r, StartRequest>, EngineError> {
        let remembered = self.remembered_rules(tenant, Some(session)).await?;
        let mut request = Cow::Borrowed(request);
        if !remembered.is_empty() {
            Arc::make_mut(&mut request.to_mut().spec).tool_policy.rules.extend(remembered);
        }
        Ok(request)
    }

    /// The state of the session for a new run. The store checks it again at the write.
    async fn session_state(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        request: &StartRequest,
    ) -> Result<SessionState, EngineError> {
        if request.session.is_none() {
            return Ok(SessionState::Free(Some(EntryNo(0))));
        }
        let row = match self.store().session(tenant, session).await? {
            Some(row) if !request.author.may_use(row.created_by.as_deref()) => {
                audit::denied(OTHERS_SESSION);
                return Err(EngineError::SessionNotFound);
            }
            Some(row) => row,
            None if request.create_session && request.author.only_own => {
                return Ok(SessionState::Free(None));
            }
            None if request.create_session => return Ok(SessionState::Free(Some(EntryNo(0)))),
            None => return Err(EngineError::SessionNotFound),
        };
        if let Some(run) = row.live_run {
            return Ok(SessionState::Busy(run));
        }
        let next = self.store().next_queued(tenant, session).await?;
        Ok(next.map_or(SessionState::Free(Some(row.last_entry)), SessionState::Queued))
    }

    /// The last entry of a free session. One without is created before the run: the write of a run does not look at owners, and
    /// between the look at a session that is not there and that write, somebody else may create it.
    async fn create_if_missing(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last_entry: Option<EntryNo>,
        author: &Author,
    ) -> Result<EntryNo, EngineError> {
        if let Some(last_entry) = last_entry {
            return Ok(last_entry);
        }
        let new = NewSession {
            tenant: tenant.clone(),
            session: session.clone(),
            title: String::new(),
            labels: BTreeMap::new(),
            created_at: self.now(),
            created_by: author.name.clone(),
        };
        match self.store().create_session(new).await {
            Ok(row) if author.may_use(row.created_by.as_deref()) => Ok(row.last_entry),
            Ok(_) | Err(StoreError::SessionExists) => Err(EngineError::SessionNotFound),
            Err(error) => Err(error.into()),
        }
    }
}

/// The state of a session for a new run.
enum SessionState {
    /// The session is free. This is its last entry; `None` if it is still to be created for its caller.
    Free(Option<EntryNo>),
    /// The session has this live run.
    Busy(RunId),
    /// The session has no live run, and this queued run is the next.
    Queued(RunId),
}

/// The first input of a new run.
pub(in crate::engine) struct FirstInput<'a> {
    pub(in crate::engine) run: RunId,
    pub(in crate::engine) session: &'a SessionId,
    /// The last entry of the session. `None` if the run is queued.
    pub(in crate::engine) last_entry: Option<EntryNo>,
    pub(in crate::engine) seed: u64,
    pub(in crate::engine) request: &'a StartRequest,
    pub(in crate::engine) not_offered: NotOffered,
}

impl FirstInput<'_> {
    /// The content of the input.
    pub(in crate::engine) fn start(self) -> Start {
        let Self { run, session, last_entry, seed, request, not_offered } = self;
        Start {
            run,
            session: session.clone(),
            last_entry: last_entry.unwrap_or(EntryNo(0)),
            spec: request.spec.clone(),
            seed,
            messages: request.messages.clone(),
            queued: last_entry.is_none(),
            traceparent: request.traceparent,
            caller_groups: request.author.groups.clone(),
            not_offered,
        }
    }
}

/// The columns of a new run's row.
pub(in crate::engine) fn create_run(request: &StartRequest) -> CreateRun {
    let labels: BTreeMap<String, String> = request.spec.labels.clone();
    CreateRun {
        request_digest: request.digest.clone(),
        create_session: request.create_session || request.session.is_none(),
        made_ids: request.run.is_none() && request.session.is_none(),
        agent: request.spec.agent.clone(),
        model: request.spec.model.clone(),
        labels,
        preview: preview(request.messages.iter().map(|message| &**message)),
        created_by: request.author.name.clone(),
        interrupts: request.on_busy == OnBusy::Interrupt,
    }
}
