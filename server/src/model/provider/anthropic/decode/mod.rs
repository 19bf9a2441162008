//! The stream of Messages: blocks that open, grow and close.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::delta::Delta;
use agentloop_core::limits::{CALLS_PER_MESSAGE_MAX, PARTS_PER_MESSAGE_MAX, PROVIDER_STATE_BYTES_MAX};
use agentloop_core::message::{FinishReason, Usage};
use agentloop_core::tool::Digest;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::event::{self, Counts, Growth, Said, Single};
use super::state::{TextState, ThoughtState};
use crate::model::request::origin::Origin;
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::response::template::Template;
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;
use crate::model::{ModelError, ModelErrorKind};

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct MessagesDecoder {
    /// Of the last event that said one thing.
    last: Template<Single>,
    open: BTreeMap<u64, Block>,
    /// Who answers, and a digest of what its thoughts are bound to.
    origin: Origin,
    prefix: Option<Digest>,
    /// Whether the block that closed last is a text that more text would be joined to.
    after_text: bool,
    blocks: usize,
    calls: u32,
    /// So far.
    counts: Counts,
    finish: Option<FinishReason>,
    /// Whether the answer has anything in it.
    has_content: bool,
    done: bool,
}

#[derive(Debug)]
enum Block {
    Text {
        /// As they came, with a comma between them.
        citations: String,
    },
    Thinking {
        signature: String,
    },
    Redacted {
        data: String,
    },
    Call {
        index: u32,
        /// Given at once by servers that do not stream arguments; the text that is streamed wins.
        full_input: Option<String>,
    },
    /// Of no meaning here, such as a tool that the provider runs itself: kept to be sent back.
    Opaque {
        block: Box<RawValue>,
        /// What is streamed of it.
        input: String,
    },
}

impl MessagesDecoder {
    /// Of an answer of this origin to a request of this digest.
    pub(super) fn new(origin: Origin, prefix: Option<Digest>) -> Self {
        Self { origin, prefix, ..Self::default() }
    }
}

