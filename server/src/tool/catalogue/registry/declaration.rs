//! Checks of a tool's declaration: name, sizes, limits and schema.

use std::sync::Arc;

use agentloop_core::limits::{TOOL_DESCRIPTION_BYTES_MAX, TOOL_NAME_BYTES_MAX};
use agentloop_core::run::ask_human::ASK_HUMAN;
use agentloop_core::run::update_todos::UPDATE_TODOS;
use agentloop_core::text::title;
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, ToolDeclaration, ToolTerms, is_name};

use crate::tool::catalogue::schema::Schema;

/// The schema of a tool without arguments.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;
/// The longest timeout that a tool may declare. Longer work should be a job that a second tool polls.
const TIMEOUT_MAX: Millis = Millis::secs(7 * 24 * 60 * 60);

/// A declaration that passed all checks, with its compiled schema.
#[derive(Debug, Clone)]
pub(in crate::tool) struct CheckedTool {
    pub(in crate::tool) declaration: Arc<ToolDeclaration>,
    pub(in crate::tool) digest: Digest,
    pub(in crate::tool) terms: Arc<ToolTerms>,
    pub(in crate::tool) schema: Arc<Schema>,
    /// `None` if the tool gives no typed output.
    pub(in crate::tool) output_schema: Option<Arc<Schema>>,
}

/// A declaration that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tool) struct RefusedTool {
    pub(in crate::tool) name: String,
    /// The reason, for the host's author.
    pub(in crate::tool) reason: String,
}

/// Fills in an omitted schema. Done before the digest, so that both spellings are the same tool.
pub(in crate::tool) fn normalise(mut declaration: ToolDeclaration) -> ToolDeclaration {
    if declaration.input_schema.trim().is_empty() {
        NO_ARGUMENTS.clone_into(&mut declaration.input_schema);
    }
    declaration
}

/// Checks a declaration and compiles its schema.
pub(in crate::tool) fn check(declaration: ToolDeclaration) -> Result<CheckedTool, RefusedTool> {
    let declaration = normalise(declaration);
    match check_parts(&declaration) {
        Ok((schema, output_schema)) => Ok(CheckedTool {
            digest: declaration.digest(),
            terms: Arc::new(declaration.terms()),
            declaration: Arc::new(declaration),
            schema: Arc::new(schema),
            output_schema: output_schema.map(Arc::new),
        }),
        Err(reason) => Err(RefusedTool { name: declaration.name, reason }),
    }
}

fn check_parts(declaration: &ToolDeclaration) -> Result<(Schema, Option<Schema>), String> {
    check_name(&declaration.name)?;
    if let Some(own) = [ASK_HUMAN, UPDATE_TODOS].iter().find(|own| declaration.name == **own) {
        return Err(format!("the server has a tool {own} of its own; choose another name"));
    }
    if declaration.description.len() > TOOL_DESCRIPTION_BYTES_MAX {
        return Err(format!("the description is larger than {TOOL_DESCRIPTION_BYTES_MAX} bytes"));
    }
    match declaration.timeout {
        Some(Millis(0)) => return Err("the timeout is zero".to_owned()),
        Some(timeout) if timeout > TIMEOUT_MAX => {
            return Err(format!("the timeout is longer than {} s", TIMEOUT_MAX.0 / 1_000));
        }
        Some(_) | None => {}
    }
    if declaration.max_concurrency == Some(0) {
        return Err("max_concurrency is zero: the tool could never run".to_owned());
    }
    title::check(&declaration.title)?;
    let output_schema = match declaration.output_schema.trim() {
        "" => None,
        schema => Some(Schema::compile_output(schema)?),
    };
    Ok((Schema::compile(&declaration.input_schema)?, output_schema))
}

fn check_name(name: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!("a tool's name is 1 to {TOOL_NAME_BYTES_MAX} letters, digits, '_' and '-'"));
    }
    Ok(())
}
