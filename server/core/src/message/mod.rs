//! Messages of a session, as models read and write them.
//!
//! Messages are stored as JSON. Fields are only ever added, with a default.

mod tool_result;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::tool_result::{Attachments, File, FileSource, Link, ToolResult, ToolStatus};

use crate::id::CallSlot;
use crate::limits::PREVIEW_CHARS_MAX;
use crate::tool::Digest;

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The operator of the agent: instructions.
    System,
    /// The person or program that prompts.
    User,
    /// The model: responses and tool calls.
    Assistant,
    /// A tool: results of calls.
    Tool,
}

/// One message: its author and its parts, in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// Content of the message.
    pub parts: Vec<Part>,
}

/// The beginning of the first text of a user, on one line. Empty if there is none.
pub fn preview<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let texts = messages.into_iter().filter(|message| message.role == Role::User).flat_map(|message| {
        message.parts.iter().filter_map(|part| match part {
            Part::Text { text, .. } => Some(text),
            Part::Reasoning(_)
            | Part::Opaque(_)
            | Part::Image { .. }
            | Part::ToolCall(_)
            | Part::ToolResult(_) => None,
        })
    });
    let Some(first) = texts.into_iter().find(|text| !text.trim().is_empty()) else { return String::new() };
    let mut line = String::new();
    for word in first.split_whitespace() {
        if line.len() >= 4 * PREVIEW_CHARS_MAX {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(PREVIEW_CHARS_MAX));
    }
    match line.char_indices().nth(PREVIEW_CHARS_MAX) {
        Some((end, _)) => line[..end].trim_end().to_owned(),
        None => line,
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text, without markup of any provider.
    Text {
        /// The text, of any length within the message's bound. Empty only together with a `state`.
        text: String,
        /// State that the provider wants back with this text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<ProviderState>,
    },
    /// Reasoning of the model before its response. Sent back to the same model if its provider requires that.
    Reasoning(Reasoning),
    /// A part of an assistant message that only its provider understands, such as a web search that the provider ran
    /// itself. Sent back to that provider at the same place, and shown to nobody else.
    Opaque(ProviderState),
    /// A picture from a user or a tool, for the model.
    Image {
        /// Reference to the picture, or its bytes.
        image: Image,
    },
    /// A call of a tool. Only in assistant messages.
    ToolCall(ToolCall),
    /// The result of a tool call. Only in tool messages.
    ToolResult(ToolResult),
}

/// A model's reasoning, with the state that its provider needs to accept it again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The readable text. Empty if the provider hides it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The provider's signature over the text. Only in journals that are older than `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Encrypted reasoning. Only in journals that are older than `state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// State that the provider wants back with this reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProviderState>,
}

impl Reasoning {
    /// True if the provider hides the text.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.redacted.is_some() || (self.text.is_empty() && self.state.is_some())
    }
}

/// State that a provider attached to a part of a message: a signature, encrypted reasoning, metadata of an item.
///
/// It goes back unchanged to the same provider and model family. Any other would refuse or misread it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderState {
    /// Name of the configured provider that gave it: the part of `provider/model` before the first `/`.
    pub provider: String,
    /// Model that gave it, without the date of a snapshot.
    pub family: String,
    /// The state, in a format of the provider's adapter. At most
    /// [`PROVIDER_STATE_BYTES_MAX`](crate::limits::PROVIDER_STATE_BYTES_MAX) bytes.
    pub data: String,
}

impl ProviderState {
    /// Size of its texts in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.provider.len() + self.family.len() + self.data.len()
    }
}

/// Leaves out the data, which may be large and may be encrypted reasoning.
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
    /// A picture that the provider fetches.
    Url {
        /// Address, with the scheme `https:` or `http:`.
        url: String,
    },
    /// A picture that is sent with the message.
    Inline {
        /// Media type, such as `image/png`.
        media_type: String,
        /// The bytes in standard base64.
        base64: String,
    },
}

/// A call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The place of the call in its run.
    pub slot: CallSlot,
    /// The provider's id of the call, which is sent back with the result. Generated if the provider sends none.
    pub provider_id: String,
    /// The tool's name as the model wrote it. It may be unknown.
    pub name: String,
    /// The arguments as JSON text, exactly as the model wrote them. They may be invalid.
    pub arguments: String,
    /// State that the provider wants back with this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProviderState>,
}

