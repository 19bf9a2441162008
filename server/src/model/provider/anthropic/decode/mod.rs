//! Decodes the stream of the Messages API: blocks that open, grow and close.

use std::borrow::Cow;
use std::collections::BTreeMap;

use agentloop_core::limits::{CALLS_PER_MESSAGE_MAX, PARTS_PER_MESSAGE_MAX, PROVIDER_STATE_BYTES_MAX};
use agentloop_core::message::{FinishReason, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::tool::Digest;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::event::{BlockDelta, BlockText, ContentBlock, Counts, MessagesEvent};
use super::state::{TextState, ThoughtState};
use crate::model::ModelError;
use crate::model::request::origin::Origin;
use crate::model::response::failure::short;
use crate::model::response::template::Template;
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;

/// State of one response's stream.
#[derive(Debug, Default)]
pub(in crate::model) struct MessagesDecoder {
    /// The template of the last event with a single text.
    template: Template<BlockText>,
    open: BTreeMap<u64, OpenBlock>,
    origin: Origin,
    /// Digest of the request, if the model binds its thinking to it.
    prefix: Option<Digest>,
    /// True if the last closed block is a text that further text would be joined to.
    after_text: bool,
    blocks: usize,
    calls: u32,
    /// Largest token counts reported so far.
    counts: Counts,
    finish: Option<FinishReason>,
    /// True once the response has any content.
    has_content: bool,
    done: bool,
}

#[derive(Debug)]
enum OpenBlock {
    Text {
        /// Citations as received, separated by commas.
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
        /// Arguments from a server that does not stream them. Streamed arguments replace them.
        full_input: Option<String>,
    },
    /// A block without meaning here, such as a tool that the provider runs itself. It is stored to be sent back.
    Opaque {
        block: String,
        /// Its input, as far as it was streamed.
        input: String,
    },
}

impl MessagesDecoder {
    /// Creates the decoder of a response from this origin to a request with this digest.
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
        if self.open.values().any(|block| matches!(block, OpenBlock::Call { .. })) {
            return Err(ModelError::malformed("the stream ends inside a tool call"));
        }
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the response does"));
        };
        if reason == FinishReason::ContextWindow && !self.has_content {
            return Err(ModelError::context_full());
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

    /// Reads the document as the events that would have streamed it.
    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let blocks = document["content"].as_array().ok_or_else(ModelError::not_a_response)?;
        let mut emit = |event: Value| {
            let event = SseEvent { name: "".into(), data: event.to_string().into() };
            self.event(&event, deltas)
        };
        emit(json!({ "type": "message_start", "message": { "usage": document["usage"] } }))?;
        for (index, block) in blocks.iter().enumerate() {
            emit(json!({ "type": "content_block_start", "index": index, "content_block": block }))?;
            emit(json!({ "type": "content_block_stop", "index": index }))?;
        }
        let reason = document["stop_reason"].as_str().unwrap_or("end_turn");
        emit(json!({ "type": "message_delta", "delta": { "stop_reason": reason } }))?;
        emit(json!({ "type": "message_stop" }))
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
        let mut read: MessagesEvent<'_> = self.template.read(data).map_err(|e| ModelError::not_json(&e))?;
        let kind = read.kind.take().unwrap_or(Cow::Borrowed(&*event.name));
        if kind == "error" { Err(ModelError::of_event(data)) } else { self.handle(&kind, read, deltas) }
    }

    fn handle(
        &mut self,
        kind: &str,
        event: MessagesEvent<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        match kind {
            "message_start" => self.count(event.message_usage, deltas),
            "content_block_start" => return self.open(event.index, event.block.unwrap_or("{}"), deltas),
            "content_block_delta" => return self.grow(event.index, event.delta, deltas),
            "content_block_stop" => self.close(event.index, deltas),
            "message_delta" => {
                if let Some(reason) = event.delta.stop_reason {
                    self.finish = Some(finish_reason(&reason));
                }
                self.count(event.usage, deltas);
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

    /// Opens a block, which is given as JSON text.
    fn open(&mut self, index: u64, json: &str, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        self.blocks += 1;
        if self.blocks > PARTS_PER_MESSAGE_MAX {
            return Err(ModelError::too_many(PARTS_PER_MESSAGE_MAX, "blocks"));
        }
        let block = ContentBlock::of(json).map_err(|e| ModelError::not_json(&e))?;
        let after_text = std::mem::take(&mut self.after_text);
        let open = match &*block.kind {
            "text" => {
                if after_text {
                    deltas.push(Delta::TextEnd { state: None });
                }
                deltas.extend(block.text.map(|text| Delta::Text { text: text.into_owned() }));
                OpenBlock::Text { citations: elements(block.citations.unwrap_or_default()).to_owned() }
            }
            "thinking" => {
                deltas.extend(block.thinking.map(|text| Delta::Reasoning { text: text.into_owned() }));
                OpenBlock::Thinking { signature: block.signature.unwrap_or_default().into_owned() }
            }
            "redacted_thinking" => OpenBlock::Redacted { data: block.data.unwrap_or_default().into_owned() },
            "tool_use" => self.open_call(block, deltas)?,
            _ => OpenBlock::Opaque { block: json.to_owned(), input: String::new() },
        };
        self.open.insert(index, open);
        Ok(())
    }

    fn open_call(
        &mut self,
        block: ContentBlock<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<OpenBlock, ModelError> {
        let index = self.calls;
        if index as usize >= CALLS_PER_MESSAGE_MAX {
            return Err(ModelError::too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        self.calls += 1;
        let name = block.name.unwrap_or_default().into_owned();
        deltas.push(Delta::ToolCallStart { index, provider_id: block.id.map(Cow::into_owned), name });
        Ok(OpenBlock::Call { index, full_input: block.input.map(Cow::into_owned) })
    }

    fn grow(&mut self, index: u64, delta: BlockDelta<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        match (&*delta.kind, self.open.get_mut(&index)) {
            ("text_delta", _) => {
                deltas.extend(delta.text.map(|text| Delta::Text { text: text.into_owned() }));
            }
            ("thinking_delta", _) => {
                deltas.extend(delta.thinking.map(|text| Delta::Reasoning { text: text.into_owned() }));
            }
            ("signature_delta", Some(OpenBlock::Thinking { signature })) => {
                push_bounded(signature, &delta.signature.unwrap_or_default())?;
            }
            ("input_json_delta", Some(OpenBlock::Call { index, full_input })) => {
                if let Some(fragment) = delta.partial_json {
                    *full_input = None;
                    let fragment = fragment.into_owned();
                    deltas.push(Delta::ToolCallArguments { index: *index, fragment });
                }
            }
            ("input_json_delta", Some(OpenBlock::Opaque { input, .. })) => {
                push_bounded(input, &delta.partial_json.unwrap_or_default())?;
            }
            ("citations_delta", Some(OpenBlock::Text { citations })) => {
                if let Some(citation) = delta.citation {
                    if !citations.is_empty() {
                        citations.push(',');
                    }
                    push_bounded(citations, citation)?;
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
            Some(OpenBlock::Thinking { signature }) => {
                let signature = (!signature.is_empty()).then_some(signature);
                self.end_thinking(ThoughtState { signature, ..ThoughtState::default() }, deltas);
            }
            Some(OpenBlock::Redacted { data }) => {
                self.end_thinking(ThoughtState { redacted: Some(data), ..ThoughtState::default() }, deltas);
            }
            // An empty object stands for an input that was to be streamed: the response may be cut off before it.
            Some(OpenBlock::Call { index, full_input: Some(fragment) }) if fragment.trim() != "{}" => {
                deltas.push(Delta::ToolCallArguments { index, fragment });
            }
            Some(OpenBlock::Text { citations }) if citations.is_empty() => self.after_text = true,
            Some(OpenBlock::Text { citations }) => {
                let citations = RawValue::from_string(format!("[{citations}]"));
                let state = citations.and_then(|citations| serde_json::to_string(&TextState { citations }));
                let state = state.ok().map(|data| self.origin.state(data));
                deltas.push(Delta::TextEnd { state });
            }
            Some(OpenBlock::Opaque { block, input }) => {
                deltas.push(Delta::Opaque(self.origin.state(with_input(block, &input))));
            }
            Some(OpenBlock::Call { .. }) | None => {}
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
    /// Adds a report. Each report is cumulative, and may omit or zero a count that another has.
    fn add(&mut self, latest: Self) {
        self.input = self.input.max(latest.input);
        self.output = self.output.max(latest.output);
        self.cache_read = self.cache_read.max(latest.cache_read);
        self.cache_write = self.cache_write.max(latest.cache_write);
        self.reasoning = self.reasoning.max(latest.reasoning);
    }

    /// Converts to our usage. The API counts cached input beside the input; we count it as part of the input.
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_add(self.cache_read).saturating_add(self.cache_write),
            output_tokens: self.output,
            cached_input_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            cost_micros: 0,
            unpriced_calls: 0,
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

/// Returns the elements of a JSON list, without its brackets.
fn elements(list: &str) -> &str {
    list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or_default().trim()
}

/// Returns a block with its streamed input, if that is JSON.
fn with_input(block: String, input: &str) -> String {
    match (serde_json::from_str(input), serde_json::from_str(&block)) {
        (Ok(input), Ok(Value::Object(mut fields))) => {
            fields.insert("input".to_owned(), input);
            Value::Object(fields).to_string()
        }
        _ => block,
    }
}

/// Appends to a text that is kept until its block closes, within a limit.
fn push_bounded(text: &mut String, more: &str) -> Result<(), ModelError> {
    if text.len() + more.len() > PROVIDER_STATE_BYTES_MAX {
        return Err(ModelError::too_many(PROVIDER_STATE_BYTES_MAX, "bytes of state in one block"));
    }
    text.push_str(more);
    Ok(())
}

#[cfg(test)]
mod tests;
