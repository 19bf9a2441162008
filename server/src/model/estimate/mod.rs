//! Estimates token counts before a provider has counted.
//!
//! The estimate uses no vocabulary. A vocabulary takes some fifty megabytes of memory, is exact for one family
//! of models, and other families differ from it as much as this estimate does. The text is walked as tokenizers
//! cut it, into words, numbers, spaces and punctuation, and each piece has a weight.
//!
//! For English, other European languages, program text and JSON the estimate is within a quarter of the count
//! of OpenAI's newer models, more often above than below. For other scripts it lies between the newer
//! vocabularies and the older ones, which need up to three times as many tokens. If a provider has counted the
//! last request, use that count and add the estimate of the new messages.
//!
//! A message's estimate depends on the message alone, so a sum can be kept while a conversation grows.

use agentloop_core::limits::TOOL_RESULT_SHOWN_BYTES_MAX;
use agentloop_core::message::{Message, Part, SharedMessage, ToolCall, ToolResult};
use agentloop_core::tool::ToolDeclaration;

use self::text::twentieths;

mod text;

/// Tokens of a message beside its parts: role, start and end.
const MESSAGE_TOKENS: u32 = 4;
/// Tokens of a tool call or result beside its texts: ids and the words of the format.
const CALL_TOKENS: u32 = 12;
/// Tokens of a tool declaration beside its texts.
const TOOL_TOKENS: u32 = 8;
/// Tokens of an image. Providers count some hundred to some thousand, by a size that is not known here.
const IMAGE_TOKENS: u32 = 1_200;
/// Bytes per token of hidden reasoning.
const HIDDEN_BYTES: usize = 4;
/// Weights of texts are counted in twentieths of a token.
const TWENTIETHS: u64 = 20;

/// Estimates a request: messages, system prompt and tools.
#[must_use]
pub fn tokens<'t>(
    messages: &[SharedMessage],
    system_prompt: &str,
    tools: impl IntoIterator<Item = &'t ToolDeclaration>,
) -> u64 {
    let messages = messages.iter().map(|message| u64::from(message_tokens(message)));
    let tools = tools.into_iter().map(|tool| u64::from(tool_tokens(tool)));
    messages.chain(tools).chain([u64::from(system_prompt_tokens(system_prompt))]).sum()
}

/// Estimates a message, as the model sees it: long tool output is cut.
#[must_use]
pub fn message_tokens(message: &Message) -> u32 {
    message.parts.iter().map(part_tokens).fold(MESSAGE_TOKENS, u32::saturating_add)
}

/// Estimates the system prompt; 0 if it is empty.
fn system_prompt_tokens(system_prompt: &str) -> u32 {
    if system_prompt.is_empty() { 0 } else { text_tokens(system_prompt).saturating_add(MESSAGE_TOKENS) }
}

/// Estimates the declaration of a tool.
fn tool_tokens(tool: &ToolDeclaration) -> u32 {
    let texts = [&tool.name, &tool.description, &tool.input_schema];
    texts.iter().map(|text| text_tokens(text)).fold(TOOL_TOKENS, u32::saturating_add)
}

/// Estimates a text without the message around it.
fn text_tokens(text: &str) -> u32 {
    u32::try_from(twentieths(text).div_ceil(TWENTIETHS)).unwrap_or(u32::MAX)
}

fn hidden_tokens(data: &str) -> u32 {
    u32::try_from(data.len() / HIDDEN_BYTES).unwrap_or(u32::MAX)
}

fn part_tokens(part: &Part) -> u32 {
    match part {
        Part::Text { text, .. } => text_tokens(text),
        Part::Reasoning(reasoning) => {
            let kept = reasoning.redacted.as_ref().or(reasoning.state.as_ref().map(|state| &state.data));
            let hidden = kept.filter(|_| reasoning.is_hidden()).map_or(0, |kept| hidden_tokens(kept));
            text_tokens(&reasoning.text).saturating_add(hidden)
        }
        Part::Opaque(state) => hidden_tokens(&state.data),
        Part::Image { .. } => IMAGE_TOKENS,
        Part::ToolCall(ToolCall { name, arguments, .. }) => {
            CALL_TOKENS.saturating_add(text_tokens(name)).saturating_add(text_tokens(arguments))
        }
        Part::ToolResult(ToolResult { output, images, .. }) => {
            let shown = &output[..output.floor_char_boundary(TOOL_RESULT_SHOWN_BYTES_MAX)];
            let images = IMAGE_TOKENS.saturating_mul(u32::try_from(images.len()).unwrap_or(u32::MAX));
            CALL_TOKENS.saturating_add(text_tokens(shown)).saturating_add(images)
        }
    }
}

#[cfg(test)]
mod tests;
