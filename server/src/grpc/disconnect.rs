//! A caller that goes away: if its run was told to end then, it does.

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::input::AbortCause;

use crate::engine::Engine;

/// Aborts a run when dropped, unless disarmed: it lives in the handler's future or stream, which the transport drops
/// when its client is gone.
pub(super) struct AbortOnDrop(Option<(Engine, TenantId, RunId)>);

impl AbortOnDrop {
    /// Armed.
    pub(super) fn new(engine: Engine, tenant: TenantId, run: RunId) -> Self {
        Self(Some((engine, tenant, run)))
    }

    /// The run ended, or parked with its caller told.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some((engine, tenant, run)) = self.0.take() {
            engine.abort_later(tenant, run, AbortCause::Disconnect);
        }
    }
}
