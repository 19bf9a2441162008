//! Extensions of the loop: planners, hooks and context sources. Their declarations, and the record of a call in the
//! journal.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// The three kinds of extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtensionKind {
    /// A planner decides what a run does next.
    Planner,
    /// A hook is called around runs and tool calls, and may change or stop them.
    Hook,
    /// A context source adds texts to the context before a run's first model call.
    ContextSource,
}

impl ExtensionKind {
    /// The kind for people, such as `context source`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Hook => "hook",
            Self::ContextSource => "context source",
        }
    }
}

/// Points of a run at which a hook can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the first model call.
    PreRun,
    /// After the run's end.
    PostRun,
    /// Before a tool call runs.
    PreTool,
    /// After a tool call's result, before it is recorded.
    PostTool,
}

/// Declaration of an extension. All hosts that offer the same extension must declare the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtensionDeclaration {
    /// Declaration of a planner.
    Planner {
        /// Longest time of one call.
        timeout: Millis,
    },
    /// Declaration of a hook.
    Hook(HookDeclaration),
    /// Declaration of a context source.
    ContextSource(SourceDeclaration),
}

impl ExtensionDeclaration {
    /// The kind of extension that this declares.
    #[must_use]
    pub fn kind(&self) -> ExtensionKind {
        match self {
            Self::Planner { .. } => ExtensionKind::Planner,
            Self::Hook(_) => ExtensionKind::Hook,
            Self::ContextSource(_) => ExtensionKind::ContextSource,
        }
    }
}

/// Declaration of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookDeclaration {
    /// Points at which it is called.
    pub points: BTreeSet<HookPoint>,
    /// True if a failure of the hook fails the run, or stops the tool call from running.
    pub required: bool,
    /// Longest time of one call.
    pub timeout: Millis,
}

/// Declaration of a context source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceDeclaration {
    /// Longest time of one call.
    pub timeout: Millis,
    /// True if it gets the messages of each finished run, to remember them.
    pub remembers: bool,
}

/// One call of an extension and its outcome, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionCall {
    /// Kind of the extension.
    pub extension: ExtensionKind,
    /// Name of the extension, as agents refer to it.
    pub name: String,
    /// Effect of the call, for people. Empty if it had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// Reason of a failure. `None` after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration of the call.
    pub duration: Millis,
    /// Text that it adds after the system prompt for the rest of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
}
