//! Policy rules: which tool calls run, need approval, or are denied.

mod approvers;
mod glob;
mod widening;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use approvers::{Approvers, BadApprovers};
use glob::literal;
pub use glob::matches as glob_matches;
pub use widening::{Widening, deciding_rule, required_approvers};

use crate::limits::{
    POLICY_ARGUMENTS_MAX, POLICY_NAME_BYTES_MAX, POLICY_PATTERN_BYTES_MAX, POLICY_POINTER_BYTES_MAX,
    POLICY_RULE_BYTES_MAX, POLICY_WILD_PIECE_MAX,
};
use crate::text::canonical;
use crate::tool::Digest;

/// A policy rule: an action for the calls that match it.
///
/// A matching rule that denies wins over all others. Of the rest, the last one that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Name for people, shown when the rule denies a call. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Action for a call that matches.
    pub action: PolicyAction,
    /// Pattern of the tool's name: `*` matches any characters, `?` one character. Empty matches every tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// Patterns of the arguments. All of them must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentPattern>,
    /// Source of the rule.
    #[serde(default, skip_serializing_if = "RuleOrigin::is_agent")]
    pub origin: RuleOrigin,
    /// The digest of the tool's terms that it was remembered under. The rule is about calls under these terms alone.
    /// `None` covers any terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Digest>,
    /// The people who may answer the question that the rule asks. A rule that allows or denies has none.
    #[serde(default, skip_serializing_if = "Approvers::is_anyone")]
    pub approvers: Approvers,
    /// The digest of the approvers under which it was remembered, if not everyone could answer. It takes back no other
    /// question that names approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_under: Option<Digest>,
}

/// Action for a matching call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyAction {
    /// The call runs without approval, even if its tool declares that it needs one.
    Allow,
    /// A person must approve the call.
    Ask,
    /// The call does not run. The model reads the reason.
    Deny,
}

/// A pattern that one argument must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentPattern {
    /// JSON Pointer (RFC 6901) to a value in the arguments. Empty points to the arguments as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pointer: String,
    /// The pattern: `*` matches any characters, `?` one character. A `\` before `*`, `?` or `\` makes it literal. A string
    /// is matched as it is, anything else as compact JSON with sorted keys. A missing value does not match.
    pub pattern: String,
}

/// Sources of policy rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOrigin {
    /// A rule of the agent's configuration.
    #[default]
    Agent,
    /// A rule of the request that started the run.
    Request,
    /// A decision that was remembered for the run.
    Run,
    /// A decision that was remembered for the session.
    Session,
    /// A decision that was remembered for every run.
    Remembered,
    /// A rule that is only tried out, by `CheckPolicy`.
    Candidate,
}

impl RuleOrigin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_agent(&self) -> bool {
        *self == Self::Agent
    }

    /// True if the rule was made by a person's decision.
    #[must_use]
    pub fn is_remembered(self) -> bool {
        match self {
            Self::Run | Self::Session | Self::Remembered => true,
            Self::Agent | Self::Request | Self::Candidate => false,
        }
    }
}

/// The bound on a piece with `?`, for people who write a rule.
const LONG_PIECE: &str = "between two *, at most 64 characters may stand if one of them is ?";
const _: () = assert!(POLICY_WILD_PIECE_MAX == 64, "the text names the bound");

/// Faults of a rule from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// The name is too long.
    #[error("name: must be at most {POLICY_NAME_BYTES_MAX} bytes")]
    NameTooLong,
    /// The pattern of the tool's name is too long.
    #[error("tool: must be at most {POLICY_PATTERN_BYTES_MAX} bytes")]
    ToolTooLong,
    /// There are too many argument patterns.
    #[error("arguments: must be at most {POLICY_ARGUMENTS_MAX}")]
    TooManyArguments,
    /// All argument patterns and pointers together are too long.
    #[error("arguments: must be at most {POLICY_RULE_BYTES_MAX} bytes together")]
    TooLong,
    /// The argument at this index has a pattern that is too long.
    #[error("arguments[{0}].pattern: must be at most {POLICY_PATTERN_BYTES_MAX} bytes")]
    PatternTooLong(usize),
    /// The pattern of the tool's name has a long piece with `?`.
    #[error("tool: {LONG_PIECE}")]
    ToolPiece,
    /// The argument at this index has a pattern with such a piece.
    #[error("arguments[{0}].pattern: {LONG_PIECE}")]
    PatternPiece(usize),
    /// The argument at this index has an invalid pointer.
    #[error(
        "arguments[{0}].pointer: must be empty or a JSON Pointer, such as /path, of at most {POLICY_POINTER_BYTES_MAX} bytes"
    )]
    NotAPointer(usize),
    /// The approvers have a fault.
    #[error(transparent)]
    Approvers(#[from] BadApprovers),
}

