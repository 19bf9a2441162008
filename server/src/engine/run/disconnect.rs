//! Runs that end with their caller, because their request says so. After a restart of the server, or a failure of its
//! store, such a run may come up without a caller. Then it is aborted unless somebody comes back for it in time.

use agentloop_core::id::{RunId, RunKey, TenantId};
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::state::RunState;

use crate::engine::Engine;
use crate::engine::feed::CallerGuard;

impl Engine {
    /// Aborts a run that has come up without a caller, if its request said so and nobody comes back for it in time.
    pub(in crate::engine) fn await_caller(&self, key: &RunKey, state: &RunState) {
        if !ends_with_its_caller(state) || self.deps().callers.has_any(key) {
            return;
        }
        let (engine, key) = (self.clone(), key.clone());
        drop(self.deps().tasks.spawn("caller", engine.abort_if_nobody_comes(key)));
    }

    /// Counts an RPC that waits for the run, or streams it, until the guard is dropped. As long as there is one, no other RPC's
    /// disconnect aborts the run.
    #[must_use]
    pub(crate) fn enter_rpc(&self, tenant: TenantId, run: RunId) -> CallerGuard {
        self.deps().waiting_rpcs.enter(RunKey::new(tenant, run))
    }

    /// Aborts a run because the caller of the last RPC has left: that of this guard. If there are others, nothing happens. If
    /// `is_lost` says that only the connection is lost, somebody may come back for the run within `caller_grace`.
    pub(crate) fn caller_left(
        self,
        guard: CallerGuard,
        is_lost: Option<impl Future<Output = bool> + Send + 'static>,
    ) {
        let key = guard.key().clone();
        drop(guard);
        let tasks = self.deps().tasks.clone();
        let leaving = async move {
            let is_lost = match is_lost {
                Some(is_lost) => is_lost.await,
                None => false,
            };
            if is_lost {
                self.abort_if_nobody_comes(key).await;
            } else if !self.deps().waiting_rpcs.has_any(&key) {
                self.abort_later(key.tenant, key.run, AbortCause::Disconnect);
            }
        };
        drop(tasks.spawn("caller", leaving));
    }

    async fn abort_if_nobody_comes(self, key: RunKey) {
        if self.has_stopped_after(self.deps().options.caller_grace.duration()).await
            || self.deps().callers.has_any(&key)
        {
            return;
        }
        // The run may have asked a human meanwhile. It then waits for the answer: a unary RPC would have returned by now.
        if self.state_of(&key).await.is_ok_and(|state| ends_with_its_caller(&state)) {
            self.abort_later(key.tenant, key.run, AbortCause::Disconnect);
        }
    }
}

/// True if the run has to end when its caller goes away. An RPC `Run` returns once the run waits for somebody, so a run
/// that has ever waited may rightly have no caller.
fn ends_with_its_caller(state: &RunState) -> bool {
    state.spec().cancel_on_disconnect && state.is_live() && !state.has_waited_for_somebody()
}
