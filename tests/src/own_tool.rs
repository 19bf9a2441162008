//! Declarations of tools that a server runs itself.

use agentloop_core::tool::{EffectClass, ToolDeclaration};
use serde_json::Value;

/// A tool with this schema for its arguments, which may run at once and for as long as the server allows.
pub fn own_tool(name: &str, effect: EffectClass, input_schema: &Value) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: format!("The tool {name}"),
        input_schema: input_schema.to_string(),
        effect,
        requires_approval: false,
        requires_runtime: false,
        deadline_is_outcome: false,
        output_schema: String::new(),
        timeout: None,
        max_concurrency: None,
        streams_output: false,
        title: String::new(),
    }
}
