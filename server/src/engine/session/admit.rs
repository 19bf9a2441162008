//! Admits a new run to its session: at once, to the queue, or as messages for the live run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::{RunSpec, ToolChoice};
use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::input::{Input, NotOffered};

use crate::audit::{self, OTHERS_SESSION};
use crate::auth::UsePermit;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::run::new_task::NewRun;
use crate::engine::run::table::{LiveRunsBound, StartPermit};
use crate::engine::run::task::RunWrite;
use crate::engine::session::first_input::{FirstInput, create_run, log_unknown_tools};
use crate::engine::session::request::{Author, OnBusy, StartRequest, StartedRun};
use crate::store::{NewSession, RuleRow, SessionToEnter, StartView, StoreError};

impl Engine {
    /// Admits a request whose run does not exist yet.
    pub(super) async fn admit(
        &self,
        permit: StartPermit,
        request: &StartRequest,
        view: StartView,
    ) -> Result<StartedRun, EngineError> {
        let RunKey { tenant, run } = permit.key().clone();
        let session = request.session.clone().unwrap_or_else(|| self.new_session_id(&tenant));
        let author = request.author.name.as_deref();
        // A session that is made with the run counts, too.
        let _new_session = match request.create_session || request.session.is_none() {
            true => Some(self.reserve_session(&tenant, author, &session).await?),
            false => None,
        };
        // Quotas may have waited for a sum. By now somebody may have remembered a rule, or made the session.
        let view = if self.quotas().is_some() { self.start_view(request).await? } else { view };
        let is_blind = view.is_blind;
        let session_state = session_state(view.session, request)?;
        match (session_state, request.on_busy) {
            (SessionState::Free(last_entry), _) if request.imports => {
                let last_entry =
                    self.create_if_missing(&tenant, &session, last_entry, &request.author).await?;
                let place = FreePlace { session: &session, last_entry, is_blind };
                self.import(permit, place, request).await?;
            }
            (SessionState::Free(last_entry), _) => {
                // The others add no live run: they queue one, or hand messages to one.
                let options = &self.deps().options;
                let bound =
                    LiveRunsBound { max: options.max_live_runs, leaves_places: options.tenants_leave_places };
                permit.try_take_place(bound)?;
                let use_permit = self.deps().quotas.hold_run(&tenant, author)?;
                // These are read with the session, which was free, or after it: no earlier run can add one any more.
                let rules = match view.rules {
                    Some(rules) => rules,
                    None => self.store().rules_for_run(&tenant, &session).await?,
                };
                let request = with_remembered_rules(request, rules);
                self.check_tool_choice(&tenant, &request.spec)?;
                // Last: a run that is refused leaves no session behind.
                let last_entry =
                    self.create_if_missing(&tenant, &session, last_entry, &request.author).await?;
                let place = FreePlace { session: &session, last_entry, is_blind };
                self.enter_new(permit, use_permit, place, &request).await?;
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

    /// Creates a run in a free session and starts its task.
    async fn enter_new(
        &self,
        permit: StartPermit,
        use_permit: Option<UsePermit>,
        place: FreePlace<'_>,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let FreePlace { session, last_entry, .. } = place;
        let RunKey { tenant, run } = permit.key().clone();
        let _lock = self.0.session_locks.shared(&tenant, session).await;
        let (seed, not_offered) =
            (self.deps().ids.seed(), self.tools().not_offered(&request.tenant, &request.spec));
        let unknown = not_offered.unknown.clone();
        let first = FirstInput {
            run: run.clone(),
            session,
            last_entry: Some(last_entry),
            seed,
            request,
            not_offered,
        };
        let input = Input::Start(Box::new(first.start()));
        let NewRun { mut task, mailbox, effects } = self.write_to_free(permit, place, request, input).await?;
        log_unknown_tools(&run, request, &unknown);
        task.use_permit = use_permit;
        task.permit.set_live(mailbox);
        self.launch(task, effects);
        Ok(())
    }

    /// Creates a run in a free session that adds its messages and ends, in one write.
    async fn import(
        &self,
        permit: StartPermit,
        place: FreePlace<'_>,
        request: &StartRequest,
    ) -> Result<(), EngineError> {
        let FreePlace { session, last_entry, .. } = place;
        let RunKey { tenant, run } = permit.key().clone();
        let _lock = self.0.session_locks.shared(&tenant, session).await;
        let (seed, not_offered) = (self.deps().ids.seed(), NotOffered::default());
        let first = FirstInput { run, session, last_entry: Some(last_entry), seed, request, not_offered };
        let input = Input::Import(Box::new(first.start()));
        let _new_run = self.write_to_free(permit, place, request, input).await?;
        self.advance_queue_later(&tenant, session);
        Ok(())
    }

    /// Writes a new run to a free session, with its first input. Call this with the lock of the session.
    async fn write_to_free(
        &self,
        permit: StartPermit,
        FreePlace { session, last_entry, is_blind }: FreePlace<'_>,
        request: &StartRequest,
        input: Input,
    ) -> Result<NewRun, StoreError> {
        let history = self.history_before(&permit.key().tenant, session, last_entry).await?;
        let write = RunWrite::Start(create_run(request, is_blind), last_entry);
        self.write_new_run(permit, session, history, input, write).await
    }

    /// The last entry of a free session. A session that does not exist is created before the run, and not by the run's write.
    /// That write does not look at owners, and somebody else may have created the session in between.
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

/// The place of a new run in a free session.
#[derive(Clone, Copy)]
struct FreePlace<'a> {
    session: &'a SessionId,
    last_entry: EntryNo,
    /// True if nobody has looked whether the run is new.
    is_blind: bool,
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

/// The request with remembered rules added to its spec. The run's journal then has them: rules that are deleted later still
/// hold for this run.
fn with_remembered_rules(request: &StartRequest, rules: Vec<RuleRow>) -> Cow<'_, StartRequest> {
    let mut request = Cow::Borrowed(request);
    if !rules.is_empty() {
        let remembered = rules.into_iter().map(|row| row.rule);
        Arc::make_mut(&mut request.to_mut().spec).tool_policy.rules.extend(remembered);
    }
    request
}

/// The state of the session for a new run. The store checks it again at the write.
fn session_state(found: Option<SessionToEnter>, request: &StartRequest) -> Result<SessionState, EngineError> {
    let found = match found {
        _ if request.session.is_none() => return Ok(SessionState::Free(Some(EntryNo(0)))),
        Some(found) if !request.author.may_use(found.created_by.as_deref()) => {
            audit::denied(OTHERS_SESSION);
            return Err(EngineError::SessionNotFound);
        }
        Some(found) => found,
        None if request.create_session && request.author.only_own => return Ok(SessionState::Free(None)),
        None if request.create_session => return Ok(SessionState::Free(Some(EntryNo(0)))),
        None => return Err(EngineError::SessionNotFound),
    };
    Ok(match (found.live_run, found.next_queued) {
        (Some(live), _) => SessionState::Busy(live),
        (None, Some(next)) => SessionState::Queued(next),
        (None, None) => SessionState::Free(Some(found.last_entry)),
    })
}
