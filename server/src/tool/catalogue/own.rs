//! Tools of the server itself: declared by whoever embeds it, and run in its process.

use std::collections::BTreeSet;

use agentloop_core::tool::ToolDeclaration;

use crate::tool::catalogue::registry::{Checked, check};

/// Declarations that were found good.
#[derive(Debug, Default)]
pub struct OwnTools(pub(in crate::tool) Vec<Checked>);

/// A declaration that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool {name:?} cannot be taken: {reason}")]
pub struct BadTool {
    /// The tool.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl OwnTools {
    /// Checks them as those of hosts are. What only a host has is not to be asked for.
    ///
    /// # Errors
    /// The first that cannot be taken.
    pub fn check(declarations: Vec<ToolDeclaration>) -> Result<Self, BadTool> {
        let mut names = BTreeSet::new();
        let mut checked = Vec::new();
        for declaration in declarations {
            let bad = |reason: &str| BadTool { name: declaration.name.clone(), reason: reason.to_owned() };
            if declaration.requires_runtime {
                return Err(bad("it needs a runtime, which hosts alone have"));
            }
            if declaration.max_concurrency.is_some() {
                return Err(bad("max_concurrency is for hosts: an executor sees to its own bounds"));
            }
            if declaration.streams_output {
                return Err(bad("it streams output, which hosts alone can"));
            }
            if !names.insert(declaration.name.clone()) {
                return Err(bad("it is declared twice"));
            }
            checked.push(
                check(declaration)
                    .map_err(|refused| BadTool { name: refused.name, reason: refused.reason })?,
            );
        }
        Ok(Self(checked))
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::tool::EffectClass;

    use super::*;

    fn sound() -> ToolDeclaration {
        ToolDeclaration {
            name: "sum".to_owned(),
            description: String::new(),
            input_schema: String::new(),
            effect: EffectClass::ReadOnly,
            requires_approval: false,
            requires_runtime: false,
            timeout: None,
            max_concurrency: None,
            streams_output: false,
            title: String::new(),
        }
    }

    #[test]
    fn what_cannot_be_taken_is_refused_with_its_name() {
        assert!(OwnTools::check(vec![sound()]).is_ok());
        for (bad, because) in [
            (vec![ToolDeclaration { requires_runtime: true, ..sound() }], "runtime"),
            (vec![ToolDeclaration { max_concurrency: Some(1), ..sound() }], "max_concurrency"),
            (vec![ToolDeclaration { streams_output: true, ..sound() }], "streams"),
            (vec![ToolDeclaration { input_schema: "[]".to_owned(), ..sound() }], "object"),
            (vec![sound(), sound()], "twice"),
        ] {
            let error = OwnTools::check(bad).unwrap_err().to_string();
            assert!(error.contains("\"sum\"") && error.contains(because), "{error}");
        }
    }
}
