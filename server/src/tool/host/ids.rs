//! The ids of hosts, each with the principal that has it. No host of another principal takes its place, also after a restart
//! and at another replica.

use std::fmt::Debug;

use agentloop_core::id::{HostId, TenantId};
use async_trait::async_trait;

use crate::tool::SinkUnavailable;

/// Keeps the principals of host ids.
#[async_trait]
pub trait HostIds: Debug + Send + Sync + 'static {
    /// Notes that the id of a host is its principal's. `false` if it is that of another principal's host.
    ///
    /// # Errors
    /// When the store does not respond.
    async fn claim(&self, tenant: &TenantId, host: &HostId, principal: &str)
    -> Result<bool, SinkUnavailable>;
}
