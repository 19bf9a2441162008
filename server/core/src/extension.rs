//! What may be put beside the loop: planners, hooks and sources of context, as they declare themselves and as the
//! journal tells of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// What kind of extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtensionKind {
    /// Decides what a run does next.
    Planner,
    /// Has its say around runs and tool calls.
    Hook,
    /// Gives context before a run's first model call.
    ContextSource,
}

impl ExtensionKind {
    /// For people: `context source`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Hook => "hook",
            Self::ContextSource => "context source",
        }
    }
}

/// Where in a run a hook has its say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// What an extension declares of itself. Whoever offers the same one must declare the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terms {
    /// Of a planner.
    Planner {
        /// How long it may take to answer.
        timeout: Millis,
    },
    /// Of a hook.
    Hook(HookTerms),
    /// Of a context source.
    ContextSource(SourceTerms),
}

impl Terms {
    /// What kind of extension declares this.
    #[must_use]
    pub fn kind(&self) -> ExtensionKind {
        match self {
            Self::Planner { .. } => ExtensionKind::Planner,
            Self::Hook(_) => ExtensionKind::Hook,
            Self::ContextSource(_) => ExtensionKind::ContextSource,
        }
    }
}

/// What a hook declares of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookTerms {
    /// Where it has its say.
    pub points: BTreeSet<HookPoint>,
    /// Whether its failure fails the run, or keeps the tool call from running.
    pub required: bool,
    /// How long it may take to answer.
    pub timeout: Millis,
}

/// What a context source declares of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTerms {
    /// How long it may take to answer.
    pub timeout: Millis,
    /// Whether it is handed each finished run, to remember.
    pub remembers: bool,
}

/// What became of asking an extension: journal format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Which kind.
    pub extension: ExtensionKind,
    /// Its registered name.
    pub name: String,
    /// What it did, for people; empty where it did nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub duration: Millis,
    /// What it puts after the system prompt, for the rest of the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
}
