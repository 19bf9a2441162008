//! The spec of a run: its settings, resolved from the agent's configuration and the request, and kept in its journal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::{PolicyRule, Widening};
use crate::time::Millis;

/// The settings of a run. They are fixed when the run starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    /// Name of the configured agent that the settings came from.
    pub agent: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// System prompt: the model reads it before everything else.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
    /// The agent's own template for the system prompt, in place of those of its model and provider. Empty once the run
    /// has started: `system_prompt` is then the filled template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_template: Option<String>,
    /// The only tools that the model is offered; absent means all that are registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Order in which the model is offered its tools. Tools that are not named here follow by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_order: Vec<String>,
    /// Rules and bounds for tool calls.
    pub tool_policy: ToolPolicy,
    /// Limits that end the run.
    pub limits: LoopLimits,
    /// Retries of failed model calls.
    pub retry: RetryPolicy,
    /// Parameters of model calls.
    pub options: ModelOptions,
    /// Timeouts of model calls.
    pub timeouts: ModelTimeouts,
    /// Time that a question to people stays open; absent means for ever. An expired approval counts as denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout: Option<Millis>,
    /// Time that a call in doubt waits for a person or a late result; absent means for ever. Then the model is told that
    /// the outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_doubt_timeout: Option<Millis>,
    /// Initial data for the runtime that a tool with `requires_runtime` needs: a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_init_data: Option<String>,
    /// Hints for the runtime: a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_hints: Option<String>,
    /// Labels that the caller gave the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Bounds of the context, and how it is compacted.
    #[serde(skip_serializing_if = "is_default")]
    pub context: ContextPolicy,
    /// Name of the planner that decides what to do next; absent means the built-in loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<String>,
    /// True if each instruction waits for a call of `Step`.
    #[serde(skip_serializing_if = "is_default")]
    pub stepped: bool,
    /// True if the run is aborted when its caller goes away.
    #[serde(skip_serializing_if = "is_default")]
    pub cancel_on_disconnect: bool,
    /// Names of the hooks around the run and its tool calls, in the order in which they are called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Names of the context sources that are queried before the first model call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_sources: Vec<String>,
    /// Background work after the run's end.
    #[serde(skip_serializing_if = "is_default")]
    pub background: BackgroundPolicy,
}

impl RunSpec {
    /// True if a planner or a caller of `Step` decides what comes next, and not the built-in loop alone.
    #[must_use]
    pub fn is_directed(&self) -> bool {
        self.stepped || self.planner.is_some()
    }

    /// True if a rule denies every call of this tool, so that the model is not offered it. The rules that count are those
    /// with which the run entered its session. Later decisions do not change the offered tools, because the provider's
    /// cache of the request would be lost.
    #[must_use]
    pub fn denies_always(&self, tool: &str) -> bool {
        self.tool_policy.rules.iter().any(|rule| rule.denies_always() && rule.is_about(tool))
    }

    /// True if hooks or context sources are called before the caller's messages enter the session.
    #[must_use]
    pub fn prepares(&self) -> bool {
        !self.hooks.is_empty() || !self.context_sources.is_empty()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Bounds of the context that the model reads, and how it is compacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextPolicy {
    /// Compact before a model call that would be shown more messages than this; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// Compact before a model call whose request is estimated to have more tokens than this; absent means 80 % of the
    /// model's context window where that is known, else no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Compaction strategy: `truncate`, `summarize`, `extract`, or one that the embedding program registered.
    pub strategy: String,
    /// Number of messages at the end that compaction keeps as they are.
    pub keep_recent: u32,
    /// Model for summaries, as `provider/model`; absent means the run's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_model: Option<String>,
}

impl Default for ContextPolicy {
    fn default() -> Self {
        Self {
            max_messages: None,
            max_tokens: None,
            strategy: "summarize".to_owned(),
            keep_recent: 8,
            summary_model: None,
        }
    }
}

/// Background work after a run's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundPolicy {
    /// True if the model writes a title for a session that has none.
    pub title: bool,
    /// True if the model updates the summary of the session.
    pub summary: bool,
    /// Model for both, as `provider/model`; absent means the run's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Rules and bounds for the tool calls of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolPolicy {
    /// True if the model is offered tools at all.
    pub enabled: bool,
    /// The only tools that may be offered; absent means all. A tool must also be in [`RunSpec::allowed_tools`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_list: Option<Vec<String>>,
    /// Calls of one message that may run at the same time; 1 runs them in order.
    pub max_parallel: u32,
    /// Most tool calls of the run; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_per_run: Option<u32>,
    /// True if every call needs approval, even if its tool declares that it needs none.
    pub require_approval_by_default: bool,
    /// Rules that allow, ask about or deny calls: see [`crate::policy`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRule>,
    /// True if the model is offered the built-in tool `ask_human`.
    #[serde(skip_serializing_if = "is_default")]
    pub ask_human: bool,
    /// True if the model is offered the built-in tool `update_todos`.
    #[serde(skip_serializing_if = "is_default")]
    pub todos: bool,
    /// Tools whose deadline is an outcome, although they do not declare that: an UNSAFE call is timed out at its deadline, and
    /// not in doubt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadline_is_outcome: Vec<String>,
    /// The settings that may widen the run's rights. Absent in journals of earlier versions, whose runs keep the rights they had.
    #[serde(default = "Widening::unlimited", skip_serializing_if = "Widening::is_unlimited")]
    pub widening: Widening,
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_list: None,
            max_parallel: 1,
            max_calls_per_run: None,
            require_approval_by_default: false,
            rules: Vec::new(),
            ask_human: false,
            todos: false,
            deadline_is_outcome: Vec::new(),
            widening: Widening::default(),
        }
    }
}

