//! Messages, as they stand in a session's history and as a model reads and writes them.
//!
//! These types are journal format: they are stored as JSON, so fields are only ever added, with a default.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallSlot;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions from whoever operates the agent.
    System,
    /// The person or program that prompts.
    User,
    /// The model.
    Assistant,
    /// A tool, answering a call.
    Tool,
}

/// One message: a role and the parts in the order in which they were produced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// UTF-8, any length within the message's bound. Empty only beside a `state`.
        text: String,
        /// What the provider wants back with this text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// What the model thought before it spoke. Sent back to the model that made it, as its provider requires.
    Reasoning(Reasoning),
    /// A piece of an assistant message that only its provider understands, such as a web search that the provider ran
    /// itself. Sent back to that provider in its place, and shown to nobody.
    Opaque(ProviderState),
    /// A picture. Users and tools send them; models read them.
    Image {
        /// Where it is.
        image: Image,
    },
    /// The model asks for a tool. Only in assistant messages.
    ToolCall(ToolCall),
    /// A tool's answer. Only in tool messages.
    ToolResult(ToolResult),
}

/// A model's reasoning, with what its provider needs to accept it again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The readable text; may be empty where the provider hides it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The provider's signature over the text, as journals before `state` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Reasoning that the provider encrypted, as journals before `state` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// What the provider wants back with this reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProviderState>,
}

impl Reasoning {
    /// Whether the provider keeps the text from its readers.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.redacted.is_some() || (self.text.is_empty() && self.state.is_some())
    }
}

/// State of a provider that belongs to a part of an answer: a signature, an encrypted thought, an item's metadata. It
/// goes back unchanged to the same provider and model family, and to no other: elsewhere it is refused or misread.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderState {
    /// The configured provider that gave it: what stands before the first `/` of the run's model.
    pub provider: String,
    /// The model that gave it, without the date of a snapshot.
    pub family: String,
    /// In the form of the provider's adapter. At most
    /// [`PROVIDER_STATE_BYTES_MAX`](crate::limits::PROVIDER_STATE_BYTES_MAX) bytes.
    pub data: String,
}

impl ProviderState {
    /// Bytes of its texts.
    #[must_use]
    pub fn size(&self) -> usize {
        self.provider.len() + self.family.len() + self.data.len()
    }
}

/// Without the data, which are nobody's but the provider's and may be large.
impl fmt::Debug for ProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderState")
            .field("provider", &self.provider)
            .field("family", &self.family)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}

/// A picture by reference or by value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Image {
    /// The provider fetches it.
    Url {
        /// `https:` or `http:`.
        url: String,
    },
    /// Sent along.
    Inline {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes in standard base64.
        base64: String,
    },
}

/// A model's wish to have a tool run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Our place for it within the run.
    pub slot: CallSlot,
    /// The provider's id, echoed back to it. Made up by us where the provider sends none.
    pub provider_id: String,
    /// The tool's name, as the model spelt it.
    pub name: String,
    /// JSON text, exactly as the model wrote it; may be invalid.
    pub arguments: String,
    /// What the provider wants back with this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProviderState>,
}

/// How a tool call ended, as the model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool ran and answered.
    Succeeded,
    /// The tool ran, or tried to, and reports an error.
    Failed,
    /// The call could not be dispatched: unknown name, bad arguments, a limit of the run's policy.
    Rejected,
    /// A human said no.
    Denied,
    /// A human answered in the tool's place.
    Answered,
    /// The run was aborted or ended first.
    Aborted,
    /// No answer within the call's deadline.
    TimedOut,
    /// No host serves the tool.
    Unavailable,
    /// It may or may not have run; nobody knows.
    OutcomeUnknown,
}

impl ToolStatus {
    /// Every status, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Failed,
        Self::Rejected,
        Self::Denied,
        Self::Answered,
        Self::Aborted,
        Self::TimedOut,
        Self::Unavailable,
        Self::OutcomeUnknown,
    ];

    /// As stored and counted: `timed_out`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
            Self::Answered => "answered",
            Self::Aborted => "aborted",
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// Whether the model is told that this is an error.
    #[must_use]
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Answered)
    }
}

/// The answer to one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that this answers.
    pub slot: CallSlot,
    /// The provider's id of that call.
    pub provider_id: String,
    /// The tool's name.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    /// What the model reads: text, often JSON. Whole, also where the model is shown less of it.
    pub output: String,
    /// Pictures beside the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done, or hit a stop sequence.
    Stop,
    /// It wants tools run.
    ToolCalls,
    /// It hit the output limit.
    Length,
    /// The context was full before it was done. What it said until then is whole and can be kept.
    ContextWindow,
    /// The provider's filter cut it.
    ContentFilter,
    /// It declined to answer.
    Refusal,
    /// Anything else, in the provider's word.
    Other(String),
}

/// Tokens, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Everything sent, cached or not.
    pub input_tokens: u64,
    /// Everything written, reasoning included.
    pub output_tokens: u64,
    /// Of the input: read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Of the input: written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Of the output: reasoning.
    pub reasoning_tokens: u64,
    /// Millionths of the currency of the configured prices; 0 where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_input_tokens = self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

/// What stands beside the texts of a part.
const PART_BYTES: usize = 64;

fn size_of_state(state: &Option<ProviderState>) -> usize {
    state.as_ref().map_or(0, ProviderState::size)
}

impl Part {
    /// Plain text without a provider's state.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), state: None }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text { text, state } => text.len() + size_of_state(state),
            Self::Reasoning(Reasoning { text, signature, redacted, state }) => {
                let old = [signature, redacted].into_iter().flatten().map(String::len).sum::<usize>();
                text.len() + old + size_of_state(state)
            }
            Self::Opaque(state) => state.size(),
            Self::Image { image } => image.size(),
            Self::ToolCall(call) => call.name.len() + call.arguments.len() + size_of_state(&call.state),
            Self::ToolResult(result) => result.size(),
        }
    }
}

impl Image {
    fn size(&self) -> usize {
        match self {
            Self::Url { url } => url.len(),
            Self::Inline { media_type, base64 } => media_type.len() + base64.len(),
        }
    }
}

impl ToolResult {
    /// Roughly its bytes, wherever it goes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.output.len() + self.images.iter().map(Image::size).sum::<usize>()
    }
}

/// A message that is shared rather than copied: journal, history and subscribers hold the same one.
pub type SharedMessage = Arc<Message>;

impl Message {
    /// A message of one text part.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::text(text)] }
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            Part::Text { .. }
            | Part::Reasoning(_)
            | Part::Opaque(_)
            | Part::Image { .. }
            | Part::ToolResult(_) => None,
        })
    }

    /// The result that a tool message carries.
    #[must_use]
    pub fn tool_result(&self) -> Option<&ToolResult> {
        self.parts.iter().find_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            Part::Text { .. }
            | Part::Reasoning(_)
            | Part::Opaque(_)
            | Part::Image { .. }
            | Part::ToolCall(_) => None,
        })
    }

    /// Roughly its bytes, wherever it goes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| PART_BYTES + part.size()).sum()
    }

    /// All text parts, joined.
    #[must_use]
    pub fn plain_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text, .. } => Some(text.as_str()),
                Part::Reasoning(_)
                | Part::Opaque(_)
                | Part::Image { .. }
                | Part::ToolCall(_)
                | Part::ToolResult(_) => None,
            })
            .collect()
    }
}
