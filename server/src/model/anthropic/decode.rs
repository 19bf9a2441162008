//! The stream of Messages: blocks that open, grow and close.

use std::collections::BTreeMap;

use agentloop_core::delta::Delta;
use agentloop_core::limits::{CALLS_PER_MESSAGE_MAX, PARTS_PER_MESSAGE_MAX};
use agentloop_core::message::{FinishReason, Usage};
use serde_json::Value;

use crate::model::failure::{ProviderFailure, short};
use crate::model::http::Decoder;
use crate::model::sse::SseEvent;
use crate::model::{ModelError, ModelErrorKind};

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct MessagesDecoder {
    open: BTreeMap<u64, Block>,
    blocks: usize,
    calls: u32,
    counts: Counts,
    finish: Option<FinishReason>,
    /// Whether the answer has anything in it.
    said: bool,
    done: bool,
}

#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        signature: String,
    },
    Redacted {
        data: String,
    },
    Call {
        index: u32,
        /// Given at once by servers that do not stream arguments; the text that is streamed wins.
        whole: Option<String>,
    },
    /// Of no meaning here, such as a tool that the provider runs itself.
    Other,
}

impl Decoder for MessagesDecoder {
    fn event(&mut self, event: &SseEvent, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let before = deltas.len();
        self.read(event, deltas)?;
        self.said |= deltas[before..].iter().any(|delta| !matches!(delta, Delta::Usage(_)));
        Ok(())
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.open.values().any(|block| matches!(block, Block::Call { .. })) {
            return Err(ModelError::malformed("the stream ends inside a tool call"));
        }
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the answer does"));
        };
        if reason == FinishReason::ContextWindow && !self.said {
            return Err(ModelError::no_room());
        }
        let reason = match reason {
            FinishReason::Stop if self.calls > 0 => FinishReason::ToolCalls,
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

impl MessagesDecoder {
    fn read(&mut self, event: &SseEvent, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.end(deltas);
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        match value["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&value["message"]["usage"], deltas),
            "content_block_start" => return self.open(&value, deltas),
            "content_block_delta" => return self.grow(&value, deltas),
            "content_block_stop" => self.close(&value, deltas),
            "message_delta" => {
                if let Some(reason) = value["delta"]["stop_reason"].as_str() {
                    self.finish = Some(finish_reason(reason));
                }
                self.count(&value["usage"], deltas);
            }
            "message_stop" => {
                self.finish.get_or_insert(FinishReason::Stop);
                return self.end(deltas);
            }
            "error" => return Err(ProviderFailure::from_value(None, &value).into_error(None)),
            // Keep-alives, and kinds of events that are yet to come.
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        self.blocks += 1;
        if self.blocks > PARTS_PER_MESSAGE_MAX {
            return Err(too_many(PARTS_PER_MESSAGE_MAX, "blocks"));
        }
        let block = &event["content_block"];
        let block = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                deltas.extend(text(&block["text"]).map(|text| Delta::Text { text }));
                Block::Text
            }
            "thinking" => {
                deltas.extend(text(&block["thinking"]).map(|text| Delta::Reasoning { text }));
                Block::Thinking { signature: text(&block["signature"]).unwrap_or_default() }
            }
            "redacted_thinking" => Block::Redacted { data: text(&block["data"]).unwrap_or_default() },
            "tool_use" => self.open_call(block, deltas)?,
            _ => Block::Other,
        };
        self.open.insert(index(event), block);
        Ok(())
    }

    fn open_call(&mut self, block: &Value, deltas: &mut Vec<Delta>) -> Result<Block, ModelError> {
        let index = self.calls;
        if index as usize >= CALLS_PER_MESSAGE_MAX {
            return Err(too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        self.calls += 1;
        let name = text(&block["name"]).unwrap_or_default();
        deltas.push(Delta::ToolCallStart { index, provider_id: text(&block["id"]), name });
        let input = &block["input"];
        let whole = input.as_object().is_some_and(|input| !input.is_empty()).then(|| input.to_string());
        Ok(Block::Call { index, whole })
    }

    fn grow(&mut self, event: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let delta = &event["delta"];
        let block = self.open.get_mut(&index(event));
        match (delta["type"].as_str().unwrap_or_default(), block) {
            ("text_delta", _) => deltas.extend(text(&delta["text"]).map(|text| Delta::Text { text })),
            ("thinking_delta", _) => {
                deltas.extend(text(&delta["thinking"]).map(|text| Delta::Reasoning { text }));
            }
            ("signature_delta", Some(Block::Thinking { signature })) => {
                signature.push_str(&text(&delta["signature"]).unwrap_or_default());
            }
            ("input_json_delta", Some(Block::Call { index, whole })) => {
                if let Some(fragment) = text(&delta["partial_json"]) {
                    *whole = None;
                    deltas.push(Delta::ToolCallArguments { index: *index, fragment });
                }
            }
            ("input_json_delta", None) => {
                return Err(ModelError::malformed("arguments of a tool call that has not begun"));
            }
            // Citations and the like, and the arguments of tools that the provider runs itself.
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, event: &Value, deltas: &mut Vec<Delta>) {
        match self.open.remove(&index(event)) {
            Some(Block::Thinking { signature }) => {
                let signature = (!signature.is_empty()).then_some(signature);
                deltas.push(Delta::ReasoningEnd { signature, redacted: None });
            }
            Some(Block::Redacted { data }) => {
                deltas.push(Delta::ReasoningEnd { signature: None, redacted: Some(data) });
            }
            Some(Block::Call { index, whole: Some(fragment) }) => {
                deltas.push(Delta::ToolCallArguments { index, fragment });
            }
            Some(Block::Call { whole: None, .. } | Block::Text | Block::Other) | None => {}
        }
    }

    fn count(&mut self, usage: &Value, deltas: &mut Vec<Delta>) {
        if usage.is_object() {
            self.counts.add(usage);
            deltas.push(Delta::Usage(self.counts.usage()));
        }
    }
}

/// Token counts so far. Each report is of the whole answer up to there, and may leave out or zero what another has.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

impl Counts {
    fn add(&mut self, usage: &Value) {
        let latest = |count: &mut u64, key: &str| *count = (*count).max(usage[key].as_u64().unwrap_or(0));
        latest(&mut self.input, "input_tokens");
        latest(&mut self.output, "output_tokens");
        latest(&mut self.cache_read, "cache_read_input_tokens");
        latest(&mut self.cache_write, "cache_creation_input_tokens");
    }

    /// The API counts cached input beside the input, we count it as part of the input.
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_read).saturating_add(self.cache_write),
            output_tokens: self.output,
            cached_input_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: 0,
            cost_micros: 0,
        }
    }
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" => FinishReason::Length,
        "model_context_window_exceeded" => FinishReason::ContextWindow,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(short(other)),
    }
}

fn index(event: &Value) -> u64 {
    event["index"].as_u64().unwrap_or(0)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn too_many(max: usize, what: &str) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the answer has more than {max} {what}"))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
