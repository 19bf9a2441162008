//! Starts runs. A request that is repeated with the same id joins the run that the first one started.

use std::time::Duration;

use agentloop_core::id::RunKey;
use tokio::time::timeout;

use crate::audit;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::memory::{RESPONSE_BYTES, RUN_BYTES};
use crate::engine::run::table::{Lookup, StartPermit};
use crate::engine::session::join::Earlier;
use crate::engine::session::request::{OnBusy, StartRequest, StartedRun};
use crate::memory::Charge;
use crate::store::{StartIds, StartView, StoreError};

/// Attempts of a start. Another attempt is made if the session changed between the check and the write. Each change is
/// another request's success, so many requests at a time for one session need many.
pub(in crate::engine) const START_TRIES: u32 = 64;

/// Longest look for a run of the same id after a write has failed.
const LAST_LOOK: Duration = Duration::from_secs(1);

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
        for attempt in 0..START_TRIES {
            let began = self.now();
            // While this holds the permit, no other request can start or steer with this id. So a repetition sees the
            // result of the first request, however long that takes.
            let found = self.0.live_runs.find(&key).await;
            // After that: an earlier request with the id may have used a feature that the store looks for.
            let blind = match (&found, attempt) {
                (Lookup::NotLive(_), 0) => self.blind_start(&request),
                _ => None,
            };
            let view = match blind {
                Some(view) => view,
                None => {
                    let view = self.start_view(&request).await?;
                    if may_make_session(&request) && !view.is_known {
                        self.0.new_sessions.note(view.session.is_none());
                    }
                    view
                }
            };
            let is_blind = view.is_blind;
            if view.is_known
                && let Some(earlier) = self.find_known(&request).await?
            {
                return Ok(earlier.join());
            }
            let permit = match found {
                // The live run was deleted with its session a moment ago.
                Lookup::Live => continue,
                Lookup::NotLive(permit) => permit,
            };
            let error = match self.start_new(permit, &request, view).await {
                Err(EngineError::Store(StoreError::SessionMoved | StoreError::RunExists)) => continue,
                Err(EngineError::Store(StoreError::SessionBusy { run })) => match request.on_busy {
                    OnBusy::Reject => return Err(EngineError::SessionBusy { run }),
                    OnBusy::Enqueue | OnBusy::Interrupt | OnBusy::Steer => continue,
                },
                Err(EngineError::Store(StoreError::NoSession)) => return Err(EngineError::SessionNotFound),
                Err(error) => error,
                Ok(started) => return Ok(started),
            };
            let is_unheard = matches!(error, EngineError::Store(StoreError::Unavailable { .. }));
            if is_unheard {
                // The write may have reached the store. The retry starts the run then.
                self.retry_later(key);
            } else if is_blind && request.session.is_some() {
                // Messages for a session that is there may need no place.
                continue;
            }
            // A run that is there may be joined all the same. One that has begun since then is that of the write. It may be
            // seen already, and be lost again: with a file that was moved, or to a standby that did not get it.
            let known = if is_blind { self.look_at_last(&request).await? } else { None };
            let known = known.filter(|earlier| !is_unheard || earlier.row.created_at < began);
            return known.map(Earlier::join).ok_or(error);
        }
        Err(EngineError::Store(StoreError::SessionMoved))
    }

    /// The run that an earlier request with the same id started or steered.
    async fn find_known(&self, request: &StartRequest) -> Result<Option<Earlier>, EngineError> {
        let StartRequest { tenant, digest, on_busy, author, .. } = request;
        match &request.run {
            Some(id) => self.find_started(tenant, id, digest, *on_busy, author).await,
            None => Ok(None),
        }
    }

    /// The run that a request with the same id started or steered, after this one has failed. Its error tells more than a
    /// second failure of the store.
    async fn look_at_last(&self, request: &StartRequest) -> Result<Option<Earlier>, EngineError> {
        let look = async {
            let view = self.start_view(request).await?;
            if view.is_known { self.find_known(request).await } else { Ok(None) }
        };
        match timeout(LAST_LOOK, look).await {
            Ok(Err(EngineError::Store(StoreError::Unavailable { .. }))) | Err(_) => Ok(None),
            Ok(found) => found,
        }
    }

    async fn start_new(
        &self,
        permit: StartPermit,
        request: &StartRequest,
        view: StartView,
    ) -> Result<StartedRun, EngineError> {
        self.check_planner(request)?;
        let author = request.author.name.as_deref();
        self.check_work(&request.tenant, author).await?;
        let _memory = self.reserve_for_start(request)?;
        self.admit(permit, request, view).await
    }

    /// The view of a request whose run and session are most likely new, if the store needs no look. So it is where only the run has
    /// an id of the caller's, nearly always; where the session has one, if the last one was new.
    fn blind_start(&self, request: &StartRequest) -> Option<StartView> {
        let is_likely_new = match &request.session {
            None => request.run.is_some() && !request.imports,
            Some(_) => may_make_session(request) && self.0.new_sessions.are_likely(),
        };
        // Quotas count what they refuse, and are not asked about a run that is there. A refused write that has a row for the
        // audit log is a commit. While the store fails, a look fails at once, and nothing is left that has to be tried again.
        let costs_nothing = self.quotas().is_none()
            && audit::unrecorded().is_none()
            && self.deps().failures.retries.len() == 0;
        (is_likely_new && costs_nothing).then(|| self.store().blind_start(&request.tenant)).flatten()
    }

    /// Looks up the ids of the request. Without any, it starts a new run in a new session, for which there may be rules alone.
    pub(super) async fn start_view(&self, request: &StartRequest) -> Result<StartView, StoreError> {
        let ids = StartIds { run: request.run.as_ref(), session: request.session.as_ref() };
        if ids == (StartIds { run: None, session: None }) {
            return Ok(StartView { is_blind: false, is_known: false, session: None, rules: None });
        }
        self.store().start_view(&request.tenant, ids).await
    }

    /// Memory for the request's messages and what is made of them, until the run has been started and holds them itself.
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
}

/// True if the write of the run may make the session that the request names. That of a caller who may use no other is created
/// before.
fn may_make_session(request: &StartRequest) -> bool {
    request.session.is_some() && request.create_session && !request.author.only_own && !request.imports
}