impl PolicyRule {
    /// Checks a rule from outside.
    ///
    /// # Errors
    /// The first fault that is found; the message begins with the field.
    pub fn check(&self) -> Result<(), BadRule> {
        if self.name.len() > POLICY_NAME_BYTES_MAX {
            return Err(BadRule::NameTooLong);
        }
        if self.tool.len() > POLICY_PATTERN_BYTES_MAX {
            return Err(BadRule::ToolTooLong);
        }
        if !glob::is_quick(&self.tool) {
            return Err(BadRule::ToolPiece);
        }
        if self.arguments.len() > POLICY_ARGUMENTS_MAX {
            return Err(BadRule::TooManyArguments);
        }
        for (at, argument) in self.arguments.iter().enumerate() {
            if argument.pattern.len() > POLICY_PATTERN_BYTES_MAX {
                return Err(BadRule::PatternTooLong(at));
            }
            if !glob::is_quick(&argument.pattern) {
                return Err(BadRule::PatternPiece(at));
            }
            if !is_pointer(&argument.pointer) {
                return Err(BadRule::NotAPointer(at));
            }
        }
        let bytes: usize =
            self.arguments.iter().map(|argument| argument.pointer.len() + argument.pattern.len()).sum();
        if bytes > POLICY_RULE_BYTES_MAX {
            return Err(BadRule::TooLong);
        }
        if self.action != PolicyAction::Ask && !self.approvers.is_anyone() {
            return Err(BadApprovers::NotAsked.into());
        }
        Ok(self.approvers.check()?)
    }

    /// The rule that matches only calls of this tool with exactly these arguments.
    ///
    /// `None` if the arguments are too long for a rule, or have a number that JSON parsing rounds.
    #[must_use]
    pub fn for_exact_call(
        action: PolicyAction,
        tool: &str,
        arguments: &str,
        origin: RuleOrigin,
    ) -> Option<Self> {
        let call = PolicyCall::new(tool, arguments);
        if !call.is_exact {
            return None;
        }
        let pattern = ArgumentPattern { pointer: String::new(), pattern: literal(&call.arguments_text()) };
        let rule = Self {
            name: String::new(),
            action,
            tool: literal(tool),
            arguments: vec![pattern],
            origin,
            terms: None,
            approvers: Approvers::default(),
            made_under: None,
        };
        rule.check().ok().map(|()| rule)
    }

    /// True if the rule matches this call. A rule that allows by arguments does not match if one of their numbers was
    /// rounded: the rounded value may hide a different one.
    #[must_use]
    pub fn matches(&self, call: &PolicyCall) -> bool {
        let is_unsafe = self.action == PolicyAction::Allow && !self.arguments.is_empty() && !call.is_exact;
        !is_unsafe
            && (self.terms.is_none() || self.terms == call.terms)
            && self.is_about(&call.tool)
            && self.arguments.iter().all(|argument| argument.matches(call))
    }

    /// True if the rule denies every call of the tools that it is about, whatever their arguments and terms.
    #[must_use]
    pub fn denies_always(&self) -> bool {
        let is_any =
            |argument: &ArgumentPattern| argument.pointer.is_empty() && glob::is_any(&argument.pattern);
        self.action == PolicyAction::Deny && self.terms.is_none() && self.arguments.iter().all(is_any)
    }

    /// True if the rule is about calls of this tool.
    #[must_use]
    pub fn is_about(&self, tool: &str) -> bool {
        self.tool.is_empty() || glob::matches(&self.tool, tool)
    }

    /// True if the rule is about the tool of one name, with whatever arguments.
    pub(crate) fn is_of_one_tool(&self) -> bool {
        glob::is_literal(&self.tool) && !self.tool.is_empty()
    }

    /// Title of the rule for people and the model: its name, or the tool that it is about.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.name.as_str(), self.tool.as_str()) {
            ("", "") => "a rule for every tool".to_owned(),
            ("", tool) => format!("a rule for {tool}"),
            (name, _) => format!("the rule {name:?}"),
        }
    }
}

impl ArgumentPattern {
    fn matches(&self, call: &PolicyCall) -> bool {
        match call.arguments.pointer(&self.pointer) {
            Some(Value::String(text)) => glob::matches(&self.pattern, text),
            Some(other) => glob::matches(&self.pattern, &canonical::text(other)),
            None => false,
        }
    }
}

/// A tool call in the form that rules are matched against.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyCall {
    tool: String,
    arguments: Value,
    is_exact: bool,
    /// The digest of its tool's terms, where they are known.
    terms: Option<Digest>,
}

impl PolicyCall {
    /// Reads the arguments as JSON. Invalid JSON is matched as a string; such a call never runs anyway.
    #[must_use]
    pub fn new(tool: &str, arguments: &str) -> Self {
        let text = || Value::String(arguments.to_owned());
        Self {
            tool: tool.to_owned(),
            arguments: serde_json::from_str(arguments).unwrap_or_else(|_| text()),
            is_exact: canonical::is_exact(arguments),
            terms: None,
        }
    }

    /// The same call under these terms of its tool.
    #[must_use]
    pub fn under(self, terms: Option<&Digest>) -> Self {
        Self { terms: terms.cloned(), ..self }
    }

    /// The text that a pattern with an empty pointer is matched against.
    fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            other => canonical::text(other),
        }
    }
}

fn is_pointer(text: &str) -> bool {
    let mut after_tilde = text.split('~').skip(1);
    text.len() <= POLICY_POINTER_BYTES_MAX
        && (text.is_empty() || text.starts_with('/'))
        && after_tilde.all(|rest| rest.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests;
