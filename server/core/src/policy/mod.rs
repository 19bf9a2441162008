//! Rules about which tool calls may run.

mod canonical;
mod glob;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use glob::literal;

use crate::limits::{
    POLICY_ARGUMENTS_MAX, POLICY_NAME_BYTES_MAX, POLICY_PATTERN_BYTES_MAX, POLICY_POINTER_BYTES_MAX,
    POLICY_RULE_BYTES_MAX,
};

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
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "RuleOrigin::is_agent")]
    pub origin: RuleOrigin,
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
    /// `*` stands for any run of characters, `?` for one; after `\`, these and `\` stand for themselves. Matched
    /// against the value: a string as it is, anything else as compact JSON with sorted keys. A value that is not there
    /// does not match.
    pub pattern: String,
}

/// Where a rule comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOrigin {
    /// The agent's configuration.
    #[default]
    Agent,
    /// The run's request.
    Request,
    /// Remembered for the run.
    Run,
    /// Remembered for the session.
    Session,
    /// Remembered for every run.
    Remembered,
    /// Of a dry run.
    Candidate,
}

impl RuleOrigin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_agent(&self) -> bool {
        *self == Self::Agent
    }

    /// Whether a human's decision made the rule.
    #[must_use]
    pub fn is_remembered(self) -> bool {
        match self {
            Self::Run | Self::Session | Self::Remembered => true,
            Self::Agent | Self::Request | Self::Candidate => false,
        }
    }
}

/// Why a rule is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// Its name is too long.
    #[error("name: must be at most {POLICY_NAME_BYTES_MAX} bytes")]
    NameTooLong,
    /// The pattern of its tool is too long.
    #[error("tool: must be at most {POLICY_PATTERN_BYTES_MAX} bytes")]
    ToolTooLong,
    /// It has too many patterns.
    #[error("arguments: must be at most {POLICY_ARGUMENTS_MAX}")]
    TooManyArguments,
    /// All its texts together are too long.
    #[error("arguments: must be at most {POLICY_RULE_BYTES_MAX} bytes together")]
    TooLong,
    /// This one's pattern is too long.
    #[error("arguments[{0}].pattern: must be at most {POLICY_PATTERN_BYTES_MAX} bytes")]
    PatternTooLong(usize),
    /// This one's pointer is none.
    #[error(
        "arguments[{0}].pointer: must be empty or a JSON Pointer, such as /path, of at most {POLICY_POINTER_BYTES_MAX} bytes"
    )]
    NotAPointer(usize),
}

impl PolicyRule {
    /// Checks a rule from outside.
    ///
    /// # Errors
    /// What is wrong with it; the message begins with the field.
    pub fn check(&self) -> Result<(), BadRule> {
        if self.name.len() > POLICY_NAME_BYTES_MAX {
            return Err(BadRule::NameTooLong);
        }
        if self.tool.len() > POLICY_PATTERN_BYTES_MAX {
            return Err(BadRule::ToolTooLong);
        }
        if self.arguments.len() > POLICY_ARGUMENTS_MAX {
            return Err(BadRule::TooManyArguments);
        }
        for (at, argument) in self.arguments.iter().enumerate() {
            if argument.pattern.len() > POLICY_PATTERN_BYTES_MAX {
                return Err(BadRule::PatternTooLong(at));
            }
            if !is_pointer(&argument.pointer) {
                return Err(BadRule::NotAPointer(at));
            }
        }
        let bytes: usize =
            self.arguments.iter().map(|argument| argument.pointer.len() + argument.pattern.len()).sum();
        if bytes > POLICY_RULE_BYTES_MAX { Err(BadRule::TooLong) } else { Ok(()) }
    }

    /// The rule for calls of exactly this tool with exactly these arguments; `None` where they are too long for one, or
    /// have a number that is not told apart from others.
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
        let pattern = ArgumentPattern { pointer: String::new(), pattern: literal(&call.whole()) };
        let rule =
            Self { name: String::new(), action, tool: literal(tool), arguments: vec![pattern], origin };
        rule.check().ok().map(|()| rule)
    }

    /// Whether the rule matches this call. An ALLOW rule on arguments does not match if a number in them was rounded.
    #[must_use]
    pub fn matches(&self, call: &PolicyCall) -> bool {
        let is_lax = self.action == PolicyAction::Allow && !self.arguments.is_empty() && !call.is_exact;
        !is_lax
            && (self.tool.is_empty() || glob::matches(&self.tool, &call.tool))
            && self.arguments.iter().all(|argument| argument.matches(call))
    }

    /// As the model and people read it: by its name, or by what it is about.
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

/// A tool call, as rules look at it.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyCall {
    tool: String,
    arguments: Value,
    is_exact: bool,
}

impl PolicyCall {
    /// Arguments that are no JSON are looked at as a text: they are not run anyway.
    #[must_use]
    pub fn new(tool: &str, arguments: &str) -> Self {
        let text = || Value::String(arguments.to_owned());
        Self {
            tool: tool.to_owned(),
            arguments: serde_json::from_str(arguments).unwrap_or_else(|_| text()),
            is_exact: canonical::is_exact(arguments),
        }
    }

    /// The arguments as a pattern without a pointer sees them.
    fn whole(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            other => canonical::text(other),
        }
    }
}

/// The rule that decides about a call: the first deny that matches, else the last rule that does.
#[must_use]
pub fn deciding_rule<'a>(
    rules: impl IntoIterator<Item = &'a PolicyRule>,
    call: &PolicyCall,
) -> Option<&'a PolicyRule> {
    let mut last = None;
    for rule in rules.into_iter().filter(|rule| rule.matches(call)) {
        match rule.action {
            PolicyAction::Deny => return Some(rule),
            PolicyAction::Allow | PolicyAction::Ask => last = Some(rule),
        }
    }
    last
}

fn is_pointer(text: &str) -> bool {
    let mut after_tilde = text.split('~').skip(1);
    text.len() <= POLICY_POINTER_BYTES_MAX
        && (text.is_empty() || text.starts_with('/'))
        && after_tilde.all(|rest| rest.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests;
