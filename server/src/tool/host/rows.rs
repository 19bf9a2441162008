//! The tools in the store. A replica that takes the hosts begins with them, as a server does at its start.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::tool::SinkUnavailable;
use crate::tool::catalogue::registry::StoredTool;

/// The tools of all tenants, as the store has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCatalogue {
    /// Tools whose row is as it was written.
    pub tools: Vec<StoredTool>,
    /// Names of tools whose terms were lost with their row, see [`RemoteTools::lose_terms`](crate::tool::RemoteTools::lose_terms).
    pub lost: BTreeSet<String>,
}

/// Reads the tools in the store.
#[async_trait]
pub trait ToolRows: Send + Sync + 'static {
    /// All of them.
    ///
    /// # Errors
    /// When the store does not answer.
    async fn read(&self) -> Result<StoredCatalogue, SinkUnavailable>;
}
