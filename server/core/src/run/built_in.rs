//! Common parts of the built-in tools. No host runs them, and no host may declare a tool with their names.

use crate::tool::{EffectClass, ToolDeclaration};

/// Declaration of a built-in tool, as the model reads it.
pub(super) fn declaration(
    name: &str,
    description: &str,
    input_schema: String,
    effect: EffectClass,
) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
        effect,
        requires_approval: false,
        requires_runtime: false,
        deadline_is_outcome: false,
        timeout: None,
        max_concurrency: None,
        streams_output: false,
        title: String::new(),
        output_schema: String::new(),
    }
}

/// JSON schema of a text that is not empty.
pub(super) fn text_schema(description: &str, length_max: usize) -> String {
    format!(r#"{{"type":"string","description":"{description}","minLength":1,"maxLength":{length_max}}}"#)
}
