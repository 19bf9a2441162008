//! Tools that an embedder declares. They run in the server's process, and no host may declare the same name.

use std::collections::BTreeSet;

use agentloop_core::tool::ToolDeclaration;

use crate::tool::catalogue::registry::{CheckedTool, check};

/// The embedder's tools, checked and ready to register.
#[derive(Debug, Default)]
pub struct OwnTools(pub(in crate::tool) Vec<CheckedTool>);

/// The declaration of an embedder's tool that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool {name:?} is refused: {reason}")]
pub struct BadTool {
    /// The name in the declaration.
    pub name: String,
    /// The fault in the declaration.
    pub reason: String,
}

impl OwnTools {
    /// Checks declarations like those of hosts. Features that only hosts have (runtimes, concurrency, streamed output)
    /// are refused.
    ///
    /// # Errors
    /// The first declaration that is refused.
    pub fn check(declarations: Vec<ToolDeclaration>) -> Result<Self, BadTool> {
        let mut names = BTreeSet::new();
        let mut checked = Vec::new();
        for declaration in declarations {
            let bad = |reason: &str| BadTool { name: declaration.name.clone(), reason: reason.to_owned() };
            if declaration.requires_runtime {
                return Err(bad("it requires a runtime, which only tool hosts have"));
            }
            if declaration.max_concurrency.is_some() {
                return Err(bad(
                    "max_concurrency is for tool hosts only; limit concurrency inside the executor",
                ));
            }
            if declaration.streams_output {
                return Err(bad("it streams output, which only tool hosts can"));
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
    use super::*;
    use crate::tool::tests::harness::declaration;

    fn sound() -> ToolDeclaration {
        ToolDeclaration { input_schema: String::new(), ..declaration("sum") }
    }

    #[test]
    fn invalid_declarations_are_refused_with_their_name() {
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
