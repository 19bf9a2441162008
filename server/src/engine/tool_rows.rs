//! The tools of the catalogue as rows of the store, and back.

use agentloop_core::id::TenantId;

use crate::store::ToolRow;
use crate::tool::StoredTool;

impl From<StoredTool> for ToolRow {
    fn from(tool: StoredTool) -> Self {
        let StoredTool { tenant: _, declaration, last_seen, terms } = tool;
        Self { declaration, last_seen, terms }
    }
}

impl From<(TenantId, ToolRow)> for StoredTool {
    fn from((tenant, row): (TenantId, ToolRow)) -> Self {
        let ToolRow { declaration, last_seen, terms } = row;
        Self { tenant, declaration, last_seen, terms }
    }
}
