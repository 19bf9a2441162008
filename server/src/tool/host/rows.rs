//! The tools in the store. A replica that takes the hosts begins with them, as a server does at its start.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::tool::SinkUnavailable;
use crate::tool::catalogue::registry::{CheckedTool, StoredTool};

/// The tools of all tenants, as the store has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCatalogue {
    /// Tools whose row is as it was written.
    pub tools: Vec<StoredTool>,
    /// Names of tools whose terms were lost with their row, see [`RemoteTools::lose_terms`](crate::tool::RemoteTools::lose_terms).
    pub lost: BTreeSet<String>,
}

/// The tools of the store, with those that pass the checks of this version.
#[derive(Debug)]
pub(in crate::tool) struct CheckedRows {
    pub(in crate::tool) rows: Vec<(Option<CheckedTool>, StoredTool)>,
    pub(in crate::tool) lost: BTreeSet<String>,
}

/// Reads the tools in the store.
#[async_trait]
pub trait ToolRows: Send + Sync + 'static {
    /// All of them.
    ///
    /// # Errors
    /// When the store does not respond.
    async fn read(&self) -> Result<StoredCatalogue, SinkUnavailable>;
}
