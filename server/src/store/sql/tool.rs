//! Declarations of tools, and their check.

use agentloop_core::id::TenantId;
use sqlx::Error;

use super::column::{SqlRow, json, json_if_any, tenant_id, time};
use crate::store::support::checksum;
use crate::store::{StoredTools, ToolRow};

/// A declaration, or the names of a damaged one.
pub(in crate::store) type FoundTool = Result<(TenantId, ToolRow), Vec<String>>;

/// The declarations that were found, and the names of damaged ones.
pub(in crate::store) fn stored_tools(found: Vec<FoundTool>) -> StoredTools {
    let mut stored = StoredTools::default();
    for read in found {
        match read {
            Ok(tool) => stored.tools.push(tool),
            Err(names) => stored.damaged.extend(names),
        }
    }
    stored
}

/// A declaration. Of a damaged one, the name of its row and that of its content: either may be the one that changed.
pub(in crate::store) fn found_tool(row: &impl SqlRow) -> Result<FoundTool, Error> {
    let name = row.text("name").unwrap_or_default().to_owned();
    let read = tool(row);
    let (why, content) = match &read {
        Ok((tenant, tool)) => {
            let declaration = row.text("declaration")?;
            let checksum = row.integer_if_any("checksum")?;
            let sum = || checksum::of_tool(tenant, tool, declaration);
            if name == tool.declaration.name && checksum.is_none_or(|checksum| checksum == sum()) {
                return read.map(Ok);
            }
            ("it does not fit its checksum".to_owned(), Some(tool.declaration.name.clone()))
        }
        Err(error) => (error.to_string(), None),
    };
    tracing::error!(
        tool = name,
        why,
        "a stored declaration is damaged; the tool is unknown until a host declares it, and less than UNSAFE with approval \
         needs `agentloop tools accept`"
    );
    Ok(Err(content.into_iter().chain([name]).collect()))
}

fn tool(row: &impl SqlRow) -> Result<(TenantId, ToolRow), Error> {
    let declaration = json(row, "declaration")?;
    let last_seen = time(row, "last_seen")?;
    let terms = json_if_any(row, "terms")?;
    Ok((tenant_id(row, "tenant")?, ToolRow { declaration, last_seen, terms }))
}