/// Limits of a run. Reaching one fails the run with a reason that names the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopLimits {
    /// Most model calls, retries not counted.
    pub max_iterations: u32,
    /// Most rounds of tool calls; absent means no bound. The calls of one message are one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_rounds: Option<u32>,
    /// Longest time from start to end, waiting included; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<Millis>,
    /// Most tokens, input and output together; absent means no bound. Checked between model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most consecutive tool calls that end in an error; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_consecutive_failures: Option<u32>,
    /// Most consecutive calls of one tool with the same arguments; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_repeated_calls: Option<u32>,
    /// Highest cost, in millionths of the currency of the configured prices; absent means no bound. Checked between
    /// model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self {
            max_iterations: 10,
            max_tool_rounds: None,
            max_run_duration: None,
            max_tokens: None,
            max_consecutive_failures: None,
            max_repeated_calls: None,
            max_cost_micros: None,
        }
    }
}

/// Retries of a failed model call: exponential backoff with full jitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Most attempts after the first.
    pub max_retries: u32,
    /// Bound of the first wait. It doubles for each further one.
    pub initial_backoff: Millis,
    /// Longest wait, unless the provider requests a longer one by Retry-After.
    pub max_backoff: Millis,
    /// True if each wait is drawn at random between zero and its bound, so that many runs do not retry together.
    pub jitter: bool,
    /// True if a run pauses for an operator when its retries are used up. False fails the run.
    pub pause_when_exhausted: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            initial_backoff: Millis::secs(1),
            max_backoff: Millis::secs(10),
            jitter: true,
            pause_when_exhausted: false,
        }
    }
}

/// Timeouts of a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelTimeouts {
    /// Longest time to connect.
    pub connect: Millis,
    /// Longest time from the request to the first event of the response.
    pub first_token: Millis,
    /// Longest time between two events of the response.
    pub idle: Millis,
    /// Longest time for one attempt as a whole.
    pub total: Millis,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self {
            connect: Millis::secs(10),
            first_token: Millis::secs(120),
            idle: Millis::secs(60),
            total: Millis::secs(600),
        }
    }
}

/// Parameters of a model call, in terms that every provider adapter translates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelOptions {
    /// Sampling temperature, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Most tokens of the response, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Texts that end the response when the model writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Permission or duty of the model to call tools; absent leaves it to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Effort of the model's reasoning; absent leaves it to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// JSON schema that the response must follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// A JSON object that is merged into the provider's request last, unchecked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_options: Option<String>,
}

/// Permission or duty of the model to call tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides if it calls tools.
    Auto,
    /// The model must not call tools.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call the tool of this name.
    Named(String),
}

impl ToolChoice {
    /// The reason, for the model, why a call of this tool must not run. Some models call tools against the choice. `None`: it
    /// may run.
    #[must_use]
    pub fn refusal(&self, tool: &str) -> Option<String> {
        match self {
            Self::Auto | Self::Required => None,
            Self::None => Some("no tools may be called; answer without them".to_owned()),
            Self::Named(name) if name == tool => None,
            Self::Named(name) => Some(format!("only the tool `{name}` may be called now")),
        }
    }
}

/// Effort of a model's reasoning before its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// No reasoning, if the model allows it.
    None,
    /// Little reasoning: fast and cheap.
    Low,
    /// The middle level of most providers.
    Medium,
    /// Much reasoning: slow and expensive.
    High,
}

/// A JSON schema that the response must follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseSchema {
    /// Name of the schema, which some providers require.
    pub name: String,
    /// The schema as JSON text.
    pub schema: String,
    /// True if the provider is to enforce the schema while it generates.
    pub strict: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_against_the_choice_is_refused() {
        let refuses = |choice: ToolChoice| ["f", "g"].map(|tool| choice.refusal(tool).is_some());
        assert_eq!(refuses(ToolChoice::Auto), [false, false]);
        assert_eq!(refuses(ToolChoice::Required), [false, false]);
        assert_eq!(refuses(ToolChoice::None), [true, true]);
        assert_eq!(refuses(ToolChoice::Named("f".to_owned())), [false, true]);
    }
}
