//! The stream of Messages: blocks that open, grow and close.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::delta::Delta;
use agentloop_core::limits::{CALLS_PER_MESSAGE_MAX, PARTS_PER_MESSAGE_MAX};
use agentloop_core::message::{FinishReason, Usage};
use serde_json::{Value, json};

use super::event::{self, Counts, Growth, Said, Single};
use crate::model::failure::{ProviderFailure, short};
use crate::model::http::Decoder;
use crate::model::sse::SseEvent;
use crate::model::template::Template;
use crate::model::{ModelError, ModelErrorKind};

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct MessagesDecoder {
    /// Of the last event that said one thing.
    last: Template<Single>,
    open: BTreeMap<u64, Block>,
    blocks: usize,
    calls: u32,
    /// So far.
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
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
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

    /// As the events that would have said it.
    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let blocks = document["content"].as_array().ok_or_else(ModelError::no_answer)?;
        let mut say = |event: Value| {
            let event = SseEvent { name: "".into(), data: event.to_string().into() };
            self.event(&event, deltas)
        };
        say(json!({ "type": "message_start", "message": { "usage": document["usage"] } }))?;
        for (index, block) in blocks.iter().enumerate() {
            say(json!({ "type": "content_block_start", "index": index, "content_block": block }))?;
            say(json!({ "type": "content_block_stop", "index": index }))?;
        }
        let reason = document["stop_reason"].as_str().unwrap_or("end_turn");
        say(json!({ "type": "message_delta", "delta": { "stop_reason": reason } }))?;
        say(json!({ "type": "message_stop" }))
    }
}

impl MessagesDecoder {
    fn read(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.end(deltas);
        }
        if let Some(said) = self.last.usual::<Said<'_>>(data)
            && said.kind.as_deref().unwrap_or(&event.name) != "error"
        {
            return self.take(said, &event.name, deltas);
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        let said = Said::odd(&value);
        if said.kind.as_deref().unwrap_or(&event.name) == "error" {
            return Err(ProviderFailure::from_value(None, &value).into_error(None));
        }
        self.take(said, &event.name, deltas)
    }

    fn take(&mut self, said: Said<'_>, name: &str, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match said.kind.as_deref().unwrap_or(name) {
            "message_start" => self.count(said.message_usage, deltas),
            "content_block_start" => return self.open(said.index, said.block, deltas),
            "content_block_delta" => return self.grow(said.index, said.delta, deltas),
            "content_block_stop" => self.close(said.index, deltas),
            "message_delta" => {
                if let Some(reason) = said.delta.stop_reason {
                    self.finish = Some(finish_reason(&reason));
                }
                self.count(said.usage, deltas);
            }
            "message_stop" => {
                self.finish.get_or_insert(FinishReason::Stop);
                return self.end(deltas);
            }
            // Keep-alives, and kinds of events that are yet to come.
            _ => {}
        }
        Ok(())
    }

    fn open(
        &mut self,
        index: u64,
        block: event::Block<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        self.blocks += 1;
        if self.blocks > PARTS_PER_MESSAGE_MAX {
            return Err(too_many(PARTS_PER_MESSAGE_MAX, "blocks"));
        }
        let block = match &*block.kind {
            "text" => {
                deltas.extend(block.text.map(|text| Delta::Text { text: text.into_owned() }));
                Block::Text
            }
            "thinking" => {
                deltas.extend(block.thinking.map(|text| Delta::Reasoning { text: text.into_owned() }));
                Block::Thinking { signature: block.signature.unwrap_or_default().into_owned() }
            }
            "redacted_thinking" => Block::Redacted { data: block.data.unwrap_or_default().into_owned() },
            "tool_use" => self.open_call(block, deltas)?,
            _ => Block::Other,
        };
        self.open.insert(index, block);
        Ok(())
    }

    fn open_call(&mut self, block: event::Block<'_>, deltas: &mut Vec<Delta>) -> Result<Block, ModelError> {
        let index = self.calls;
        if index as usize >= CALLS_PER_MESSAGE_MAX {
            return Err(too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        self.calls += 1;
        let name = block.name.unwrap_or_default().into_owned();
        deltas.push(Delta::ToolCallStart { index, provider_id: block.id.map(Cow::into_owned), name });
        Ok(Block::Call { index, whole: block.input })
    }

    fn grow(&mut self, index: u64, delta: Growth<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match (&*delta.kind, self.open.get_mut(&index)) {
            ("text_delta", _) => {
                deltas.extend(delta.text.map(|text| Delta::Text { text: text.into_owned() }));
            }
            ("thinking_delta", _) => {
                deltas.extend(delta.thinking.map(|text| Delta::Reasoning { text: text.into_owned() }));
            }
            ("signature_delta", Some(Block::Thinking { signature })) => {
                signature.push_str(&delta.signature.unwrap_or_default());
            }
            ("input_json_delta", Some(Block::Call { index, whole })) => {
                if let Some(fragment) = delta.partial_json {
                    *whole = None;
                    let fragment = fragment.into_owned();
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

    fn close(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.open.remove(&index) {
            Some(Block::Thinking { signature }) => {
                let signature = (!signature.is_empty()).then_some(signature);
                deltas.push(Delta::ReasoningEnd { signature, redacted: None, state: None });
            }
            Some(Block::Redacted { data }) => {
                deltas.push(Delta::ReasoningEnd { signature: None, redacted: Some(data), state: None });
            }
            Some(Block::Call { index, whole: Some(fragment) }) => {
                deltas.push(Delta::ToolCallArguments { index, fragment });
            }
            Some(Block::Call { whole: None, .. } | Block::Text | Block::Other) | None => {}
        }
    }

    fn count(&mut self, usage: Option<Counts>, deltas: &mut Vec<Delta>) {
        if let Some(latest) = usage {
            self.counts.add(latest);
            deltas.push(Delta::Usage(self.counts.usage()));
        }
    }
}

impl Counts {
    /// Each report is of the whole answer up to there, and may leave out or zero what another has.
    fn add(&mut self, latest: Self) {
        self.input = self.input.max(latest.input);
        self.output = self.output.max(latest.output);
        self.cache_read = self.cache_read.max(latest.cache_read);
        self.cache_write = self.cache_write.max(latest.cache_write);
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

fn too_many(max: usize, what: &str) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the answer has more than {max} {what}"))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