/// Reasons of a model to end its response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The response is complete, or a stop sequence was written.
    Stop,
    /// The response requests tool calls.
    ToolCalls,
    /// The limit of output tokens was reached.
    Length,
    /// The context was full before the response was complete. The text until then is intact.
    ContextWindow,
    /// The provider's content filter cut the response.
    ContentFilter,
    /// The model declined to respond.
    Refusal,
    /// The run ended before the response was complete. Its text until then was kept, as [`Message::cut_off`] says.
    CutOff,
    /// Any other reason, in the provider's own word.
    Other(String),
}

/// Tokens of model calls, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Input tokens that were written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens of the reasoning.
    pub reasoning_tokens: u64,
    /// Cost in millionths of the currency of the configured prices; 0 without prices.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
    /// Model calls whose model had no configured price: `cost_micros` lacks theirs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_calls: u64,
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
        self.unpriced_calls = self.unpriced_calls.saturating_add(other.unpriced_calls);
    }
}

/// Bytes that a part is assumed to take in addition to its texts.
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
    /// The media type of an inline image, in lower case. `None` if it is no `image/…`, or has parameters or characters that
    /// a media type may not have (RFC 9110, section 8.3.1): providers refuse such a message in every later request.
    #[must_use]
    pub fn checked_media_type(given: &str) -> Option<String> {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let lower = given.to_ascii_lowercase();
        let subtype = lower.strip_prefix("image/")?;
        (!subtype.is_empty() && subtype.bytes().all(is_token)).then_some(lower)
    }

    /// Digest of the picture or of its address.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Url { url } => Digest::of(&[b"url", url.as_bytes()]),
            Self::Inline { media_type, base64 } => {
                Digest::of(&[b"inline", media_type.as_bytes(), base64.as_bytes()])
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Url { url } => url.len(),
            Self::Inline { media_type, base64 } => media_type.len() + base64.len(),
        }
    }
}

/// A shared message: journal, history and subscribers hold the same one.
pub type SharedMessage = Arc<Message>;

impl Message {
    /// The part that is kept of a response that was cut off: its text. `None` if there is none yet.
    ///
    /// Tool calls have no results, and providers refuse reasoning and state of theirs without the parts that would have
    /// followed. They also refuse empty text, and text that ends in white space.
    #[must_use]
    pub fn cut_off(&self) -> Option<Message> {
        let mut texts: Vec<&str> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text { text, .. } if !text.is_empty() => texts.push(text),
                Part::Text { .. }
                | Part::Reasoning(_)
                | Part::Opaque(_)
                | Part::Image { .. }
                | Part::ToolCall(_)
                | Part::ToolResult(_) => {}
            }
        }
        while let Some(last) = texts.pop() {
            let trimmed = last.trim_end();
            if !trimmed.is_empty() {
                texts.push(trimmed);
                break;
            }
        }
        let parts: Vec<Part> =
            texts.into_iter().map(|text| Part::Text { text: text.to_owned(), state: None }).collect();
        (!parts.is_empty()).then_some(Message { role: self.role, parts })
    }

    /// A message of one text part.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::text(text)] }
    }

    /// The tool calls, in the order in which the model wrote them.
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

    /// The first tool result of the message; `None` unless it is a tool message.
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

    /// Approximate size in bytes, in memory and on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| PART_BYTES + part.size()).sum()
    }

    /// The texts of all text parts, joined without separator.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_of_images() {
        for (given, expected) in [
            ("image/png", Some("image/png")),
            ("IMAGE/PNG", Some("image/png")),
            ("image/svg+xml", Some("image/svg+xml")),
            ("image/vnd.x-y.1", Some("image/vnd.x-y.1")),
            ("image/", None),
            ("image/png; q=1", None),
            ("image/png\n", None),
            ("image/a/b", None),
            ("text/html", None),
            ("", None),
        ] {
            assert_eq!(Image::checked_media_type(given).as_deref(), expected, "{given:?}");
        }
    }
}
