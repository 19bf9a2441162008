//! Which principal's host has which id. Nobody else's host takes its place, also after a restart and at another replica.

use std::fmt::Debug;
use std::sync::Arc;

use agentloop_core::id::{HostId, TenantId};
use async_trait::async_trait;

use super::remote::RemoteTools;
use crate::tool::SinkUnavailable;

/// Keeps the principals of host ids.
#[async_trait]
pub trait HostIds: Debug + Send + Sync + 'static {
    /// Notes that the id of a host is its principal's. `false` if it is that of another principal's host.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn claim(&self, tenant: &TenantId, host: &HostId, principal: &str)
    -> Result<bool, SinkUnavailable>;
}

impl RemoteTools {
    /// Has ids kept for the principals of hosts. Without it, and for hosts that nobody asked who they are, an id is free once its
    /// host is gone. A second call does nothing.
    pub fn keep_ids(&self, ids: Arc<dyn HostIds>) {
        let _first = self.ids.set(ids);
    }

    /// Notes that a host of this principal has this id. `false` if it is that of another principal's host.
    pub(in crate::tool) async fn claim_id(
        &self,
        tenant: &TenantId,
        host: &HostId,
        principal: Option<&str>,
    ) -> Result<bool, SinkUnavailable> {
        match (principal, self.ids.get()) {
            (Some(principal), Some(ids)) => ids.claim(tenant, host, principal).await,
            (None, _) | (_, None) => Ok(true),
        }
    }

    /// The hosts whose streams this replica has.
    #[must_use]
    pub fn connected_hosts(&self) -> Vec<(TenantId, HostId)> {
        self.lock().connected_hosts()
    }
}
