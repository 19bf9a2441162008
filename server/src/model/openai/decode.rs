//! The stream of Chat Completions, as its many speakers really send it.

use std::borrow::Cow;

use agentloop_core::delta::Delta;
use agentloop_core::message::{FinishReason, Usage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::calls::Calls;
use crate::model::ModelError;
use crate::model::failure::{ProviderFailure, short};
use crate::model::http::Decoder;
use crate::model::sse::SseEvent;

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct ChatDecoder {
    calls: Calls,
    /// Held back to the end, since token counts and, with some servers, more text follow it.
    finish: Option<FinishReason>,
    refused: bool,
    /// Whether the answer has anything in it.
    said: bool,
    done: bool,
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &SseEvent, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            if self.finish.is_none() && self.said {
                self.finish = Some(FinishReason::Stop);
            }
            return self.end(deltas);
        }
        if let Some(text) = plain(data).filter(|_| event.name != "error") {
            if !text.is_empty() {
                self.said = true;
                deltas.push(Delta::Text { text: text.into_owned() });
            }
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        if event.name == "error" || chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ProviderFailure::from_value(None, &chunk).into_error(None));
        }
        deltas.extend(usage(&chunk["usage"]).map(Delta::Usage));
        self.choice(first_choice(&chunk), deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the answer does"));
        };
        if reason == FinishReason::ContextWindow && !self.said {
            return Err(ModelError::no_room());
        }
        self.calls.end(deltas);
        let reason = match reason {
            FinishReason::Stop if self.refused => FinishReason::Refusal,
            FinishReason::Stop if !self.calls.is_empty() => FinishReason::ToolCalls,
            reason => reason,
        };
        deltas.push(Delta::Finish { reason });
        self.done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl ChatDecoder {
    fn choice(&mut self, choice: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let before = deltas.len();
        let delta = &choice["delta"];
        // Two names for the same; a server that sends both sends the same text in both.
        if let Some(text) = text(&delta["reasoning_content"]).or_else(|| text(&delta["reasoning"])) {
            deltas.push(Delta::Reasoning { text });
        }
        if let Some(text) = text(&delta["content"]) {
            deltas.push(Delta::Text { text });
        }
        if let Some(text) = text(&delta["refusal"]) {
            self.refused = true;
            deltas.push(Delta::Text { text });
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            self.calls.fragment(fragment, deltas)?;
        }
        if delta["function_call"].is_object() {
            self.calls.fragment(&serde_json::json!({ "function": delta["function_call"] }), deltas)?;
        }
        self.said |= deltas.len() > before;
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.finish = Some(finish_reason(reason));
        }
        Ok(())
    }
}

/// The text of an event that has one choice with a text and nothing else that matters to us. Nearly every event of a
/// stream is such, and none of them is worth a tree of values.
fn plain(data: &str) -> Option<Cow<'_, str>> {
    let chunk: Chunk<'_> = serde_json::from_str(data).ok()?;
    let [Choice { index: None | Some(0), delta, finish_reason: None }] = chunk.choices else { return None };
    let alone =
        chunk.usage.is_none() && chunk.error.is_none() && delta.calls.is_none() && delta.call.is_none();
    let says_nothing_else = delta.reasoning.is_none() && delta.thoughts.is_none() && delta.refusal.is_none();
    (alone && says_nothing_else).then_some(delta.content?)
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
    usage: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Piece<'a>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(rename = "reasoning_content")]
    thoughts: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    refusal: Option<IgnoredAny>,
    #[serde(rename = "tool_calls")]
    calls: Option<IgnoredAny>,
    #[serde(rename = "function_call")]
    call: Option<IgnoredAny>,
}

/// We ask for one choice; whoever sends more numbers them.
fn first_choice(chunk: &Value) -> &Value {
    let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
    choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0).unwrap_or(&Value::Null)
}

/// A text, or the texts of a list of parts.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" | "max_tokens" => FinishReason::Length,
        // Of gateways to Anthropic and of GLM; of Mistral.
        "model_context_window_exceeded" | "model_length" => FinishReason::ContextWindow,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(short(other)),
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    usage.is_object().then(|| Usage {
        input_tokens: count("/prompt_tokens").unwrap_or(0),
        output_tokens: count("/completion_tokens").unwrap_or(0),
        cached_input_tokens: count("/prompt_tokens_details/cached_tokens")
            .or_else(|| count("/prompt_cache_hit_tokens"))
            .unwrap_or(0),
        cache_write_tokens: count("/prompt_tokens_details/cache_write_tokens").unwrap_or(0),
        reasoning_tokens: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
        cost_micros: 0,
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