impl Decoder for MessagesDecoder {
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let before = deltas.len();
        self.read_event(event, deltas)?;
        let says = |delta: &Delta| !matches!(delta, Delta::Usage(_) | Delta::TextEnd { state: None });
        self.has_content |= deltas[before..].iter().any(says);
        Ok(())
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.open.values().any(|block| matches!(block, Block::Call { .. })) {
            return Err(ModelError::malformed("the stream ends inside a tool call"));
        }
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the answer does"));
        };
        if reason == FinishReason::ContextWindow && !self.has_content {
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
    fn read_event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.end(deltas);
        }
        if let Some(said) = self.last.fast::<Said<'_>>(data)
            && said.kind.as_deref().unwrap_or(&event.name) != "error"
        {
            return self.handle(said, event, deltas);
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        let said = Said::lenient(&value);
        if said.kind.as_deref().unwrap_or(&event.name) == "error" {
            return Err(ProviderFailure::from_value(None, &value).into_error(None));
        }
        self.handle(said, event, deltas)
    }

    fn handle(
        &mut self,
        said: Said<'_>,
        event: &SseEvent<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        match said.kind.as_deref().unwrap_or(&event.name) {
            "message_start" => self.count(said.message_usage, deltas),
            "content_block_start" => {
                return self.open(said.index, said.block, &event.data, deltas);
            }
            "content_block_delta" => {
                return self.grow(said.index, said.delta, &event.data, deltas);
            }
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
        data: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        self.blocks += 1;
        if self.blocks > PARTS_PER_MESSAGE_MAX {
            return Err(too_many(PARTS_PER_MESSAGE_MAX, "blocks"));
        }
        let after_text = std::mem::take(&mut self.after_text);
        let block = match &*block.kind {
            "text" => {
                if after_text {
                    deltas.push(Delta::TextEnd { state: None });
                }
                deltas.extend(block.text.map(|text| Delta::Text { text: text.into_owned() }));
                Block::Text { citations: raw(data).map(RawEvent::citations).unwrap_or_default() }
            }
            "thinking" => {
                deltas.extend(block.thinking.map(|text| Delta::Reasoning { text: text.into_owned() }));
                Block::Thinking { signature: block.signature.unwrap_or_default().into_owned() }
            }
            "redacted_thinking" => Block::Redacted { data: block.data.unwrap_or_default().into_owned() },
            "tool_use" => self.open_call(block, deltas)?,
            _ => match raw(data).and_then(|event| event.content_block) {
                Some(block) => Block::Opaque { block: block.to_owned(), input: String::new() },
                None => return Ok(()),
            },
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
        Ok(Block::Call { index, full_input: block.input })
    }

    fn grow(
        &mut self,
        index: u64,
        delta: Growth<'_>,
        data: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
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
            ("input_json_delta", Some(Block::Call { index, full_input })) => {
                if let Some(fragment) = delta.partial_json {
                    *full_input = None;
                    let fragment = fragment.into_owned();
                    deltas.push(Delta::ToolCallArguments { index: *index, fragment });
                }
            }
            ("input_json_delta", Some(Block::Opaque { input, .. })) => {
                push_bounded(input, &delta.partial_json.unwrap_or_default())?;
            }
            ("citations_delta", Some(Block::Text { citations })) => {
                let citation = raw(data).and_then(|event| event.delta).and_then(|delta| delta.citation);
                if let Some(citation) = citation {
                    if !citations.is_empty() {
                        citations.push(',');
                    }
                    push_bounded(citations, citation.get())?;
                }
            }
            ("input_json_delta", None) => {
                return Err(ModelError::malformed("arguments of a tool call that has not begun"));
            }
            // Kinds that are yet to come.
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.open.remove(&index) {
            Some(Block::Thinking { signature }) => {
                let signature = (!signature.is_empty()).then_some(signature);
                self.end_thinking(ThoughtState { signature, ..ThoughtState::default() }, deltas);
            }
            Some(Block::Redacted { data }) => {
                self.end_thinking(ThoughtState { redacted: Some(data), ..ThoughtState::default() }, deltas);
            }
            Some(Block::Call { index, full_input: Some(fragment) }) => {
                deltas.push(Delta::ToolCallArguments { index, fragment });
            }
            Some(Block::Text { citations }) if citations.is_empty() => self.after_text = true,
            Some(Block::Text { citations }) => {
                let citations = RawValue::from_string(format!("[{citations}]"));
                let state = citations.and_then(|citations| serde_json::to_string(&TextState { citations }));
                let state = state.ok().map(|data| self.origin.state(data));
                deltas.push(Delta::TextEnd { state });
            }
            Some(Block::Opaque { block, input }) => {
                deltas.push(Delta::Opaque(self.origin.state(with_input(&block, &input))));
            }
            Some(Block::Call { full_input: None, .. }) | None => {}
        }
    }

    fn end_thinking(&self, state: ThoughtState, deltas: &mut Vec<Delta>) {
        let state = ThoughtState { prefix: self.prefix.clone(), ..state };
        deltas.push(Delta::reasoning_end(state.to_provider_state(&self.origin)));
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
        self.reasoning = self.reasoning.max(latest.reasoning);
    }

    /// The API counts cached input beside the input, we count it as part of the input.
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_read).saturating_add(self.cache_write),
            output_tokens: self.output,
            cached_input_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
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

/// What of an event goes on as it came.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<RawDelta<'a>>,
}

#[derive(Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
}

fn raw(data: &str) -> Option<RawEvent<'_>> {
    serde_json::from_str(data).ok()
}

impl RawEvent<'_> {
    /// Those that a text block came with, without the brackets.
    fn citations(self) -> String {
        #[derive(Deserialize)]
        struct Cited<'a> {
            #[serde(borrow)]
            citations: Option<&'a RawValue>,
        }
        let block = self.content_block.and_then(|block| serde_json::from_str::<Cited<'_>>(block.get()).ok());
        let list = block.and_then(|block| block.citations).map_or("", RawValue::get);
        let inner = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or_default();
        inner.trim().to_owned()
    }
}

/// A block with the input that was streamed for it, where that is JSON.
fn with_input(block: &RawValue, input: &str) -> String {
    let parsed = serde_json::from_str::<Value>(input).ok();
    match (parsed, serde_json::from_str::<Value>(block.get())) {
        (Some(input), Ok(Value::Object(mut whole))) => {
            whole.insert("input".to_owned(), input);
            Value::Object(whole).to_string()
        }
        _ => block.get().to_owned(),
    }
}

/// Adds to what is held back until its block closes.
fn push_bounded(held: &mut String, more: &str) -> Result<(), ModelError> {
    if held.len() + more.len() > PROVIDER_STATE_BYTES_MAX {
        return Err(too_many(PROVIDER_STATE_BYTES_MAX, "bytes of state in one block"));
    }
    held.push_str(more);
    Ok(())
}

fn too_many(max: usize, what: &str) -> ModelError {
    ModelError::new(ModelErrorKind::TooLarge, format!("the answer has more than {max} {what}"))
}

#[cfg(test)]
mod tests;
