//! What a run is told to be: plain data, resolved from the agent's configuration and the request, and journalled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::PolicyRule;
use crate::time::Millis;

/// Everything that decides how a run behaves. Fixed when the run starts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    /// The configured agent that this came from.
    pub agent: String,
    /// `provider/model`.
    pub model: String,
    /// Put before everything else that the model reads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
    /// The agent's own template for the system prompt, in place of those of its model and provider. Empty once the run
    /// has started: then `system_prompt` is what the template made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_template: Option<String>,
    /// Of the registered tools, only these; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The order in which the model is shown its tools; what is not named follows by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_order: Vec<String>,
    /// Which tools may run and how.
    pub tool_policy: ToolPolicy,
    /// When to stop.
    pub limits: LoopLimits,
    /// What to do when the model cannot be reached.
    pub retry: RetryPolicy,
    /// What the model is asked for.
    pub options: ModelOptions,
    /// How long to wait for the model.
    pub timeouts: ModelTimeouts,
    /// How long a question to a human stays open; absent means for ever. An expired question is a denied one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout: Option<Millis>,
    /// How long a call in doubt waits for a human or a late result before the model is told that its outcome is
    /// unknown; absent means for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_doubt_timeout: Option<Millis>,
    /// Handed to the runtime that a tool with `requires_runtime` needs: a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_init_data: Option<String>,
    /// Advice for the runtime: a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_hints: Option<String>,
    /// The caller's own labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How the conversation is kept within the model's context.
    #[serde(skip_serializing_if = "is_default")]
    pub context: ContextPolicy,
    /// The planner that decides what to do next; absent means the built-in loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<String>,
    /// Whether each instruction waits for a call of `Step`.
    #[serde(skip_serializing_if = "is_default")]
    pub stepped: bool,
    /// Hooks around the run and its tool calls, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Sources of context.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_sources: Vec<String>,
    /// Work that follows the run's end, in the background.
    #[serde(skip_serializing_if = "is_default")]
    pub background: BackgroundPolicy,
}

impl RunSpec {
    /// Whether someone else than the built-in loop has a say in what comes next.
    #[must_use]
    pub fn is_directed(&self) -> bool {
        self.stepped || self.planner.is_some()
    }

    /// Whether hooks and context sources are asked before the caller's messages enter the session.
    #[must_use]
    pub fn prepares(&self) -> bool {
        !self.hooks.is_empty() || !self.context_sources.is_empty()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How the conversation is kept within the model's context.
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
    /// `truncate`, `summarize`, `extract`, or one that the server was built with.
    pub strategy: String,
    /// Messages at the end that are kept as they are.
    pub keep_recent: u32,
    /// `provider/model` for summaries; absent means the run's.
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

/// Work that follows a run's end, in the background.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundPolicy {
    /// Whether the model gives a session without a title one.
    pub title: bool,
    /// Whether the model keeps a summary of the session.
    pub summary: bool,
    /// `provider/model` for both; absent means the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Which tools may run and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolPolicy {
    /// Whether the model is offered tools at all.
    pub enabled: bool,
    /// Of the registered tools, only these; absent means all. Intersected with [`RunSpec::allowed_tools`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_list: Option<Vec<String>>,
    /// Calls of one message that may be in flight together; 1 runs them in order.
    pub max_parallel: u32,
    /// Calls that a run may make in all; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_per_run: Option<u32>,
    /// Whether every call needs a human's approval, whatever its tool declares.
    pub require_approval_by_default: bool,
    /// Which calls may run: see [`crate::policy`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<PolicyRule>,
    /// Whether the model is offered the built-in tool `ask_human`.
    #[serde(skip_serializing_if = "is_default")]
    pub ask_human: bool,
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
        }
    }
}

/// Where a run ends however well it goes. Reaching one fails the run with a reason that names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopLimits {
    /// Model calls.
    pub max_iterations: u32,
    /// Rounds of tool calls; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_rounds: Option<u32>,
    /// From start to end, waiting included; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<Millis>,
    /// Input and output tokens together; absent means no bound. Checked between model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Tool calls in a row that end in an error; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_consecutive_failures: Option<u32>,
    /// The same tool with the same arguments, in a row; absent means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_repeated_calls: Option<u32>,
    /// Millionths of the currency of the configured prices; absent means no bound. Checked between model calls.
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

/// How a failed model call is tried again: exponential backoff with full jitter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Tries after the first.
    pub max_retries: u32,
    /// The first wait, doubled for each further one.
    pub initial_backoff: Millis,
    /// No wait is longer, unless the provider asks for it by Retry-After.
    pub max_backoff: Millis,
    /// Whether each wait is drawn between zero and its bound, so that many runs do not come back together.
    pub jitter: bool,
    /// Whether a run whose retries are used up waits for an operator instead of failing.
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

/// How long to wait for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelTimeouts {
    /// For the connection.
    pub connect: Millis,
    /// From the request to the first event of the answer.
    pub first_token: Millis,
    /// Between two events of the answer.
    pub idle: Millis,
    /// For the whole call.
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

/// What a model is asked for, in terms that every provider maps to its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelOptions {
    /// Sampling temperature, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Bound on the answer, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether the model may, must or must not call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// How much to think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// The shape that the answer must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// A JSON object merged into the provider's request, last and as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_options: Option<String>,
}

/// Whether the model may, must or must not call tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// Not at all.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// How much a reasoning model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Not, where the provider allows it.
    None,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// The JSON schema that the answer must follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseSchema {
    /// What the provider calls it.
    pub name: String,
    /// The schema, JSON text.
    pub schema: String,
    /// Whether the provider is to enforce it while decoding.
    pub strict: bool,
}
