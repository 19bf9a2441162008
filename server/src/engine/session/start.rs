//! Starts runs. A request that is repeated with the same id joins the run that the first one started.

use agentloop_core::id::RunKey;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::memory::{RESPONSE_BYTES, RUN_BYTES};
use crate::engine::run::table::Lookup;
use crate::engine::session::request::{OnBusy, StartRequest, StartedRun};
use crate::memory::Charge;
use crate::store::{StartIds, StartView, StoreError};

/// Attempts of a start. Another attempt is made if the session changed between the check and the write. Each change is
/// another request's success, so many requests at a time for one session need many.
pub(in crate::engine) const START_TRIES: u32 = 64;

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
            let view = self.start_view(&request).await?;
            if let Some(id) = &request.run
                && view.is_known
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
            let _memory = self.reserve_for_start(&request)?;
            match self.admit(permit, &request, view).await {
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

    /// Looks up the ids of the request. Without any, it starts a new run in a new session, for which there may be rules alone.
    pub(super) async fn start_view(&self, request: &StartRequest) -> Result<StartView, StoreError> {
        let ids = StartIds { run: request.run.as_ref(), session: request.session.as_ref() };
        if ids == (StartIds { run: None, session: None }) {
            return Ok(StartView { is_known: false, session: None, rules: None });
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
