//! The port for tools that hosts have declared, and for the ids of hosts.

use std::collections::BTreeSet;

use agentloop_core::id::{HostId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{ToolDeclaration, ToolTerms};
use async_trait::async_trait;

use super::StoreError;

/// A tool as the store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// The declaration of the host that connected last.
    pub declaration: ToolDeclaration,
    /// Time at which a host that serves it was last connected.
    pub last_seen: Timestamp,
    /// The terms that count for the name, if they are not those of the declaration.
    pub terms: Option<ToolTerms>,
}

/// The stored declarations of all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredTools {
    /// Declarations that are as they were written.
    pub tools: Vec<(TenantId, ToolRow)>,
    /// Names of tools whose declaration is damaged. Nobody knows their terms any more. Not with their tenants, because
    /// the tenant may be the part that changed.
    pub damaged: BTreeSet<String>,
}

/// A host that says hello under an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostClaim {
    /// The tenant within which the id is one host's.
    pub tenant: TenantId,
    /// The id that the host says.
    pub host: HostId,
    /// The name of the host's principal.
    pub principal: String,
    /// The time of the hello.
    pub at: Timestamp,
    /// An id whose host was last seen before this is free.
    pub free_before: Timestamp,
}

/// Declarations of tools and the principals of host ids, kept across restarts.
#[async_trait]
pub trait ToolStore: Send + Sync + 'static {
    /// Stores declarations, so that a restart knows the tools before their hosts are back. A later declaration of the
    /// same name replaces the earlier one.
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError>;

    /// Forgets a tool. `false` if there was none of this name.
    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError>;

    /// Every stored declaration, of every tenant. The log names those that are damaged, too.
    async fn tools(&self) -> Result<StoredTools, StoreError>;

    /// Notes that the id of a host is its principal's. `false`, and nothing is noted, if it is that of another principal's host
    /// and not free.
    async fn claim_host(&self, claim: &HostClaim) -> Result<bool, StoreError>;

    /// Notes that these hosts are there at this time. Forgets the ids of all hosts that were last seen before `free_before`.
    async fn see_hosts(
        &self,
        hosts: &[(TenantId, HostId)],
        at: Timestamp,
        free_before: Timestamp,
    ) -> Result<(), StoreError>;
}
