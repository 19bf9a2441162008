//! Tools that hosts declared.

use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::ToolDeclaration;
use async_trait::async_trait;

use super::StoreError;

/// A tool as the store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// As declared.
    pub declaration: ToolDeclaration,
    /// When a host that serves it was last seen.
    pub last_seen: Timestamp,
}

/// Declarations of tools, kept over a restart.
#[async_trait]
pub trait ToolStore: Send + Sync + 'static {
    /// Remembers tools, so that a restart knows what its hosts will bring back. By name; the last one counts.
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError>;

    /// Every remembered tool of every tenant.
    async fn tools(&self) -> Result<Vec<(TenantId, ToolRow)>, StoreError>;
}
