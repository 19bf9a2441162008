//! Rules about which tool calls may run.

use serde::{Deserialize, Serialize};

/// Says what becomes of the calls that it matches. A matching deny wins over everything; of the others, the last that
/// matches counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// For people, and named where it fires; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What becomes of a call that it matches.
    pub action: PolicyAction,
    /// The tool's name; `*` stands for any run of characters, `?` for one. Empty means every tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// What the arguments must be like: all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentPattern>,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyAction {
    /// It runs without asking, also where its tool declares that it needs approval.
    Allow,
    /// A human is asked.
    Ask,
    /// It does not run; the model reads why.
    Deny,
}

/// What one argument must be like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentPattern {
    /// A JSON Pointer (RFC 6901) into the arguments; empty means the arguments as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// `*` stands for any run of characters, `?` for one. Matched against the value: a string as it is, anything else
    /// as compact JSON with sorted keys. A value that is not there does not match.
    pub pattern: String,
}
